/**
 * Checks and measures forge on a Mac's GPU, in one call: `deno run -A bench/metal_check.ts`. Writes
 * the report to stdout and to `bench/results/` under the device's name; each part is a separate
 * program, whose failures are independent.
 *
 * `--emulated` runs the smallest sizes on a stand-in for Metal, to test the check itself.
 */
import { join } from "@std/path";
import { parseArgs } from "node:util";
import { buildLibraries } from "../build.ts";
import { NativeBackend } from "../ffi/native_backend.ts";
import type { BenchRecord } from "../src/bench/bench_record.ts";
import { bundledModel } from "../src/cli/model/model_path.ts";
import { expectedSpeed } from "./gpu_model/metal.ts";
import { root } from "./root.ts";

const HELP = `Usage: deno run -A bench/metal_check.ts [options]

Checks forge on the GPU of this Mac, then measures it.

Options:
      --results D    folder for the report (default: bench/results)
      --emulated     the smallest of everything, on a stand-in for Metal
  -h, --help         show this`;

/** Models that are measured: where memory bounds decoding, and where launches do. */
const MODELS = ["llama-3.1-8b:Q4_0", "llama-3.1-8b:Q4_K", "llama-3.2-1b:Q8_0", "smollm2-135m:Q4_0"];
/** The share of the measured read at which a large model is decoded on every chip. */
const READ_GOAL = 0.92;

/** The result of a part: lines of Markdown, or the reason of a failure. */
interface PartResult {
  readonly name: string;
  readonly lines: readonly string[];
  readonly failure?: string;
}

/** Runs a Deno program in the repository. @throws with the end of its output if it fails */
async function runProgram(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd: root,
    env: { NO_COLOR: "1", ...env },
    stdin: "null",
  }).output();
  const [out, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  if (success) return out!;
  throw new Error(`${out}${errors}`.trimEnd().split("\n").slice(-20).join("\n"));
}

/** The operations against the reference, by the operations' own tests. */
async function checkOperations(emulated: boolean): Promise<string[]> {
  const tests = emulated ? "test/ops/rows_test.ts" : "test/ops";
  const output = await runProgram(["test", "-A", "--quiet", "--no-check", tests], {
    FORGE_TEST_DEVICES: "reference,metal",
  });
  const summary = output.trimEnd().split("\n").at(-1) ?? "";
  if (!output.includes("(metal)")) throw new Error("no test ran on the GPU");
  return [summary.trim()];
}

/** Ids of the tokens that the bundled model chooses. */
async function story(device: string, tokens: number): Promise<number[]> {
  const args = ["-m", bundledModel(), "-p", "Once upon a time", "--temp", "0", "--json"];
  const output = await runProgram([
    ...["run", "--quiet", "-A", "main.ts", "run", "--device", device, "-n", `${tokens}`],
    ...args,
  ]);
  return (JSON.parse(output) as { token_ids: number[] }).token_ids;
}

/** The bundled model tells the same story on the GPU and on the CPU. */
async function checkModel(emulated: boolean): Promise<string[]> {
  const tokens = emulated ? 8 : 128;
  const own = await story("metal", tokens), expected = await story("cpu", tokens);
  const same = own.findIndex((id, i) => id !== expected[i]);
  if (same >= 0) {
    throw new Error(`token ${same} is ${own[same]} on the GPU, ${expected[same]} on the CPU`);
  }
  return [`${own.length} tokens equal those of the CPU`];
}

/**
 * Speeds as shares of the measured read and of the measured products of matrices, next to those
 * that the model of Apple's GPUs expects.
 */
async function measureModels(emulated: boolean, gpu: string): Promise<string[]> {
  const lines = [
    "| model | test | tokens/s | weights read, GB/s | of a read | TFLOP/s | of products alone " +
    "| expected tokens/s |",
    "|---|---|--:|--:|--:|--:|--:|--:|",
  ];
  const sizes = emulated ? ["-p", "4", "-n", "2", "-r", "1"] : ["-p", "512", "-n", "64", "-r", "3"];
  const missed: string[] = [];
  for (const model of emulated ? [bundledModel()] : MODELS) {
    const output = await runProgram([
      ...["run", "--quiet", "-A", "main.ts", "bench", "--device", "metal", "-o", "jsonl"],
      ...[emulated ? "-m" : "--synthetic", model, ...sizes],
    ]);
    for (const line of output.trim().split("\n")) {
      const { model_type, n_prompt, n_gen, avg_ts, ...record } = JSON.parse(line) as BenchRecord;
      const { weight_gb_s, read_gb_s, prompt_tflops, matrix_tflops } = record;
      const share = weight_gb_s && read_gb_s ? weight_gb_s / read_gb_s : undefined;
      const cells = [
        model_type,
        n_prompt > 0 ? `pp${n_prompt}` : `tg${n_gen}`,
        avg_ts.toFixed(1),
        weight_gb_s?.toFixed(1) ?? "",
        share === undefined ? "" : percent(share),
        prompt_tflops?.toFixed(2) ?? "",
        prompt_tflops && matrix_tflops ? percent(prompt_tflops / matrix_tflops) : "",
        expectedSpeed(gpu, model, n_prompt > 0 ? "prefill" : "decode")?.toFixed(0) ?? "",
      ];
      lines.push(`| ${cells.join(" | ")} |`);
      const isLarge = model.includes("8b");
      if (isLarge && share !== undefined && share < READ_GOAL) {
        missed.push(`${model_type} ${percent(share)}`);
      }
    }
  }
  const goal = `Goal: an 8B model is decoded at ${percent(READ_GOAL)} of a measured read`;
  return [
    ...lines,
    "",
    missed.length === 0
      ? `${goal}: met or not measured.`
      : `${goal}: missed by ${missed.join(", ")}.`,
  ];
}

const percent = (share: number) => `${(100 * share).toFixed(0)}%`;

const PARTS: readonly (readonly [
  string,
  (emulated: boolean, gpu: string) => Promise<string[]>,
])[] = [
  ["operations", checkOperations],
  ["model", checkModel],
  ["speed", measureModels],
];

async function main(args: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      results: { type: "string" },
      emulated: { type: "boolean", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const emulated = values.emulated ?? false;
  if (!emulated) {
    const log = (line: string) => console.error(line);
    await buildLibraries({ only: ["cpu", "reference", "metal"], log });
  }
  using device = NativeBackend.open({ kind: "metal", selector: "", threads: 0 });
  const { name, details = [] } = device.info;
  const results: PartResult[] = [];
  for (const [part, run] of PARTS) {
    try {
      results.push({ name: part, lines: await run(emulated, name) });
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      results.push({ name: part, lines: [], failure: error.message });
    }
    console.error(`${part}: ${results.at(-1)?.failure === undefined ? "passed" : "failed"}`);
  }
  const report = [
    `# ${name}`,
    "",
    ...details.map((line) => `- ${line}`),
    ...results.flatMap(({ name, lines, failure }) => [
      "",
      `## ${name}: ${failure === undefined ? "passed" : "failed"}`,
      "",
      ...(failure === undefined ? lines : ["```", failure, "```"]),
    ]),
    "",
  ].join("\n");
  console.log(report);
  const folder = values.results ?? join(root, "bench", "results");
  await Deno.mkdir(folder, { recursive: true });
  const file = `metal-${name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}.md`;
  await Deno.writeTextFile(join(folder, file), report);
  return results.some(({ failure }) => failure !== undefined) ? 1 : 0;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
