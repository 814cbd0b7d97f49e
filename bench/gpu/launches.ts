/**
 * Launches and time of a decoded token: operation by operation, fused, captured into graphs, and by
 * one kernel for the step, whose tokens are compared with those of the launches: `launches.ts
 * [--emulated]`. Prints the lines of `lines.ts`; `model.ts` prints the expected times of the last
 * two.
 */
import { join } from "@std/path";
import { SyntheticModel } from "../../src/bench/synthetic/model.ts";
import { parseSyntheticSpec } from "../../src/bench/synthetic/spec.ts";
import { median } from "../../src/bench/statistics.ts";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { root } from "../root.ts";
import { say } from "./lines.ts";

/** A small model, for which launches dominate. */
export const MODEL = "llama-3.2-1b:BF16";

/** Rounds of 64 tokens, a tenth of a second each: during the first two, idle clocks still rise. */
const ROUNDS = 10;

/** Names of the ways to compute a step by launches, and by one kernel (csrc/cuda/step_kernel.h). */
export const LAUNCHED = "captured";
export const RESIDENT = "one kernel for the step";
const RESIDENT_ENV = { FORGE_CUDA_PERSISTENT: "1" };

/** Features disabled or enabled per measurement, by the variables of csrc/cuda/device.h. */
const WAYS: readonly (readonly [string, Readonly<Record<string, string>>])[] = [
  ["operation by operation", { FORGE_CUDA_FUSION: "0", FORGE_CUDA_GRAPHS: "0" }],
  ["fused", { FORGE_CUDA_GRAPHS: "0" }],
  [LAUNCHED, { FORGE_CUDA_PERSISTENT: "0" }],
  [RESIDENT, RESIDENT_ENV],
];

async function main(args: readonly string[]): Promise<void> {
  const isEmulated = args.includes("--emulated");
  await compareTokens(isEmulated ? 3 : 64);
  if (isEmulated) return await measure("the bundled model", bundledModel(), 2, 1);
  const quantizer = openBackend("cpu");
  using model = new SyntheticModel(parseSyntheticSpec(MODEL), quantizer);
  quantizer.close();
  await measure(MODEL, model.path, 64, ROUNDS);
}

async function measure(
  name: string,
  path: string,
  tokens: number,
  rounds: number,
): Promise<void> {
  for (const [way, env] of WAYS) {
    const { microseconds, trace } = await decode(path, tokens, rounds, env);
    const counts = launchCounts(trace);
    say({
      kind: "speed",
      group: "launches of a step",
      name: `${name}, ${way}: ${counts.launches} launches, ${counts.submissions} by the host`,
      by: "forge",
      microseconds,
      of: { ...counts },
    });
  }
}

/** Compares the tokens of the kernel for the step with those of launches, which are the same. */
async function compareTokens(count: number): Promise<void> {
  const generate = async (env: Readonly<Record<string, string>>) =>
    await runForge([
      ...["run", "--device", "cuda", "-m", bundledModel(), "--raw", "-p", "Once upon a time"],
      ...["-n", `${count}`, "--temp", "0"],
    ], env);
  const [launched, resident] = [
    await generate({ FORGE_CUDA_PERSISTENT: "0" }),
    await generate(RESIDENT_ENV),
  ];
  const passed = launched.output === resident.output && launched.output.trim() !== "";
  const detail = `"${resident.output.trim()}" instead of "${launched.output.trim()}"`;
  const name = `tokens by ${RESIDENT}`;
  say({ kind: "check", name, passed, ...(passed ? {} : { detail }) });
  if (!/\dxstep_kernel\b/.test(resident.trace)) {
    say({ kind: "note", text: `${RESIDENT}: not used by this driver or compiler` });
  }
}

/** Returns the median of microseconds per token, and the trace of the library's plans. */
async function decode(
  path: string,
  tokens: number,
  rounds: number,
  env: Readonly<Record<string, string>>,
) {
  const { output, trace } = await runForge([
    ...["bench", "--device", "cuda", "-m", path],
    ...["-p", "0", "-n", `${tokens}`, "-r", `${rounds}`, "-o", "jsonl"],
  ], env);
  const { samples_ns } = JSON.parse(output) as { readonly samples_ns: readonly number[] };
  return { microseconds: median(samples_ns) / 1e3 / tokens, trace };
}

/** Runs forge; returns its output and the trace of the library's plans. */
async function runForge(args: readonly string[], env: Readonly<Record<string, string>>) {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "-A", join(root, "main.ts"), ...args],
    env: { ...env, FORGE_CUDA_TRACE: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  const decoder = new TextDecoder();
  const trace = decoder.decode(stderr);
  if (!success) throw new Error(`forge ${args[0]} failed: ${trace}`);
  return { output: decoder.decode(stdout), trace };
}

/** Launches of one token on the device, and submissions by the host; a graph counts as one. */
export interface LaunchCounts {
  readonly launches: number;
  readonly submissions: number;
}

/** Returns the counts of the last plan in a trace, which has the longest context. */
export function launchCounts(trace: string): LaunchCounts {
  const lines = trace.split("\n");
  const at = lines.findLastIndex((line) => line.startsWith("plan for "));
  const launches = Number(/ (\d+) launches:/.exec(lines[at] ?? "")?.[1] ?? NaN);
  const graphs = lines.slice(at + 1).filter((line) => line.startsWith("graph for ")).length;
  return { launches, submissions: graphs > 0 ? graphs : launches };
}

if (import.meta.main) await main(Deno.args);
