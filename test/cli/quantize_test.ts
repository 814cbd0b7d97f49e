/** Tests `forge quantize`: its output, its errors, and files that forge runs. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { writeImportance } from "../../src/formats/gguf/importance.ts";
import { readGguf } from "../../src/formats/gguf/gguf.ts";
import { quantize } from "../../src/mod.ts";
import { ROOT } from "../support/checkout.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { until } from "../support/wait.ts";
import { forge, startForge } from "./forge.ts";

const DEMO = join(ROOT, "models", "demo");

Deno.test("quantize: writes a file that runs, and says what it holds", async () => {
  using folder = new TempFolder();
  const path = folder.at("demo.gguf");
  const written = await forge(["quantize", DEMO, path, "--type", "Q8_0", "-t", "2"]);
  assertEquals([written.code, written.stderr], [0, ""]);
  assertEquals(
    written.stdout,
    `written          ${path}\n` +
      "size             2.00 MB of 4.51 MB\n" +
      "bits per weight  8.80\n" +
      "types            Q8_0 in 29 tensors, F32 in 9 tensors\n",
  );
  const args = ["run", "--device", "cpu", "-p", "Once upon a time", "-n", "12", "--temp", "0"];
  const own = await forge([...args, "-m", DEMO, "--quantize", "Q8_0"]);
  const run = await forge([...args, "-m", path]);
  assertEquals([run.code, run.stdout], [0, own.stdout]);
  const { stdout } = await forge(["inspect", path, "--json"]);
  assertEquals(JSON.parse(stdout).problem, null);
});

Deno.test("quantize: what cannot be done is an error of one line", async () => {
  using folder = new TempFolder();
  const path = folder.write("model.gguf", "old");
  writeRandomLlama(folder.at("other"), { config: { model_type: "gemma4_text" } });
  for (
    const [args, code, message] of [
      [[DEMO], 2, "OUT"],
      [[DEMO, path], 2, "exists already; --overwrite replaces it"],
      [[DEMO, folder.at("x.gguf"), "--type", "Q4_K"], 2, "Q4_K_M"],
      [[folder.at("missing"), folder.at("x.gguf")], 1, "no such"],
      [[folder.at("other"), folder.at("x.gguf")], 1, 'has the architecture "gemma4_text"'],
    ] as const
  ) {
    const result = await forge(["quantize", ...args]);
    assertEquals([result.code, result.stdout], [code, ""], result.stderr);
    assertStringIncludes(result.stderr, message);
  }
  const { code, stdout } = await forge(["quantize", DEMO, path, "--overwrite", "--json"]);
  assertEquals(code, 0);
  const { type, types, bytes } = JSON.parse(stdout);
  assertEquals([type, types], ["Q4_K_M", { Q8_0: 5, F32: 9, Q5_0: 24 }]);
  assertEquals(bytes, Deno.statSync(path).size);
});

Deno.test({
  name: "quantize: SIGTERM leaves no unfinished file",
  ignore: Deno.build.os === "windows",
  async fn() {
    using folder = new TempFolder();
    const output = folder.at("model.gguf");
    const child = startForge(["quantize", DEMO, output, "--type", "Q2_K", "-t", "1"]);
    let isRunning = true;
    child.status.finally(() => isRunning = false);
    const files = () => Array.from(Deno.readDirSync(folder.path), ({ name }) => name);
    await until(() => !isRunning || files().length > 0);
    child.kill("SIGTERM");
    assertEquals((await child.status).code, 130);
    assertEquals(files(), []);
  },
});

Deno.test("no output replaces a file that is read", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const file = folder.at("file.gguf"), link = folder.at("link.gguf");
  await quantize(DEMO, file, { type: "Q8_0" });
  Deno.linkSync(file, link);
  const config = folder.at("model", "config.json");
  const text = folder.write("text.txt", '{"prompt": "Once upon a time"}\n');
  const matrix = folder.at("matrix.gguf");
  const importance = { sums: new Float32Array(8), counts: new Float32Array(1) };
  const measured = { dataset: text, chunks: 1, chunkTokens: 8 };
  writeImportance(matrix, new Map([["blk.0.attn_q.weight", importance]]), measured);
  const perplexity = ["perplexity", "-f", text, "--device", "cpu"];
  for (
    const [output, args] of [
      [link, ["quantize", file, link, "--overwrite"]],
      [config, ["quantize", folder.at("model"), config, "--overwrite"]],
      [matrix, ["quantize", DEMO, matrix, "--overwrite", "--imatrix", matrix]],
      [text, [...perplexity, "-m", file, "--imatrix", text]],
      [link, [...perplexity, "-m", file, "--imatrix", link]],
      [link, ["run", "-m", file, "--batch", text, "-o", link, "--overwrite"]],
      [config, ["run", "-m", folder.at("model"), "-p", "Hi", `--profile=${config}`]],
    ] as const
  ) {
    const before = Deno.readFileSync(output);
    const { code, stdout, stderr } = await forge(args);
    assertEquals([code, stdout], [2, ""], stderr);
    assertStringIncludes(stderr, `"${output}" is a file that is read; name another one to write`);
    assertEquals(Deno.readFileSync(output), before);
  }
  // Adapters are not part of what is measured.
  const { code, stderr } = await forge([...perplexity, "--imatrix", "im", "--lora", "adapter"]);
  assertEquals([code, stderr.includes("leave --lora out")], [2, true]);
});

Deno.test("quantize: a GGUF file written again keeps its settings, names and shapes", async () => {
  using folder = new TempFolder();
  const [plain, again, twice] = ["F32", "F16", "Q8_0"].map((type) => folder.at(`${type}.gguf`));
  await quantize(DEMO, plain!, { type: "F32" });
  await quantize(plain!, again!, { type: "F16" });
  await quantize(again!, twice!, { type: "Q8_0" });
  const facts = (path: string) => {
    const { metadata, tensors } = readGguf(path);
    const settings = Array.from(metadata)
      .filter(([key]) => !/^general\.(file_type|quantization_version)$/.test(key));
    return {
      settings: settings.toSorted(([a], [b]) => a < b ? -1 : 1),
      shapes: Array.from(tensors.values(), ({ name, shape }) => [name, shape]),
    };
  };
  const expected = facts(plain!);
  assertEquals(expected.settings.length > 10, true);
  assertEquals(facts(again!), expected);
  assertEquals(facts(twice!), expected);
  const types = [plain, again, twice].map((path) => {
    const { tensors, metadata } = readGguf(path!);
    return [tensors.get("blk.0.attn_q.weight")!.type, metadata.get("general.file_type")];
  });
  assertEquals(types, [["F32", 0], ["F16", 1], ["Q8_0", 7]]);
});

Deno.test("quantize: takes the importances that perplexity measures", async () => {
  using folder = new TempFolder();
  const text = folder.write("text.txt", "Once upon a time there was a little girl. ".repeat(20));
  const matrix = folder.at("im.gguf");
  const measure = ["perplexity", "-m", DEMO, "-f", text, "-c", "100", "--device", "cpu"];
  const { code, stderr, stdout } = await forge([...measure, "--imatrix", matrix]);
  assertEquals([code, stderr], [0, ""]);
  const plain = await forge([...measure, "--kv-type", "F32"]);
  assertEquals(stdout, plain.stdout);
  const write = ["quantize", DEMO, "--type", "Q4_0"];
  const path = folder.at("weighted.gguf");
  assertEquals((await forge([...write, path, "--imatrix", matrix])).code, 0);
  assertEquals(readGguf(path).metadata.get("quantize.imatrix.file"), matrix);
  const wrong = await forge([...write, folder.at("x.gguf"), "--imatrix", text]);
  assertEquals(wrong.code, 1);
  assertStringIncludes(wrong.stderr, "cannot be read as an importance matrix");
});
