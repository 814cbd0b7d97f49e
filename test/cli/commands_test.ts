import {
  assert,
  assertAlmostEquals,
  assertEquals,
  assertMatch,
  assertStringIncludes,
} from "@std/assert";
import { join } from "@std/path";
import { SYNTHETIC_NAMES } from "../../src/bench/synthetic/shapes.ts";
import { float32Tensor } from "../../src/formats/tensor_data.ts";
import { load } from "../../src/mod.ts";
import { writeEncoder } from "../models/encoders/encoders.ts";
import { filesBelow, ROOT } from "../support/checkout.ts";
import { writeModelFolder } from "../support/safetensors_writer.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { BOS, writeLlamaAdapter, writeRandomLlama } from "../support/tiny_llama.ts";
import { forge } from "./forge.ts";
import { hasTerminals, Terminal } from "./terminal.ts";

async function output(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await forge(args);
  assertEquals({ code, stderr }, { code: 0, stderr: "" });
  return stdout;
}

Deno.test("help: every command has a help text within 100 columns", async () => {
  assertStringIncludes(await output("run", "--help"), " --profile[=FILE] ");
  const overview = await output("--help");
  const commands = [...overview.matchAll(/^ {2}([a-z]+) {2,}\S/gm)].map((match) => match[1]!);
  assert(commands.includes("run") && commands.includes("doctor"), overview);
  for (const command of commands) {
    const help = await output(command, "--help");
    assertStringIncludes(help, `Usage: forge ${command}`);
    for (const line of help.split("\n")) assert(line.length <= 100, line);
    assert(!/ or \w+ or /.test(help), "choices are a list with one or");
    const [, first = "-m"] = /^Model:\n +(\S+?),/m.exec(help) ?? [];
    assert(["-m", "-t"].includes(first), `${command}: ${first} precedes the model`);
  }
  assertMatch(await output("--version"), /^\D*\d+\.\d+\.\d+/);
});

const TINY_LLAMA = `\
model             PATH
format            safetensors, 297 kB of tensors
architecture      llama
forge can run it  yes
parameters        74.2 thousand (74176)
layers            2
hidden size       64
MLP size          96
attention         4 heads, 2 of keys and values, 16 wide
context           256 tokens
RoPE              base 10000
types             F32 297 kB in 21

Tensors
model.embed_tokens.weight                            F32  [97, 64]  24.8 kB
model.layers.*.input_layernorm.weight           2 ×  F32  [64]        512 B
model.layers.*.self_attn.q_proj.weight          2 ×  F32  [64, 64]  32.8 kB
model.layers.*.self_attn.k_proj.weight          2 ×  F32  [32, 64]  16.4 kB
model.layers.*.self_attn.v_proj.weight          2 ×  F32  [32, 64]  16.4 kB
model.layers.*.self_attn.o_proj.weight          2 ×  F32  [64, 64]  32.8 kB
model.layers.*.post_attention_layernorm.weight  2 ×  F32  [64]        512 B
model.layers.*.mlp.gate_proj.weight             2 ×  F32  [96, 64]  49.2 kB
model.layers.*.mlp.up_proj.weight               2 ×  F32  [96, 64]  49.2 kB
model.layers.*.mlp.down_proj.weight             2 ×  F32  [64, 96]  49.2 kB
model.norm.weight                                    F32  [64]        256 B
lm_head.weight                                       F32  [97, 64]  24.8 kB

Tokenizer
kind            byte-level BPE, 97 tokens
BOS             0 "<s>", added before a text
ends an answer  1 "</s>"

Chat template
{{ messages[0].content }}

Memory
weights       297 kB, from the mapped file
KV cache      256 kB for 1000 tokens, as F16
activations   about 525 kB
total         about 888 kB at the default context of 256 tokens
this machine  …
`;

const ADAPTER = `\
adapter   PATH/adapter
kind      LoRA, peft, 8.19 kB of tensors
matrices  4: o_proj, q_proj
ranks     4
use       forge run -m MODEL --lora PATH
`;

