/** Tests batch files through the command line. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { Random } from "../support/random.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { EOS, writeRandomLlama, writeScriptedLlama } from "../support/tiny_llama.ts";
import { until } from "../support/wait.ts";
import { denoArgs, forge, type Outcome, startForge } from "./forge.ts";

interface OutputLine {
  readonly id: string | number;
  readonly text?: string;
  readonly completions?: readonly { readonly text: string }[];
  readonly error?: { readonly code: string; readonly message: string };
  readonly line?: number;
  readonly [key: string]: unknown;
}

/** A folder with a model and batch files. */
class Desk extends TempFolder {
  constructor() {
    super();
    writeRandomLlama(this.at("model"), {
      chatTemplate: "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
    });
  }

  run(input: string, ...args: string[]): Promise<Outcome> {
    return forge([
      "run",
      "-m",
      this.at("model"),
      "--batch",
      input,
      "--temp",
      "0",
      "-n",
      "6",
      ...args,
    ]);
  }

  lines(name: string, lines: readonly unknown[]): string {
    const texts = lines.map((line) => typeof line === "string" ? line : JSON.stringify(line));
    return this.write(name, texts.map((text) => `${text}\n`).join(""));
  }

  read(name: string): OutputLine[] {
    return parse(Deno.readTextFileSync(this.at(name)));
  }
}

function parse(text: string): OutputLine[] {
  assert(text === "" || text.endsWith("\n"), "the last line is not whole");
  return text.split("\n").slice(0, -1).map((line) => JSON.parse(line));
}

function prompts(count: number): { id: string; prompt: string }[] {
  return Array.from({ length: count }, (_, i) => ({ id: `p${i}`, prompt: `prompt ${i}` }));
}

const byId = (lines: readonly OutputLine[]) =>
  new Map(lines.map(({ id, text, error }) => [id, text ?? error?.code]));

/** Returns what must be the same in every run of a batch, line by line. */
function tokensById(text: string): unknown[] {
  return parse(text).map(({ id, token_ids, completions, error }) => [
    id,
    token_ids,
    completions?.map(({ text }) => text),
    error,
  ]);
}

Deno.test("batch: answers do not depend on the order or the number in flight", async () => {
  using desk = new Desk();
  const input = desk.lines("in.jsonl", [
    ...prompts(12),
    { prompt: "other", max_tokens: 2, raw: true },
    { id: "two", prompt: "x", n: 2, temperature: 2, seed: 3 },
  ]);
  const { code, stdout, stderr } = await desk.run(input);
  assertEquals([code, stderr], [0, ""]);
  const answers = parse(stdout);
  assertEquals(answers.length, 14);
  const alone = await forge(
    ["run", "-m", desk.at("model"), "-p", "prompt 3", "--temp", "0", "-n", "6", "--json"],
  );
  const { text, token_ids } = JSON.parse(alone.stdout);
  const third = answers.find(({ id }) => id === "p3")!;
  assertEquals([third.text, third.token_ids], [text, token_ids]);
  // The line without an id gets its line number as id, and keeps its own options.
  const numbered = answers.find(({ id }) => id === 13)!;
  assertEquals([numbered.completion_tokens, numbered.prompt_tokens], [2, 1 + "other".length]);
  const { completions = [] } = answers.find(({ id }) => id === "two")!;
  assert(completions.length === 2 && completions[0]!.text !== completions[1]!.text);

  const ordered = await desk.run(input, "--ordered", "--parallel", "2");
  assertEquals(parse(ordered.stdout).map(({ id }) => id), [
    ...prompts(12).map(({ id }) => id),
    13,
    "two",
  ]);
  assertEquals(byId(parse(ordered.stdout)), byId(answers));
});

