/** Tests invalid input: one clear line of error and the right exit code. */
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { float32Tensor } from "../../src/formats/tensor_data.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { forge, type RunOptions } from "./forge.ts";
import { ROOT } from "../support/checkout.ts";
import { encodeGguf } from "../support/parts.ts";

/** Runs forge and expects a single line of error that contains all given parts. */
async function refused(
  args: readonly string[],
  code: number,
  says: readonly string[],
  options: RunOptions = {},
): Promise<void> {
  const outcome = await forge(args, options);
  assertEquals(outcome.stdout, "", args.join(" "));
  const [line = "", ...rest] = outcome.stderr.split("\n");
  assertEquals(rest, [""], `${args.join(" ")}: ${outcome.stderr}`);
  assertStringIncludes(line, "forge: error: ");
  for (const part of says) assertStringIncludes(line, part);
  assertEquals(outcome.code, code, line);
}

Deno.test("bad usage: flags, commands and values out of range", async () => {
  await refused(["run", "--tmep", "1"], 2, ["--tmep", "did you mean --temp?"]);
  await refused(["rnu"], 2, ["rnu", "did you mean run?"]);
  await refused(["show"], 2, ["show", "did you mean inspect?"]);
  await refused(["batch"], 2, ["batch", "did you mean run --batch?"]);
  await refused(["run", "-ngl", "99"], 2, ['unknown option "-ngl"', "--device"]);
  await refused(["run", "-p", "x", "--top-p", "1.5"], 2, ["--top-p", "1.5", "0 to 1"]);
  await refused(["run", "-p", "x", "--temp", "hot"], 2, ["--temp", "hot"]);
  await refused(["run", "-p", "x", "-n", "-3"], 2, ["--max-tokens", "-3"]);
  await refused(["run", "-p", "x", "-t", "0"], 2, ["--threads", "0"]);
  await refused(["run", "-p", "x", "--device", "gpu"], 2, ["gpu", "cpu"]);
  await refused(["run", "-p", "x", "-f", "y"], 2, ["once"]);
  await refused(["run", "-p", "x", "--logprobs", "3"], 2, ["--logprobs", "--json"]);
  await refused(["chat", "--web", "--json-schema", "{}"], 2, ["--json-schema cannot be used"]);
  await refused(["run"], 2, ["no prompt"]);
  await refused(["run", "-"], 2, ["stdin is empty"]);
});

Deno.test("bad models: missing, empty, truncated, of unknown format or architecture", async () => {
  using folder = new TempFolder();
  const llama = writeRandomLlama(folder.at("model")).folder;
  const run = (model: string) => ["run", "-p", "x", "-m", model];
  await refused(run(folder.at("nothing.gguf")), 1, ["nothing.gguf"]);
  await refused(run(folder.at("modle")), 1, ["modle", `did you mean "${folder.at("model")}"?`]);
  await refused(run("no-such-model"), 1, ["no-such-model", ".gguf file"]);
  await refused(run(""), 1, ['no such model: ""']);
  Deno.mkdirSync(folder.at("empty"));
  await refused(run(folder.at("empty")), 1, ["config.json"]);
  await refused(run(folder.write("empty.gguf", "")), 1, ["empty.gguf", "empty"]);
  await refused(run(folder.write("text.gguf", "not a model at all")), 1, ["GGUF"]);
  const pointer = folder.write("lfs.gguf", "version https://git-lfs.github.com/spec/v1\noid …");
  await refused(run(pointer), 1, ["lfs.gguf", "git lfs pull"]);
  await refused(run(folder.path), 1, [`give its path: ${JSON.stringify(folder.at("empty.gguf"))}`]);

  const weights = Deno.readFileSync(`${llama}/model.safetensors`);
  Deno.writeFileSync(`${llama}/model.safetensors`, weights.subarray(0, weights.length - 100));
  await refused(run(llama), 1, ["model.safetensors"]);

  const gguf = encodeGguf({
    metadata: { "general.architecture": ["string", "alien"] },
    tensors: [float32Tensor("x", [4], [1, 2, 3, 4])],
  });
  const alien = folder.write("alien.gguf", gguf);
  await refused(run(alien), 1, ["alien", "llama", "qwen3"]);
  await refused(run(folder.write("cut.gguf", gguf.subarray(0, gguf.length - 8))), 1, ["cut.gguf"]);
});

Deno.test("bad models: NaN weights are found and named", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, {
    change: (tensors) =>
      tensors.map((tensor) => {
        if (tensor.name !== "model.layers.1.mlp.up_proj.weight") return tensor;
        const [rows, cols] = tensor.shape;
        const values = new Float32Array(rows! * cols!).fill(0.01);
        values[cols! + 3] = NaN;
        return float32Tensor(tensor.name, tensor.shape, values);
      }),
  });
  await refused(["run", "-m", folder.path, "-p", "x"], 1, ["mlp.up_proj.weight", "NaN"]);
});

Deno.test("bad models: missing tensors and shapes that contradict the config", async () => {
  using folder = new TempFolder();
  const lacks = writeRandomLlama(folder.at("lacks"), {
    change: (tensors) => tensors.filter(({ name }) => !name.includes("1.self_attn.k_proj")),
  });
  await refused(["run", "-m", lacks.folder, "-p", "x"], 1, ["k_proj"]);
  const wrong = writeRandomLlama(folder.at("wrong"), { config: { intermediate_size: 128 } });
  await refused(["run", "-m", wrong.folder, "-p", "x"], 1, ["gate_proj", "128"]);
});

Deno.test("bad prompts: too long, empty once tokenised, not UTF-8", async () => {
  using folder = new TempFolder();
  const llama = writeRandomLlama(folder.at("model"), { contextLength: 64 }).folder;
  const run = ["run", "-m", llama];
  await refused([...run, "-p", "x", "y"], 2, ["give the prompt once"]);
  await refused([...run, "-f", "x", "y"], 2, ["give the prompt once"]);
  await refused([...run, "-p", "x".repeat(500)], 1, ["501", "64"]);
  await refused([...run, "-c", "65", "-p", "x"], 2, ["65", "64"]);
  const noBos = writeRandomLlama(folder.at("no-bos"), {
    tokenizerConfig: { add_bos_token: false },
  }).folder;
  await refused(["run", "-m", noBos, "-p", ""], 1, ["empty"]);
  assertEquals((await forge([...run, "-p", "", "-n", "1"])).code, 0);
  const broken = { stdin: Uint8Array.of(0x41, 0xff, 0xfe) };
  await refused([...run, "-"], 1, ["stdin", "UTF-8"], broken);
  await refused([...run, "-f", folder.write("broken.txt", broken.stdin)], 1, ["UTF-8"]);
  await refused([...run, "-f", folder.at("missing.txt")], 1, ["missing.txt"]);
  await refused([...run, "-p", "x", "--system", "y"], 1, ["system"]);
});

Deno.test("bad permissions: one line names the missing permission and the right command", async () => {
  for (const granted of [[], ["--allow-env"], ["--allow-env", "--allow-read"]]) {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "--quiet", "--no-prompt", "--config", `${ROOT}/deno.json`]
        .concat(granted, `${ROOT}/main.ts`, "run", "-p", "x"),
      env: { NO_COLOR: "1" },
    }).output();
    const text = new TextDecoder().decode(stderr);
    assertEquals([code, stdout.length], [1, 0], text);
    assertMatch(text, /^forge: error: Deno: Requires .* access.*deno run -P=forge main\.ts\n$/);
  }
});