const UNKNOWN_MODEL = `\
model             PATH
format            safetensors, 1.46 kB of tensors
architecture      none
forge can run it  no: …
parameters        366 (366)
layers            3
hidden size       90
attention         1 head, 1 of keys and values, 90 wide
experts           8, 4 used for each token
context           100 tokens
sliding window    64 tokens
RoPE              base by default, linear scaling
types             F32 1.46 kB in 4

Tensors
a.*.b.*.weight  2 ×  F32  [4, 8]    256 B
a.*.b.*.bias         F32  [300]   1.20 kB
x.1                  F32  [2]         8 B

Tokenizer
kind  none that forge supports

Chat template
1
2
3
4
5
6
7
\\u{1b}8
… (--template prints all)

Memory
weights       1.46 kB, from the mapped file
KV cache      1.08 MB for 1000 tokens, as F16
this machine  …
`;

/** Removes what differs between machines from the text of `forge inspect`. */
function withoutPlaces(text: string, path: string): string {
  return text.replaceAll(path, "PATH").replace(
    /^(this machine +|forge can run it +no: ).*$/gm,
    "$1…",
  );
}

Deno.test("inspect: describes a model that forge cannot run", async () => {
  using folder = new TempFolder();
  const tensor = (name: string, ...shape: number[]) =>
    float32Tensor(name, shape, new Float32Array(shape.reduce((a, b) => a * b)));
  const sizes = { num_hidden_layers: 3, hidden_size: 90, num_attention_heads: 1 };
  const experts = { num_experts: 8, num_experts_per_tok: 4 };
  const context = { max_position_embeddings: 100, sliding_window: 64 };
  const rope_scaling = { type: "linear", factor: 2 };
  const config = { model_type: "none", ...sizes, ...experts, ...context, rope_scaling };
  const template = "1\n2\n3\n4\n5\n6\n7\n\x1b8\n9";
  const files = { "config.json": config, "chat_template.jinja": template };
  const tensors = [tensor("a.0.b.1.weight", 4, 8), tensor("a.1.b.7.weight", 4, 8)];
  writeModelFolder(folder.path, files, [...tensors, tensor("a.1.b.7.bias", 300), tensor("x.1", 2)]);
  const inspect = async (...args: string[]) =>
    withoutPlaces(await output("inspect", folder.path, ...args), folder.path);
  assertEquals(await inspect(), UNKNOWN_MODEL);
  const { multi_token_prediction, unused_tensors, tokenizer } = JSON.parse(await inspect("--json"));
  assertEquals([multi_token_prediction, unused_tensors, tokenizer], [false, [], null]);
  const all = (await inspect("--tensors")).split("\n");
  assertEquals(all.slice(all.indexOf("Tensors") + 1, all.indexOf("Tokenizer") - 1), [
    "a.0.b.1.weight  F32  [4, 8]    128 B",
    "a.1.b.7.weight  F32  [4, 8]    128 B",
    "a.1.b.7.bias    F32  [300]   1.20 kB",
    "x.1             F32  [2]         8 B",
  ]);
  for (
    const [template, shown] of [
      ["1\n2\n3\n4\n5\n6\n7\n8", "1\n2\n3\n4\n5\n6\n7\n8\n"],
      ["x".repeat(99), `${"x".repeat(99)}\n`],
      ["x".repeat(101), `${"x".repeat(100)}\n… (--template prints all)\n`],
    ] as const
  ) {
    folder.write("chat_template.jinja", template);
    assertStringIncludes(await inspect(), `Chat template\n${shown}\nMemory\n`);
  }
  // Rows without a value are left out.
  folder.write("config.json", { model_type: "none", ...sizes });
  assert(!/^(RoPE|experts|context|sliding window) /m.test(await inspect()));
});