Deno.test("batch: answers do not depend on the number of replicas", async () => {
  using desk = new Desk();
  const input = desk.lines("in.jsonl", [
    ...prompts(20),
    { id: "warm", prompt: "x", n: 3, temperature: 2, seed: 3 },
    { id: "bad", prompt: "", raw: true, max_tokens: 0 },
  ]);
  const single = await desk.run(input, "--ordered", "-t", "2");
  for (const flags of [["--devices", "cpu,cpu"], ["--device", "cpu", "--data-parallel", "2"]]) {
    const several = await desk.run(input, "--ordered", "-t", "2", "--parallel", "4", ...flags);
    assertEquals([several.code, several.stderr], [single.code, single.stderr]);
    assertEquals(tokensById(several.stdout), tokensById(single.stdout));
  }
  const alone = await forge(["run", "-m", desk.at("model"), "-p", "x", "--data-parallel", "2"]);
  assertEquals(alone.code, 2);
  assertStringIncludes(alone.stderr, "--data-parallel needs --batch FILE");
});

Deno.test("batch: a bad line gives an error line and exit code 1, and the others continue", async () => {
  using desk = new Desk();
  const good = JSON.stringify({ id: "good", prompt: "a" });
  const bytes = [
    new TextEncoder().encode(
      `${good}\nnot json\n{"id":"b","prompt":"x","max_tokens":"1"}\n{"id":"c\\ud800`,
    ),
    new Uint8Array([0xff, 0x0a]),
    new TextEncoder().encode(
      `{"id":"good","prompt":"again"}\n{"id":"long","prompt":"${"x".repeat(300)}"}\n`,
    ),
  ];
  const input = desk.at("in.jsonl");
  Deno.writeFileSync(input, new Uint8Array(await new Blob(bytes).arrayBuffer()));
  const { code, stdout, stderr } = await desk.run(input, "--ordered");
  assertEquals(code, 1);
  assertStringIncludes(stderr, "5 of 6 requests failed");
  const lines = parse(stdout);
  assertEquals(lines.map(({ id, line }) => [id, line]), [
    ["good", undefined],
    [2, 2],
    ["b", 3],
    [4, 4],
    ["good", 5],
    ["long", 6],
  ]);
  const messages = lines.slice(1).map(({ error }) => `${error!.code}: ${error!.message}`);
  for (const [i, part] of ["not valid JSON", "max_tokens", "UTF-8", "earlier", "256"].entries()) {
    assertMatch(messages[i]!, /^bad_input: /);
    assertStringIncludes(messages[i]!, part);
  }
});

