/**
 * Launches and time of a decoded token: operation by operation, fused, captured into graphs, and
 * with weights requested for L2 before their product runs: `launches.ts [--emulated]`. Prints the
 * lines of `lines.ts`.
 */
import { join } from "@std/path";
import { SyntheticModel } from "../../src/bench/synthetic/model.ts";
import { parseSyntheticSpec } from "../../src/bench/synthetic/spec.ts";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { root } from "../root.ts";
import { say } from "./lines.ts";

/** A small model, for which launches dominate. */
const MODEL = "llama-3.2-1b:BF16";

/** Disabled features per measurement, by the variables of csrc/cuda/device.h. */
const WAYS: readonly (readonly [string, Readonly<Record<string, string>>])[] = [
  ["operation by operation", { FORGE_CUDA_FUSION: "0", FORGE_CUDA_GRAPHS: "0" }],
  ["fused", { FORGE_CUDA_GRAPHS: "0" }],
  ["captured, no weights prefetched", { FORGE_CUDA_PREFETCH: "0" }],
  ["captured, weights prefetched", {}],
];

async function main(args: readonly string[]): Promise<void> {
  if (args.includes("--emulated")) return await measure("the bundled model", bundledModel(), 2, 1);
  const quantizer = openBackend("cpu");
  using model = new SyntheticModel(parseSyntheticSpec(MODEL), quantizer);
  quantizer.close();
  await measure(MODEL, model.path, 64, 3);
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

/** Returns the microseconds per token and the trace of the library's plans. */
async function decode(
  path: string,
  tokens: number,
  rounds: number,
  env: Readonly<Record<string, string>>,
) {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--quiet", "-A", join(root, "main.ts"), "bench", "--device", "cuda", "-m", path],
      ...["-p", "0", "-n", `${tokens}`, "-r", `${rounds}`, "-o", "jsonl"],
    ],
    env: { ...env, FORGE_CUDA_TRACE: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  const decoder = new TextDecoder();
  const trace = decoder.decode(stderr);
  if (!success) throw new Error(`forge bench failed: ${trace}`);
  const { avg_ns } = JSON.parse(decoder.decode(stdout)) as { readonly avg_ns: number };
  return { microseconds: avg_ns / 1e3 / tokens, trace };
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