Deno.test("inspect: describes a model and its memory, as text and as JSON", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { chatTemplate: "{{ messages[0].content }}" });
  const text = await output("inspect", folder.path);
  assertEquals(withoutPlaces(text, folder.path), TINY_LLAMA);
  assertStringIncludes(await output("inspect", folder.path, "--tensors"), "layers.1.mlp.down_proj");
  assertEquals(await output("inspect", folder.path, "--template"), "{{ messages[0].content }}");
  const tokenizer = JSON.parse(Deno.readTextFileSync(folder.at("tokenizer_config.json")));
  folder.write("tokenizer_config.json", { ...tokenizer, bos_token: null, add_bos_token: false });
  assert(!/^BOS /m.test(await output("inspect", folder.path)));
  folder.write("tokenizer_config.json", tokenizer);
  const facts = JSON.parse(await output("inspect", "-m", folder.path, "--json"));
  assertEquals(facts.architecture, "llama");
  writeLlamaAdapter(folder.at("adapter"));
  assertEquals(withoutPlaces(await output("inspect", folder.at("adapter")), folder.path), ADAPTER);
  const { path: _, ...adapter } = JSON.parse(
    await output("inspect", folder.at("adapter"), "--json"),
  );
  assertEquals(adapter, {
    adapter: "lora",
    format: "safetensors",
    architecture: null,
    base_model: null,
    matrices: 4,
    ranks: [4],
    modules: ["o_proj", "q_proj"],
    bytes: 4 * 4 * 2 * 4 * 64,
  });
  assert(facts.parameters > 0 && facts.bytes === 4 * facts.parameters);
  assertEquals(facts.embedding, null);
  assertEquals([facts.replicas, facts.tensors], [undefined, undefined]);
  const { tensors } = JSON.parse(await output("inspect", folder.path, "--json", "--tensors"));
  assertEquals(tensors.length, 21);
  for (const [flag, part] of [["--pipeline-parallel", "stage"], ["--tensor-parallel", "part"]]) {
    const text = await output("inspect", folder.path, "--devices", "cpu,cpu", flag!, "2");
    const rows = text.match(/^replica .*?(?= {2})/gm);
    assertEquals(rows, [`replica 1, ${part} 1`, `replica 1, ${part} 2`]);
  }
  const divided = ["inspect", folder.path, "--devices", "cpu,cpu"];
  assertMatch(
    await output(...divided),
    /replica 1 {2}[^]*\nreplica 2 +.+ free: .+ of weights and a KV cache of \d+ tokens fit\n/,
  );
  const { replicas } = JSON.parse(await output(...divided, "--json"));
  assertEquals([replicas.length, replicas[1].weights], [2, facts.memory.weights]);
  assert(replicas[0].free <= replicas[0].total / 2);
  assertEquals(facts.multi_token_prediction, false);
  writeRandomLlama(folder.path, { predictor: true });
  assertMatch(await output("inspect", folder.path), /draft tokens +by a layer for multi-token/);
  const predicting = JSON.parse(await output("inspect", folder.path, "--json"));
  assertEquals(predicting.unused_tensors, []);
  assertEquals(predicting.memory.weights, predicting.bytes);
  const config = JSON.parse(Deno.readTextFileSync(folder.at("config.json")));
  folder.write("config.json", { ...config, model_type: "none", max_position_embeddings: null });
  assert(!/^(context|total) /m.test(await output("inspect", folder.path)));
  folder.write("config.json", config);
  folder.write("1_Pooling/config.json", { pooling_mode_mean_tokens: true });
  assertMatch(await output("inspect", folder.path), /embeds by +the mean of all tokens\n/);
  const modules = [{ type: "models.Transformer" }, { type: "models.Pooling", path: "1_Pooling" }];
  folder.write("modules.json", modules);
  assertMatch(await output("inspect", folder.path), / the mean of all tokens, not normalised\n/);
  folder.write("modules.json", [...modules, { type: "models.Normalize" }]);
  assertMatch(await output("inspect", folder.path), / the mean of all tokens, normalised\n/);
});

Deno.test("tokenize: gives ids and pieces, and turns ids back into text", async () => {
  using folder = new TempFolder();
  const { idOf } = writeRandomLlama(folder.path);
  const ids = await output("tokenize", "-m", folder.path, "--no-special", "--ids", "ab");
  assertEquals(ids, `${idOf("a")} ${idOf("b")}\n`);
  const { ids: all, pieces } = JSON.parse(
    await output("tokenize", "-m", folder.path, "--json", "ab"),
  );
  assertEquals([all.length, pieces], [3, ["<s>", "a", "b"]]);
  assertEquals(
    await output("tokenize", "-m", folder.path, "ab"),
    ` 0  "<s>"\n${idOf("a")}  "a"\n${idOf("b")}  "b"\n`,
  );
});

Deno.test("tokenize: pieces are shown as text, parts of characters as bytes", async () => {
  const lines = await output("tokenize", "--no-special", "hello  world é\n");
  const shown = lines.split("\n").slice(0, -1).map((line) => line.trim().replace(/^\d+ +/, ""));
  const pieces = shown.map((piece) => piece.startsWith('"') ? JSON.parse(piece) : piece);
  assertEquals(
    pieces.join("|").replace(/bytes c3\|bytes a9/, "é").replaceAll("|", ""),
    "hello  world é\n",
  );
});