Deno.test("batch: an output is never overwritten, and --resume continues it", async () => {
  using desk = new Desk();
  const several = { id: "several", prompt: "x", n: 2 };
  const lines = [several, ...prompts(7), "broken", { id: "t", prompt: "x", temperature: "hot" }];
  const input = desk.lines("in.jsonl", lines);
  const out = ["-o", desk.at("out.jsonl")];
  assertEquals((await desk.run(input, ...out)).code, 1);
  const all = Deno.readTextFileSync(desk.at("out.jsonl"));
  assertEquals(desk.read("out.jsonl").length, 10);

  const refused = await desk.run(input, ...out);
  assertEquals(refused.code, 2);
  assertMatch(refused.stderr, /out\.jsonl" exists already; --resume .* --overwrite/);
  assertEquals(Deno.readTextFileSync(desk.at("out.jsonl")), all);

  desk.write("byte", "x");
  assertEquals((await desk.run(input, "-o", desk.at("byte"))).code, 2);
  assertEquals(Deno.readTextFileSync(desk.at("byte")), "x");
  Deno.removeSync(desk.at("byte"));

  // Two whole answers, an error and half a line, as after a kill.
  const isSeveral = (line: string) => line.includes('"several"');
  const texts = all.split("\n").filter((line) => line.includes('"text"'));
  const answered = [...texts.filter(isSeveral), ...texts.filter((line) => !isSeveral(line))];
  const error = all.split("\n").find((line) => line.includes('"error"'));
  const partial = [answered[0], error, answered[1], answered[2]!.slice(0, -30)].join("\n");
  desk.write("out.jsonl", partial);
  // One of the failed lines has been corrected since.
  desk.lines("in.jsonl", [...lines.slice(0, -1), { id: "t", prompt: "x" }]);
  const resumed = await desk.run(input, ...out, "--resume");
  assertEquals(resumed.code, 1);
  assertStringIncludes(resumed.stderr, "1 of 8 requests failed");
  const after = desk.read("out.jsonl");
  assertEquals(after.length, 10);
  assert(
    Deno.readTextFileSync(desk.at("out.jsonl")).startsWith(`${answered[0]}\n${answered[1]}\n`),
  );
  const expected = byId(parse(all)).set("t", byId(after).get("t"));
  assertEquals([...byId(after)].sort(), [...expected].sort());
  assert(after.find(({ id }) => id === "t")?.text !== undefined);
  assertEquals([...Deno.readDirSync(desk.path)].length, 3, "a file is left over");

  assertEquals((await desk.run(input, ...out, "--overwrite")).code, 1);
  assertEquals(desk.read("out.jsonl").length, 10);
});

Deno.test("batch: --resume with --ordered keeps the order, including errors", async () => {
  using desk = new Desk();
  const input = desk.lines("in.jsonl", [...prompts(4), "broken", ...prompts(9).slice(4)]);
  const args = [input, "--ordered", "--resume", "-o", desk.at("out.jsonl")];
  assertEquals((await desk.run(args[0]!, ...args.slice(1))).code, 1);
  const all = Deno.readTextFileSync(desk.at("out.jsonl"));
  const lines = all.split("\n");
  desk.write("out.jsonl", `${lines.slice(0, 6).join("\n")}\n`);
  const resumed = await desk.run(args[0]!, ...args.slice(1));
  assertEquals(resumed.code, 1);
  assertEquals(desk.read("out.jsonl").map(({ id }) => id), parse(all).map(({ id }) => id));
});

Deno.test("batch: an output that cannot be resumed is rejected and left unchanged", async () => {
  using desk = new Desk();
  const input = desk.lines("in.jsonl", prompts(2));
  for (const content of ['{"id":"p0","prompt":"x"}\n', "text\n", "[1]\n", '{"text":"no id"}\n']) {
    const path = desk.write("other.jsonl", content);
    const { code, stderr } = await desk.run(input, "-o", path, "--resume");
    assertEquals(code, 1);
    assertMatch(stderr, /--resume cannot continue: line 1 of "[^"]*other\.jsonl"/);
    assertEquals(Deno.readTextFileSync(path), content);
  }
});

Deno.test("batch: usage errors say what is valid", async () => {
  using desk = new Desk();
  const input = desk.lines("in.jsonl", prompts(1));
  const cases: [string[], string][] = [
    [[input, "-p", "x"], "--batch"],
    [[input, "-"], "--batch"],
    [[input, "--resume"], "-o FILE"],
    [[input, "-o", input, "--resume"], "batch file itself"],
    [[input, "-o", desk.at("o"), "--resume", "--overwrite"], "not both"],
    [[input, "--shard", "3/2"], "1 to N"],
    [[input, "--parallel", "0"], "1 to 256"],
  ];
  for (const [[file = "", ...args], part] of cases) {
    const { code, stderr, stdout } = await desk.run(file, ...args);
    assertEquals([code, stdout], [2, ""], args.join(" "));
    assertStringIncludes(stderr, part);
  }
  const alone = await forge(["run", "-p", "x", "--ordered"]);
  assertEquals(alone.code, 2);
  assertStringIncludes(alone.stderr, "--ordered needs --batch");
  const missing = await desk.run(desk.at("none.jsonl"));
  assertEquals(missing.code, 1);
  assertStringIncludes(missing.stderr, "no such file");
});

Deno.test("batch: stdin to stdout, and shards that together cover all lines", async () => {
  using desk = new Desk();
  const input = desk.lines("in.jsonl", prompts(10));
  const shards = await Promise.all(["1/3", "2/3", "3/3"].map(async (shard) => {
    const { code, stdout } = await desk.run(input, "--shard", shard);
    assertEquals(code, 0);
    return parse(stdout);
  }));
  assertEquals(shards.map((lines) => lines.length), [4, 3, 3]);
  const args = ["run", "-m", desk.at("model"), "--batch", "-", "--temp", "0", "-n", "6"];
  const whole = await forge(args, { stdin: Deno.readTextFileSync(input) });
  assertEquals([...byId(shards.flat())].sort(), [...byId(parse(whole.stdout))].sort());
  const automatic = await forge([
    ...args.slice(0, 3),
    "--batch",
    input,
    "--shard",
    "auto",
    "-n",
    "1",
    // By chance, an answer would end with its first token.
    "--logit-bias",
    `${EOS}=-inf`,
    "--verbose",
  ], {
    env: {
      SLURM_ARRAY_TASK_ID: "12",
      SLURM_ARRAY_TASK_MIN: "11",
      SLURM_ARRAY_TASK_MAX: "13",
      SLURM_ARRAY_TASK_COUNT: "3",
    },
  });
  assertEquals(parse(automatic.stdout).map(({ id }) => id).sort(), ["p1", "p4", "p7"]);
  assertMatch(
    automatic.stderr,
    /^sampling .*\n3 requests answered, \d+ prompt tokens, 3 tokens in /m,
  );
});

Deno.test("batch: an answer is written at once, while the input continues", async () => {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, ["one ", "two"]);
  const child = startForge(["run", "-m", folder.path, "--batch", "-", "--temp", "0"], {
    stdin: "piped",
    stdout: "piped",
  });
  const writer = child.stdin.getWriter();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  for (const id of ["first", "second"]) {
    await writer.write(new TextEncoder().encode(`{"id":"${id}","prompt":"x"}\n`));
    const { value = "" } = await reader.read();
    assertEquals([JSON.parse(value).id, JSON.parse(value).text], [id, "one two"]);
  }
  await writer.close();
  assertEquals((await reader.read()).done, true);
  assertEquals((await child.status).code, 0);
});

