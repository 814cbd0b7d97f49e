import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import type { BenchRecord } from "../../src/bench/bench_record.ts";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { until } from "../support/wait.ts";
import { forge, startForge } from "./forge.ts";
import { hasTerminals, Terminal } from "./terminal.ts";

Deno.test("bench: measures the given tests at every depth and number of threads", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const sizes = ["-p", "8", "-n", "4", "--pg", "6,2", "-d", "0,16", "-t", "1-2", "-r", "2"];
  const earlier = { model_type: "earlier", backends: "X", n_prompt: 0, n_gen: 4, avg_ts: 1 };
  folder.write("a.jsonl", `${JSON.stringify(earlier)}\n`);
  const pictures = ["--plot", folder.at("p.svg"), "--compare", folder.at("a.jsonl")];
  const { code, stdout, stderr } = await forge([
    "bench",
    "-m",
    folder.path,
    ...sizes,
    ...pictures,
    "-o",
    "json",
  ]);
  assertEquals({ code, stderr }, { code: 0, stderr: "" });
  const records = JSON.parse(stdout) as BenchRecord[];
  const tests = [0, 16].flatMap((depth) => [[8, 0, depth], [0, 4, depth], [6, 2, depth]]);
  assertEquals(
    records.map((r) => [r.n_threads, r.n_prompt, r.n_gen, r.n_depth]),
    [1, 2].flatMap((threads) => tests.map((test) => [threads, ...test])),
  );
  const picture = Deno.readTextFileSync(folder.at("p.svg"));
  for (const name of ["earlier, X", records[0]!.model_type]) assertStringIncludes(picture, name);
  const model = Deno.statSync(folder.at("model.safetensors")).size;
  for (const record of records) {
    assertEquals([record.samples_ns.length, record.samples_ts.length], [2, 2]);
    for (const time of record.samples_ns) assert(Number.isInteger(time) && time > 0);
    const tokens = record.n_prompt + record.n_gen;
    assertEquals(record.samples_ts, record.samples_ns.map((ns) => tokens / ns * 1e9));
    assert(record.avg_ts > 0 && record.stddev_ts >= 0);
    assert(record.model_size <= model && record.model_size > 0.8 * model);
    assertEquals(record.model_n_params * 4, record.model_size);
    assert(record.decode_bytes < record.model_size, "one row of an untied embedding is read");
    assertEquals(record.weight_gb_s !== null, record.n_prompt === 0);
    assertEquals([record.type_k, record.model_filename], ["f16", folder.path]);
    assert(Math.abs(Date.parse(record.test_time) - Date.now()) < 600_000);
  }
});

Deno.test("bench: without sizes it measures as llama-bench does", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { contextLength: 1024 });
  const { code, stdout } = await forge(["bench", "-m", folder.path, "-o", "jsonl"]);
  assertEquals(code, 0);
  const records = stdout.trim().split("\n").map((line) => JSON.parse(line) as BenchRecord);
  assertEquals(
    records.map((r) => [r.n_prompt, r.n_gen, r.n_depth, r.samples_ns.length]),
    [[512, 0, 0, 5], [0, 128, 0, 5]],
  );
});

Deno.test("bench: without a model it measures the bundled one", async () => {
  const args = ["bench", "-p", "4", "-n", "0", "-r", "1", "-o", "json"];
  const [{ model_filename }] = JSON.parse((await forge(args)).stdout);
  assertEquals(model_filename, bundledModel());
});

Deno.test("bench: measurements before an error are whole", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("good"));
  writeRandomLlama(folder.at("bad"));
  const path = folder.at("bad", "model.safetensors");
  const bytes = Deno.readFileSync(path);
  const at = new TextDecoder("latin1").decode(bytes).indexOf("model.norm.weight");
  bytes[at] = "n".charCodeAt(0);
  Deno.writeFileSync(path, bytes);
  const args = ["-m", folder.at("good"), "-m", folder.at("bad"), "-p", "4", "-n", "0", "-r", "1"];
  const { code, stdout, stderr } = await forge(["bench", ...args, "-o", "json"]);
  assertEquals(code, 1, stderr);
  assertStringIncludes(stderr, 'has no tensor "model.norm.weight"');
  const records = JSON.parse(stdout) as BenchRecord[];
  assertEquals(records.map((record) => record.model_filename), [folder.at("good")]);
  const alone = await forge(["bench", ...args.slice(2), "-o", "json"]);
  assertEquals([alone.code, alone.stdout], [1, ""]);
});

Deno.test("bench: several sequences at once, and prompts in batches", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const sizes = ["-p", "8", "-n", "4", "--parallel", "1,3", "-b", "5", "-r", "1", "-o", "jsonl"];
  const { code, stdout, stderr } = await forge(["bench", "-m", folder.path, ...sizes]);
  assertEquals({ code, stderr }, { code: 0, stderr: "" });
  const records = stdout.trim().split("\n").map((line) => JSON.parse(line) as BenchRecord);
  assertEquals(
    records.map((r) => [r.n_prompt, r.n_gen, r.n_parallel, r.n_batch]),
    [[8, 4, 1, 5], [8, 4, 3, 5]],
  );
  for (const { n_parallel, avg_ns, avg_prefill_ns, avg_decode_ns, samples_ts } of records) {
    assertEquals(avg_ns, avg_prefill_ns + avg_decode_ns);
    assertEquals(samples_ts, [12 * n_parallel / avg_ns * 1e9]);
  }
});