Deno.test("tokenize, embed: the model may be an argument, and an empty stdin is rejected", async () => {
  using folder = new TempFolder();
  const { idOf } = writeRandomLlama(folder.path);
  const ids = await output("tokenize", folder.path, "ab", "--no-special", "--ids");
  assertEquals(ids, `${idOf("a")} ${idOf("b")}\n`);
  for (const operands of [[], ["-"]]) {
    const args = ["tokenize", folder.path, ...operands, "--no-special", "--ids"];
    const piped = await forge(args, { stdin: "ba" });
    assertEquals(piped.stdout, `${idOf("b")} ${idOf("a")}\n`);
  }
  // A word that cannot be a model is a text for the demo model.
  assertEquals(JSON.parse(await output("embed", "Once", "--dimensions", "2")).embedding.length, 2);
  assertEquals(JSON.parse(await output("embed", folder.path, "ab")).tokens, 3);
  const text = folder.write("text.txt", "ab");
  for (const source of ["-f", "--lines"]) {
    assertEquals(JSON.parse(await output("embed", folder.path, source, text)).tokens, 3);
  }
  for (const args of [["embed"], ["embed", folder.path], ["embed", "-"]]) {
    const { code, stdout, stderr } = await forge(args, { stdin: "" });
    assertEquals([code, stdout], [2, ""], args.join(" "));
    assertStringIncludes(stderr, "stdin is empty");
  }
  const missing = await forge(["tokenize", "missing.gguf"]);
  assertEquals([missing.code, missing.stdout], [2, ""]);
  assertStringIncludes(missing.stderr, "a text or a model?");
});

Deno.test("perplexity: the result is the mean over windows", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const file = folder.write("text.txt", "some words to score, over and over. ".repeat(8));
  const args = ["perplexity", "-m", folder.at("model"), "-f", file, "-c", "64", "--json"];
  const plot = ["--plot", folder.at("loss.html")];
  const result = JSON.parse(await output(...args, "--kv-type", "F32", ...plot));
  assertEquals(result.window_size, 64);
  // The tiny vocabulary has a token for each of 288 characters, and each window begins with BOS.
  assertEquals([result.windows, result.tokens], [5, 288]);
  await using model = await load(folder.at("model"), { kvType: "F32" });
  const all = model.tokenizer.encode(Deno.readTextFileSync(file), { addSpecial: false });
  const scores: number[] = [];
  for (let at = 0; at < all.length; at += 63) {
    scores.push(...await model.score(Int32Array.of(BOS, ...all.subarray(at, at + 63))));
  }
  const nll = -scores.reduce((sum, score) => sum + score) / 288;
  const variance = scores.reduce((sum, score) => sum + (score + nll) ** 2, 0) / 287;
  const error = Math.sqrt(variance / 288);
  assertAlmostEquals(result.nll, nll, 1e-6);
  assertAlmostEquals(result.nll_error, error, 1e-6);
  assertAlmostEquals(result.perplexity, Math.exp(nll), 1e-3);
  assertAlmostEquals(result.perplexity_error / result.perplexity, error, 1e-6);
  const reference = JSON.parse(await output(...args, "--device", "reference"));
  assertAlmostEquals(result.perplexity / reference.perplexity, 1, 1e-4);
  assert(result.nll_error > 0 && result.nll_error < result.nll);
  const { perplexity, perplexity_error } = reference;
  assertEquals(
    await output(...args.slice(0, -1), "--device", "reference"),
    `perplexity  ${perplexity.toFixed(4)} ± ${perplexity_error.toFixed(4)}\n` +
      `nll         ${reference.nll.toFixed(5)} ± ${
        reference.nll_error.toFixed(5)
      } nats per token\n` +
      "scored      288 tokens in 5 windows of 64\n",
  );

  assertStringIncludes(
    Deno.readTextFileSync(folder.at("loss.html")),
    "position in the window</text>",
  );
  // By default it is as long as the context, if that is short.
  const whole = JSON.parse(
    await output("perplexity", "-m", folder.at("model"), "-f", file, "--json"),
  );
  assertEquals([whole.window_size, whole.windows], [256, 2]);
  // A window may be longer than the default one.
  writeRandomLlama(folder.at("long"), { contextLength: 1024 });
  folder.write("text.txt", "a".repeat(700));
  const wide = ["perplexity", "-m", folder.at("long"), "-f", file, "--json"];
  const { window_size, windows } = JSON.parse(await output(...wide, "-c", "600"));
  assertEquals([window_size, windows], [600, 2]);
  const empty = await forge([
    "perplexity",
    "-m",
    folder.at("model"),
    "-f",
    folder.write("none", ""),
  ]);
  assertEquals([empty.code, empty.stdout], [1, ""]);
  assertStringIncludes(empty.stderr, "the text has 0 tokens, too few to score");
  // The error of a single token is unknown: nothing deviates from it.
  folder.write("text.txt", "a");
  const one = JSON.parse(await output(...args));
  assertEquals([one.tokens, one.windows, one.nll_error, one.perplexity_error], [1, 1, 0, 0]);
  const { code, stderr } = await forge([...args, "--plot", "loss.png"]);
  assertEquals([code, stderr], [
    2,
    'forge: error: --plot is "loss.png"; valid is a name ending in .svg or .html\n',
  ]);
});

