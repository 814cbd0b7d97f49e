/**
 * Times and launches of the operations of a step: `profile.ts [--emulated] [MODEL...]`, such as
 * `profile.ts llama-3.2-1b:BF16`. Prints the lines of `lines.ts`.
 */
import { openBenchModel } from "../../src/bench/bench_model.ts";
import { measure } from "../../src/bench/measure.ts";
import { SyntheticModel } from "../../src/bench/synthetic/model.ts";
import { parseSyntheticSpec, type SyntheticSpec } from "../../src/bench/synthetic/spec.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { SMALLEST } from "./decode.ts";
import { type PhaseTimes, Profile } from "../../src/engine/profile.ts";
import { say } from "./lines.ts";
import { saySpeed } from "./timing.ts";

const MODELS: readonly string[] = ["llama-3.1-8b:BF16", "llama-3.1-8b:Q4_K"];
/** Maximum number of reported operations; the rest take little time. */
const MOST_OPERATIONS = 12;

async function main(args: readonly string[]): Promise<void> {
  const emulated = args.includes("--emulated");
  const specs = emulated ? [SMALLEST] : (args.length > 0 ? args : MODELS).map(parseSyntheticSpec);
  for (const spec of specs) await profile(spec, emulated ? 17 : 512, emulated ? 2 : 16);
}

async function profile(spec: SyntheticSpec, nPrompt: number, nGen: number): Promise<void> {
  const quantizer = openBackend("cpu");
  try {
    using file = new SyntheticModel(spec, quantizer);
    using model = await openBenchModel(file.model, {
      name: spec.name,
      device: "cuda",
      threads: 0,
      contextLength: nPrompt + nGen + 1,
    });
    const times = new Profile();
    model.runner.setProfile(times);
    for await (const _ of measure(model.runner, { nPrompt, nGen, nDepth: 0 }, 1));
    for (const phase of times.phases()) describe(spec.name, phase);
  } finally {
    quantizer.close();
  }
}

/** Reports the longest operations of a phase. */
function describe(model: string, { phase, steps, operations }: PhaseTimes): void {
  const microseconds = (duration: number) => duration / steps / 1000;
  const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
  const launches = sum(operations.map(({ count }) => count)) / steps;
  const inKernels = microseconds(sum(operations.map(({ duration }) => duration)));
  say({
    kind: "note",
    text: `${model}, a step of ${phase}: ${launches.toFixed(0)} launches, ` +
      `${inKernels.toFixed(1)} us in kernels`,
  });
  for (const { operation, matrix, count, duration } of operations.slice(0, MOST_OPERATIONS)) {
    saySpeed({
      kind: "speed",
      group: "kernels of a step",
      name: `${model}, ${phase}: ${(count / steps).toFixed(0)} ${operation} ${matrix}`.trimEnd(),
      by: "forge",
      microseconds: microseconds(duration),
    });
  }
}

if (import.meta.main) await main(Deno.args);