Deno.test({
  name: "batch: killed at any moment and resumed, every id occurs exactly once",
  ignore: Deno.build.os === "windows",
  async fn() {
    using desk = new Desk();
    const kills = 8, linesEach = 50;
    const count = kills * linesEach;
    const lines = Array.from({ length: count }, (_, i) => ({ id: i, prompt: `prompt ${i}` }));
    const input = desk.lines("in.jsonl", lines);
    const text = Deno.readTextFileSync(input).split("\n");
    const output = desk.at("out.jsonl");
    const random = new Random("kills");
    const start = (batch: string) =>
      startForge(
        ["run", "-m", desk.at("model"), "--batch", batch, "-o", output, "--resume"]
          .concat("--device", "reference", "--temp", "0", "-n", "4"),
        { stdin: batch === "-" ? "piped" : "null" },
      );
    const size = () => {
      try {
        return Deno.statSync(output).size;
      } catch {
        return 0;
      }
    };
    for (let i = 0; i < kills; i++) {
      const child = start("-");
      const before = size();
      // More lines than before, and stdin stays open: the batch cannot end before the kill.
      const writer = child.stdin.getWriter();
      const part = text.slice(0, (i + 1) * linesEach).map((line) => `${line}\n`).join("");
      await writer.write(new TextEncoder().encode(part));
      // Kills it a moment after its first output.
      await until(() => size() > before);
      await new Promise((resolve) => setTimeout(resolve, random.int(0, 40)));
      child.kill(i % 2 === 0 ? "SIGKILL" : "SIGINT");
      assertEquals((await child.status).code, i % 2 === 0 ? 137 : 130);
      await writer.close().catch(() => {});
      // Simulates a kill between two parts of a write.
      if (random.int(0, 1) === 1) {
        Deno.truncateSync(output, Math.max(0, size() - random.int(1, 20)));
      }
    }
    assertEquals((await start(input).status).code, 0);
    const answers = desk.read("out.jsonl");
    assertEquals(answers.length, count);
    assertEquals(new Set(answers.map(({ id }) => id)).size, count);
    assert(answers.every(({ text }) => typeof text === "string"));
  },
});