Deno.test("doctor: finds the libraries of this tree", async () => {
  const report = JSON.parse(await output("doctor", "--json"));
  const text = await output("doctor");
  assertStringIncludes(JSON.stringify(report), "libforge_cpu");
  const kinds = report.libraries.map(({ kind }: { kind: string }) => kind);
  const isMac = Deno.build.os === "darwin";
  assertEquals(
    kinds.toSorted(),
    isMac ? ["cpu", "metal", "reference"] : ["cpu", "cuda", "reference"],
  );
  const cpu = report.libraries.find(({ kind }: { kind: string }) => kind === "cpu");
  assert(cpu.found.value.devices.includes("cpu:portable"), text);
  const { features } = cpu.found.value.device;
  assertStringIncludes(text, features.length > 0 ? ` (${features.join(" ")}): ` : "cpu device ");
  const reference = report.libraries.find(({ kind }: { kind: string }) => kind === "reference");
  assertEquals(reference.found.value.devices, ["reference"]);
  assertStringIncludes(text, "plain float32 reference: reference kernels, 1 thread\n");
  for (const { kind, path, found } of report.libraries) {
    const shown = found.ok ? `${path}, version ` : path === null ? "not built; searched " : path;
    assertMatch(text, new RegExp(`^${kind} library +${RegExp.escape(shown)}`, "m"));
  }
  assertMatch(text, /^Models can run; valid for --device: .*\bcpu:portable, /m);
});

Deno.test("doctor: names every permission that is not granted, and says what it is for", async () => {
  const READ = "read: model files in any folder";
  const WRITE = "write: building libraries, downloading models";
  const doctor = async (...granted: string[]) => {
    const flags = ["run", "--quiet", "--no-prompt", "--allow-env", ...granted];
    const { code, stdout } = await new Deno.Command(Deno.execPath(), {
      args: [...flags, join(ROOT, "main.ts"), "doctor", "--json"],
    }).output();
    const report = JSON.parse(new TextDecoder().decode(stdout));
    return {
      code,
      ready: report.ready,
      memory: report.memory,
      missing: report.missing_permissions,
    };
  };
  const all = await doctor("--allow-read", "--allow-write", "--allow-ffi", "--allow-sys");
  assertEquals([all.code, all.ready, all.missing], [0, true, []]);
  assertEquals(all.memory, Deno.systemMemoryInfo().total);
  const ffi = await doctor("--allow-ffi", `--allow-read=${ROOT}`);
  assertEquals(ffi, { code: 0, ready: true, memory: null, missing: [READ, WRITE] });
  const files = await doctor("--allow-read", "--allow-write");
  assertEquals([files.code, files.ready], [1, false]);
  assert(files.missing.length >= 1);
  for (const line of files.missing) {
    assertMatch(line, /^ffi: the native library \/.*libforge_\w+\.\w+$/);
  }
});

