/**
 * Times and launches of each kernel in a step: `profile.ts [--emulated]`. Prints the lines of
 * `lines.ts`.
 */
import { openBenchModel } from "../../src/bench/bench_model.ts";
import { measure } from "../../src/bench/measure.ts";
import { SyntheticModel } from "../../src/bench/synthetic/model.ts";
import { parseSyntheticSpec, type SyntheticSpec } from "../../src/bench/synthetic/spec.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { SMALLEST } from "./decode.ts";
import { say } from "./lines.ts";
import { saySpeed } from "./timing.ts";

/** A line of the file named by FORGE_CUDA_PROFILE. */
export interface ProfileLine {
  /** Tokens per run, followed by the number of runs. */
  readonly tokens: number;
  readonly runs: number;
  readonly kernel: string;
  /** Total of all runs, like the time. */
  readonly launches: number;
  readonly microseconds: number;
}

/** Maximum number of reported kernels; the rest take little time. */
const MOST_KERNELS = 12;

async function main(args: readonly string[]): Promise<void> {
  const emulated = args.includes("--emulated");
  const specs = emulated
    ? [SMALLEST]
    : ["llama-3.1-8b:BF16", "llama-3.1-8b:Q4_K"].map(parseSyntheticSpec);
  for (const spec of specs) await profile(spec, emulated ? 17 : 512, emulated ? 2 : 16);
}

async function profile(spec: SyntheticSpec, nPrompt: number, nGen: number): Promise<void> {
  const path = Deno.makeTempFileSync({ prefix: "forge-profile-" });
  const quantizer = openBackend("cpu");
  try {
    using file = new SyntheticModel(spec, quantizer);
    // The library reads it when a step is compiled, and writes the file when the step is released.
    Deno.env.set("FORGE_CUDA_PROFILE", path);
    {
      using model = await openBenchModel(file.model, {
        name: spec.name,
        device: "cuda",
        threads: 0,
        contextLength: nPrompt + nGen + 1,
      });
      for await (const _ of measure(model.runner, { nPrompt, nGen, nDepth: 0 }, 1));
    }
    const lines = Deno.readTextFileSync(path).split("\n").filter((text) => text !== "")
      .map((text) => JSON.parse(text) as ProfileLine);
    for (const tokens of new Set(lines.map((line) => line.tokens))) {
      describe(spec.name, tokens, lines.filter((line) => line.tokens === tokens));
    }
  } finally {
    Deno.env.delete("FORGE_CUDA_PROFILE");
    Deno.removeSync(path);
    quantizer.close();
  }
}

/** Reports the kernels of runs with `tokens` tokens. */
function describe(model: string, tokens: number, lines: readonly ProfileLine[]): void {
  const each = (line: ProfileLine, value: number) => value / line.runs;
  const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
  const launches = sum(lines.map((line) => each(line, line.launches)));
  const microseconds = sum(lines.map((line) => each(line, line.microseconds)));
  say({
    kind: "note",
    text: `${model}, a step of ${tokens} tokens: ${launches.toFixed(0)} launches, ` +
      `${microseconds.toFixed(1)} us in kernels`,
  });
  const longest = lines.toSorted((a, b) => b.microseconds - a.microseconds);
  for (const line of longest.slice(0, MOST_KERNELS)) {
    saySpeed({
      kind: "speed",
      group: "kernels of a step",
      name: `${model}, ${tokens} tokens: ${each(line, line.launches).toFixed(0)} ${line.kernel}`,
      by: "forge",
      microseconds: each(line, line.microseconds),
    });
  }
}

if (import.meta.main) await main(Deno.args);