Deno.test("batch: an output has only one writing process", async () => {
  using desk = new Desk();
  const output = desk.at("out.jsonl");
  const args = ["run", "-m", desk.at("model"), "--batch", "-", "-o", output, "-n", "1"];
  const child = startForge(args, { stdin: "piped" });
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode('{"prompt":"x"}\n'));
  await until(() => Deno.stat(output).then(({ size }) => size > 0, () => false));
  const input = desk.lines("in.jsonl", prompts(1));
  const { code, stderr } = await desk.run(input, "-o", output, "--resume");
  assertEquals(code, 1);
  assertStringIncludes(stderr, "is being written by another process");
  await writer.close();
  assertEquals((await child.status).code, 0);
  assertEquals(desk.read("out.jsonl").length, 1);
});

Deno.test("batch: no file that an option names is overwritten", async () => {
  using desk = new Desk();
  const input = desk.lines("in.jsonl", [{ prompt: "x" }]);
  const named = desk.write("named", "{}");
  const options = ["--json-schema", "--grammar", "--chat-template", "--lora", "--draft-model"];
  for (const option of options) {
    const given = option === "--lora" ? `style=${named}:0.5` : named;
    const { code, stderr } = await desk.run(input, option, given, "-o", named, "--overwrite");
    assertEquals([code, Deno.readTextFileSync(named)], [2, "{}"], option);
    assertStringIncludes(stderr, "is a file that is read");
  }
});

Deno.test("batch: the input file is never overwritten through any name or stream", async () => {
  using desk = new Desk();
  const text = `${JSON.stringify({ id: "a", prompt: "x" })}\n`;
  const input = desk.write("in.jsonl", text);
  Deno.linkSync(input, desk.at("hard.jsonl"));
  Deno.symlinkSync(input, desk.at("soft.jsonl"));
  const attempts = [
    `--batch in.jsonl -o hard.jsonl --overwrite`,
    `--batch soft.jsonl -o hard.jsonl --overwrite`,
    `--batch in.jsonl -o soft.jsonl --resume`,
    `--batch - -o in.jsonl --overwrite < in.jsonl`,
    `--batch /dev/stdin -o in.jsonl --overwrite < in.jsonl`,
    `--batch in.jsonl >> in.jsonl`,
  ];
  for (const attempt of attempts) {
    const program = [Deno.execPath(), ...denoArgs(["run", "-m", desk.at("model")])]
      .map((part) => `'${part}'`).join(" ");
    const { code, stderr } = await new Deno.Command("sh", {
      args: ["-c", `exec ${program} ${attempt}`],
      cwd: desk.path,
    }).output();
    assertEquals(code, 2, attempt);
    assertStringIncludes(new TextDecoder().decode(stderr), "is the batch file itself");
    assertEquals(Deno.readTextFileSync(input), text, attempt);
  }
});

Deno.test("batch: --resume keeps the permissions of the output and other files next to it", async () => {
  using desk = new Desk();
  const input = desk.lines("in.jsonl", prompts(2));
  const error = { id: "p0", error: { code: "device", message: "gone" }, line: 1 };
  const output = desk.lines("out.jsonl", [error]);
  Deno.chmodSync(output, 0o600);
  const other = desk.write("out.jsonl.part", "a file of the user's");
  assertEquals((await desk.run(input, "-o", output, "--resume")).code, 0);
  assertEquals(desk.read("out.jsonl").map(({ id }) => id).sort(), ["p0", "p1"]);
  assertEquals(Deno.statSync(output).mode! & 0o777, 0o600);
  assertEquals(Deno.readTextFileSync(other), "a file of the user's");
  const names = [...Deno.readDirSync(desk.path)].map(({ name }) => name).sort();
  assertEquals(names, ["in.jsonl", "model", "out.jsonl", "out.jsonl.part"]);
});