Deno.test({
  name: "bench: a terminal shows what is measured, and then the table",
  ignore: !await hasTerminals(),
  async fn() {
    const sizes = ["-p", "0", "-n", "64", "-r", "1000"];
    const args = ["bench", "--synthetic", "smollm2-135m:Q4_0", ...sizes];
    const terminal = Terminal.forge(args, { columns: 200 });
    await terminal.waitFor(/tg64 \[#*-*\] [1-9]\d* of 1000/);
    await terminal.type("\x03");
    await terminal.waitFor(/\| llama 135M Q4_0\+Q8_0 .*\| +tg64 /);
    assertEquals(await terminal.close(), 130);
  },
});

Deno.test({
  name: "bench: a narrow terminal shows each result as broken lines",
  ignore: !await hasTerminals(),
  async fn() {
    const shown = async (...more: string[]) => {
      const args = ["bench", "-p", "4", "-n", "2", "-r", "1", ...more];
      const terminal = Terminal.forge(args, { columns: 50 });
      assertEquals(await terminal.close(), 0);
      const lines = terminal.shown.trimEnd().split("\r\n");
      for (const line of lines) assert(/^(model | {2})/.test(line) && line.length <= 50, line);
      return lines.join(" ").replace(/ +/g, " ");
    };
    assertMatch(await shown(), /^model llama .* test pp4, t\/s .* model llama .* test tg2, t\/s /);
    assertMatch(
      await shown("--parallel", "3"),
      /^model llama .* PP 4, TG 2, B 3, N_KV 18, T_PP s /,
    );
  },
});

Deno.test("bench: a synthetic model needs no file and leaves none", async () => {
  using folder = new TempFolder();
  const args = ["bench", "--synthetic", "smollm2-135m:Q4_0", "-p", "4", "-n", "2", "-r", "1"];
  const { code, stdout, stderr } = await forge(args, { env: { TMPDIR: folder.path } });
  assertEquals({ code, stderr }, { code: 0, stderr: "" });
  const lines = stdout.trimEnd().split("\n");
  assertEquals(lines.length, 4);
  assertStringIncludes(lines[2]!, "llama 135M Q4_0+Q8_0");
  assertStringIncludes(lines[2]!, " pp4 ");
  assertStringIncludes(lines[3]!, " tg2 ");
  assertEquals([...Deno.readDirSync(folder.path)], []);
});

/** Starts a long measurement of a synthetic model, whose files are in a folder. */
function startBench(folder: TempFolder): Deno.ChildProcess {
  const sizes = ["-p", "1", "-n", "64", "-r", "20", "-o", "json"];
  return startForge(["bench", "--synthetic", "smollm2-135m:Q4_0", ...sizes], {
    env: { TMPDIR: folder.path },
    stdout: "piped",
  });
}

Deno.test("bench: Ctrl-C prints the finished measurements and removes the model", async () => {
  using folder = new TempFolder();
  const child = startBench(folder);
  let text = "";
  for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
    // The first record is written: the second test, of about 20 × 64 tokens, is running.
    if (text === "") child.kill("SIGINT");
    text += part;
  }
  assertEquals((await child.status).code, 130);
  const records = JSON.parse(text) as BenchRecord[];
  assertEquals([records[0]?.n_prompt, records[0]?.samples_ns.length], [1, 20]);
  for (const { n_gen, samples_ns } of records.slice(1)) {
    assertEquals(n_gen, 64);
    assert(samples_ns.length < 20);
  }
  assertEquals([...Deno.readDirSync(folder.path)], []);
});

Deno.test("bench: Ctrl-C before the first measurement prints an empty list", async () => {
  using folder = new TempFolder();
  const child = startBench(folder);
  const output = child.output();
  // The signal is handled once the model is being written.
  await until(() => [...Deno.readDirSync(folder.path)].length > 0);
  child.kill("SIGINT");
  const { code, stdout } = await output;
  assertEquals([code, JSON.parse(new TextDecoder().decode(stdout))], [130, []]);
  assertEquals([...Deno.readDirSync(folder.path)], []);
});

Deno.test("bench: invalid options are rejected before anything is measured", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const refusals: Record<string, readonly string[]> = {
    '--n-prompt is "4-1"; valid are whole numbers from 0 to': ["-p", "4-1"],
    '--threads is "0"; valid are whole numbers from 1 to 1024': ["-t", "0"],
    '--parallel is "0"; valid are whole numbers from 1 to 512': ["--parallel", "0"],
    '--pg is "8"; valid are two whole numbers': ["--pg", "8"],
    '--output is "xml"; valid are md, json, jsonl, csv': ["-o", "xml"],
    "nothing to measure": ["-p", "0", "-n", "0"],
    "--compare needs --plot FILE": ["--compare", "a.jsonl"],
    'unknown shape "none"': ["--synthetic", "none"],
    "a test takes 300 tokens, but the context of": ["-p", "4", "-n", "300"],
  };
  for (const [message, args] of Object.entries(refusals)) {
    const { code, stdout, stderr } = await forge(["bench", "-m", folder.path, ...args]);
    assertEquals({ code, stdout }, { code: 2, stdout: "" }, stderr);
    assertStringIncludes(stderr, message);
  }
});