Deno.test("doctor: a tree without libraries is ready if they can be built", async () => {
  using folder = new TempFolder();
  const files = ["main.ts", "deno.json", "deno.lock", "csrc/forge.h"];
  for (const path of [...files, ...filesBelow("src", ""), ...filesBelow("ffi", "")]) {
    folder.write(path, Deno.readFileSync(join(ROOT, path)));
  }
  const doctor = async (CXX = "") => {
    const options = { root: folder.path, env: { CXX, FORGE_LIBRARY_PATH: folder.path } };
    const { code, stdout } = await forge(["doctor"], options);
    return { code, stdout };
  };
  const ready = await doctor();
  assertEquals(ready.code, 0);
  assert(!ready.stdout.includes("not needed"), ready.stdout);
  assertMatch(ready.stdout, /^cpu library +not built; searched \S+, \S+, \S+$/m);
  assertMatch(ready.stdout, /^Models can run; the next run builds the library\.$/m);
  const withoutCompiler = await doctor("no-such-compiler");
  assertEquals(withoutCompiler.code, 1);
  assertMatch(withoutCompiler.stdout, /^No model can run, for the reasons above\.$/m);
  // A file that is no library is neither used nor replaced.
  for (const [path] of ready.stdout.matchAll(/(?<=searched )[^,]+/g)) {
    Deno.writeTextFileSync(path, "?");
  }
  const broken = await doctor();
  assertEquals(broken.code, 1);
  assertMatch(broken.stdout, /^cpu library .*libforge_cpu/m);
  assertMatch(broken.stdout, /^No model can run, for the reasons above\.$/m);
});

Deno.test("completions: the script of every shell names the commands", async () => {
  for (const shell of ["bash", "zsh", "fish"]) {
    const script = await output("completions", shell);
    for (const word of ["perplexity", "top-p"]) assertStringIncludes(script, word);
  }
  const zsh = await output("completions", "zsh");
  for (
    const option of [
      "'*--seed=[seed of the random choices, to repeat them]:N: '",
      "'*--kv-type=[type of the KV cache]:TYPE:(F16 BF16 F32 Q8_0 Q4_0)'",
      "'*--plot=[also draw the results to FILE.svg or FILE.html]:FILE:_files'",
      "'*--ctx=[context length\\: tokens of prompt and answer together]:N: '",
      "'*--verbose[print details to stderr, including the causes of errors]'",
      "'*-s[seed of the random choices, to repeat them]:N: '",
      "trace that Perfetto and Chrome open]::FILE:_files'",
      "'*--profile=-[print to stderr",
    ]
  ) {
    assertStringIncludes(zsh, option);
  }
  const commands = zsh.split("\n").map((line) => line.trim());
  for (
    const [name, operands] of [
      ["doctor", "'*:text: ' ;;"],
      ["tokenize", "'*:file:_files' ;;"],
      ["completions", '"*:value:(bash zsh fish)" ;;'],
    ] as const
  ) {
    const line = commands.find((line) => line.startsWith(`${name}) _arguments `));
    assert(line?.endsWith(` ${operands}`), line);
  }
  const fish = await output("completions", "fish");
  assert(!fish.includes("-n '__fish_seen_subcommand_from run' -f\n"), "run takes files");
  for (
    const line of [
      "-n __fish_use_subcommand -f -a doctor -d 'check whether forge can run on this machine'",
      "-n '__fish_seen_subcommand_from doctor' -f",
      "-n '__fish_seen_subcommand_from completions' -f -a 'bash zsh fish'",
      "-n '__fish_seen_subcommand_from run' -l verbose -d 'print details to stderr, including the " +
      "causes of errors'",
      "-n '__fish_seen_subcommand_from run' -s s -l seed -x -d 'seed of the random choices, to " +
      "repeat them'",
      "-n '__fish_seen_subcommand_from run' -l kv-type -x -a 'F16 BF16 F32 Q8_0 Q4_0' -d 'type of " +
      "the KV cache'",
      "-n '__fish_seen_subcommand_from run' -l grammar -r -d 'text derived from the rule root of " +
      "an EBNF grammar'",
    ]
  ) {
    assertStringIncludes(fish, `complete -c forge ${line}\n`);
  }
  assertStringIncludes(fish, "-l profile -d 'print to stderr");
  assertEquals((await forge(["completions", "tcsh"])).code, 2);
});

