/** Prefill and decode speed of one model, as `forge bench` measures them. */
import { openBenchModel } from "../src/bench/bench_model.ts";
import { measure } from "../src/bench/measure.ts";
import { mean, sampleDeviation } from "../src/bench/statistics.ts";
import { type Workload, workloadName } from "../src/bench/workload.ts";
import { plural } from "../src/cli/output/format.ts";
import { type BenchOptions, benchSubject } from "./bench_options.ts";
import { type Machine, readShare } from "./limits.ts";

/** Prints a line for prefill and a line for decoding. */
export async function benchSpeed(options: BenchOptions, machine: Machine): Promise<void> {
  const { device, nPrompt, nGen, rounds, threads } = options;
  using subject = benchSubject(options);
  using model = await openBenchModel(subject.model, {
    name: subject.name,
    device,
    threads,
    contextLength: Math.max(nPrompt, nGen),
  });
  console.log(
    `${subject.name}: ${model.summary.type}, ${model.backend}, ${plural(threads, "thread")}`,
  );
  const tests: Workload[] = [{ nPrompt, nGen: 0, nDepth: 0 }, { nPrompt: 0, nGen, nDepth: 0 }];
  for (const test of tests) {
    const rates: number[] = [];
    for await (const { prefill, decode } of measure(model.runner, test, rounds)) {
      rates.push((test.nPrompt + test.nGen) / (prefill + decode) * 1e9);
    }
    const rate = mean(rates);
    const read = model.summary.decodeBytes * rate / 1e9;
    const weights = test.nPrompt === 0
      ? `, weights ${read.toFixed(2)} GB/s${readShare(read, machine.limits)}`
      : "";
    const speed = `${rate.toFixed(2)} ± ${sampleDeviation(rates).toFixed(2)} tokens/s`;
    console.log(`  ${workloadName(test)}: ${speed}${weights}`);
  }
}