Deno.test("completions: bash completes commands, flags, their values and arguments", async () => {
  const script = await output("completions", "bash");
  const complete = `${script}
compopt() { :; }
for line in 'forge do' 'forge run --js' 'forge chat --kv-type B' 'forge bench -o j' 'forge run -o j' \
    'forge completions f' 'forge rm org/t' 'forge chat --kv-type = B' 'forge run --device cu' \
    'forge run --device m' 'forge bench --synthetic qwen' 'forge run --seed x' 'forge rm x' 'forge run x' \\
    'forge run --verbose --js' 'forge rm --verbose org/t' 'forge run --profile --js'; do
  COMP_WORDS=($line) COMP_CWORD=$(( $(wc -w <<< "$line") - 1 ))
  _forge
  echo "\${COMPREPLY[@]}"
done`;
  const { stdout } = await new Deno.Command("bash", {
    args: ["-c", `forge() { echo 'org/tiny  344 kB'; }\n${complete}`],
  }).output();
  assertEquals(new TextDecoder().decode(stdout).split("\n"), [
    "doctor",
    "--json-schema --json-object --json",
    "BF16",
    "json jsonl",
    "",
    "fish",
    "org/tiny",
    "BF16",
    "cuda",
    "metal",
    SYNTHETIC_NAMES.filter((name) => name.startsWith("qwen")).join(" "),
    "",
    "",
    "",
    "--json-schema --json-object --json",
    "org/tiny",
    "--json-schema --json-object --json",
    "",
  ]);
});

Deno.test("completions: bash offers files only for arguments that can be files", async () => {
  const script = await output("completions", "bash");
  const files = ["run -m x", "run -o x", "inspect x", "run --lora x", "serve --kv-dir x"];
  const lines = [...files, "run --device x", "run --seed x", "rm x"];
  const { stdout } = await new Deno.Command("bash", {
    args: [
      "-c",
      `forge() { :; }\n${script}\ncompopt() { echo "$*"; }\nfor line in ${
        lines.map((line) => `'forge ${line}'`).join(" ")
      }; do COMP_WORDS=($line) COMP_CWORD=$(( $(wc -w <<< "$line") - 1 )); echo "$line: $(_forge)"; done`,
    ],
  }).output();
  const offered = new TextDecoder().decode(stdout).trim().split("\n");
  assertEquals(
    offered.map((line) => line.endsWith("-o default")),
    lines.map((line) => files.includes(line)),
  );
});

Deno.test("an option with one value is rejected if repeated, options with lists are joined", async () => {
  for (const args of [["chat", "-m", "a", "-m", "b"], ["run", "--temp", "0", "--temp=1"]]) {
    const { code, stdout, stderr } = await forge(args);
    assertEquals([code, stdout], [2, ""]);
    assertMatch(stderr, /^forge: error: --(model|temp) is given twice, .*; give it once\n$/);
  }
  const joined = await forge(["run", "-p", "x", "-n", "1", "--stop", "a", "--stop", "b", "--json"]);
  assertEquals(joined.code, 0);
});

Deno.test("a usage error is one line, also with --verbose and --help", async () => {
  for (
    const args of [["nosuch", "--help"], ["nosuch"], ["run", "--verbose", "a", "b", "-m", "c"]]
  ) {
    const { code, stdout, stderr } = await forge(args, { env: { FORGE_DEBUG: "1" } });
    assertEquals([code, stdout], [2, ""], args.join(" "));
    assertMatch(stderr, /^forge: error: [^\n]+\n$/);
  }
});

Deno.test("usage: inputs that are missing, given twice or exclude each other are named", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const text = folder.write("text.txt", "a");
  for (
    const [args, message] of [
      [["tokenize", "a", "--ids", "--json"], "give --ids or --json, not both"],
      [
        ["tokenize", "-m", folder.at("model"), "a", "-f", text],
        "give the text once: as an argument, with -f or as -",
      ],
      [["perplexity"], "no text; give it with -f FILE"],
      [["rerank", "-", "--lines", text], "no query; give it as an argument"],
      [["rerank", "--lines", text], "no query; give it as an argument"],
      [["inspect", folder.at("model"), "-m", folder.at("model")], "give the model once"],
      [["chat", folder.at("model"), "-m", folder.at("model")], "give the model once"],
      [["quantize", folder.at("model"), "-"], "the GGUF file must be a file, not stdout"],
    ] as const
  ) {
    const { code, stdout, stderr } = await forge(args, { stdin: "" });
    assertEquals([code, stdout, stderr.trimEnd().split("\n").length], [2, "", 1], stderr);
    assertStringIncludes(stderr, message);
  }
  const { code, stderr } = await forge(["inspect", folder.at("model"), "--template"]);
  assertEquals([code, stderr], [1, `forge: error: ${folder.at("model")} has no chat template\n`]);
});

Deno.test("--verbose: commands that do not generate say what they run, too", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  writeEncoder(folder.at("encoder"), "bert, cross-encoder");
  const text = folder.write("text.txt", "some words to score");
  for (
    const [model, ...args] of [
      ["model", "embed", "a fox"],
      ["model", "perplexity", "-f", text],
      ["encoder", "rerank", "sugar", "--lines", text],
    ] as const
  ) {
    const all = [...args, "-m", folder.at(model), "--device", "cpu", "-t", "1"];
    const plain = await forge(all);
    const { code, stdout, stderr } = await forge([...all, "--verbose"]);
    assertEquals([plain.code, plain.stderr, code, stdout], [0, "", 0, plain.stdout]);
    assertMatch(stderr, /^model +\S+ \(.*\ndevice +.*1 thread\n/s);
  }
});

Deno.test({
  name: "a terminal: commands that need a text ask for one and do not wait",
  ignore: !await hasTerminals(),
  async fn() {
    using folder = new TempFolder();
    writeRandomLlama(folder.at("model"));
    const text = folder.write("text.txt", "ab");
    const run = async (...args: string[]) => {
      const terminal = Terminal.forge([...args, "-m", folder.at("model")], { colours: false });
      return { code: await terminal.close(), shown: terminal.shown };
    };
    for (const command of ["tokenize", "embed", "run"]) {
      const { code, shown } = await run(command);
      assertEquals(code, 2, shown);
      assertMatch(shown, /^forge: error: no (text|prompt)[;:] /);
    }
    const tokenized = await run("tokenize", "-f", text, "--ids", "--no-special");
    assertMatch(tokenized.shown, /^\d+ \d+\r\n$/);
    const embedded = await run("embed", "-f", text, "--dimensions", "1");
    assertStringIncludes(embedded.shown, '"tokens":3');
    assertEquals([tokenized.code, embedded.code], [0, 0]);
    for (const dash of [["run", "-f", "-"], ["run", "-"], ["tokenize", "-"]]) {
      const { code, shown } = await run(...dash);
      assertEquals([code, shown.includes("stdin is a terminal; pipe the text in")], [2, true]);
    }
  },
});

Deno.test({
  name: "a narrow terminal shows an error as lines between words, and its start in red",
  ignore: !await hasTerminals(),
  async fn() {
    const coloured = Terminal.forge(["run", "llama3"], { columns: 40, colours: true });
    assertEquals(await coloured.close(), 2);
    assert(coloured.shown.startsWith("\x1b[31mforge: error:\x1b[39m is "), coloured.shown);
    const terminal = Terminal.forge(["run", "llama3"], { columns: 40, colours: false });
    assertEquals(await terminal.close(), 2);
    const lines = terminal.shown.trimEnd().split("\r\n");
    assert(lines.length > 2 && lines.every((line) => line.length <= 40), terminal.shown);
    const { stderr } = await forge(["run", "llama3"]);
    assertEquals(`${lines.join(" ")}\n`, stderr);
  },
});

Deno.test("rm: removes a listed model, and suggests similar names for an unknown one", async () => {
  using store = new TempFolder();
  const folder = "models/org/tiny/main";
  store.write(`${folder}/a.gguf`, "four");
  const manifest = { name: "org/tiny", entry: "a.gguf", files: [{ path: "a.gguf", bytes: 4 }] };
  store.write(`${folder}/.forge/a.gguf.json`, JSON.stringify(manifest));
  const run = (...args: string[]) => forge(args, { env: { FORGE_CACHE: store.path } });

  assertEquals(
    (await run("list")).stdout,
    `org/tiny      4 B  ${store.at(folder, "a.gguf")}\n`,
  );
  const near = await run("rm", "org/tinny");
  assertEquals([near.code, near.stdout], [1, ""]);
  assertStringIncludes(near.stderr, "did you mean org/tiny?");
  const removed = await run("rm", "org/tiny");
  assertEquals([removed.code, removed.stderr], [0, "forge: removed org/tiny (4 B)\n"]);
  assertEquals((await run("list", "--json")).stdout, "[]\n");
  assertEquals((await run("rm", "org/tiny")).code, 1);
});

Deno.test("list: an empty store is not an error", async () => {
  using folder = new TempFolder();
  const env = { FORGE_CACHE: folder.path };
  const { code, stdout } = await forge(["list", "--json"], { env });
  assertEquals([code, JSON.parse(stdout)], [0, []]);
  const listed = await forge(["list"], { env });
  assertEquals([listed.code, listed.stdout], [0, ""]);
  assertStringIncludes(listed.stderr, `no models in ${folder.path}`);
});
