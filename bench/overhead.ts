/** What a decoded token costs beyond the native library: the border, the engine, the text. */
import { openBenchModel } from "../src/bench/bench_model.ts";
import { quantile } from "../src/bench/statistics.ts";
import { UNSAMPLED } from "../src/engine/runner.ts";
import { load } from "../src/mod.ts";
import { type BenchOptions, benchSubject, subjectPath } from "./bench_options.ts";

const GREEDY = { ...UNSAMPLED, row: 0, forcedToken: undefined };
const PROMPT = "Once upon a time";
const UNTIMED = 8;

/** A token that nothing disturbs is faster than most on a machine that does other things as well. */
const UNDISTURBED = 0.1;

/** Prints what a token of all rounds takes when undisturbed, and what part of it is not native. */
export async function benchOverhead(options: BenchOptions): Promise<void> {
  using subject = benchSubject(options);
  const path = subjectPath(subject);
  console.log(`${subject.name}: microseconds a decoded token`);
  const { total, native } = await measureSteps(path, options);
  const perToken = await measureGeneration(path, options);
  const share = (value: number) => `${((value - native) / value * 100).toFixed(1)}% not native`;
  console.log(`  native          ${native.toFixed(0)}`);
  console.log(`  Runner.run      ${total.toFixed(0)} (${share(total)})`);
  console.log(`  Model.generate  ${perToken.toFixed(0)} (${share(perToken)})`);
}

/** Runs of one token, as the engine makes them, and what of them the library took. */
async function measureSteps(path: string, { device, threads, nGen, rounds }: BenchOptions) {
  const contextLength = nGen + UNTIMED;
  using model = await openBenchModel(path, { name: path, device, threads, contextLength });
  const { runner } = model;
  const totals: number[] = [], natives: number[] = [];
  for (let round = 0; round < rounds; round++) {
    using table = runner.newSequence();
    for (let at = 0; at < contextLength; at++) {
      const start = performance.now();
      await runner.run([{ table, tokens: [300], start: at, outputs: [GREEDY] }]);
      const elapsed = performance.now() - start;
      if (at < UNTIMED) continue;
      totals.push(elapsed * 1e3);
      natives.push(runner.nativeTime() / 1e3);
    }
  }
  return { total: quantile(totals, UNDISTURBED), native: quantile(natives, UNDISTURBED) };
}

/** A token of generations that a user would read. The engine runs ahead of the reader: only all count. */
async function measureGeneration(path: string, { device, threads, nGen, rounds }: BenchOptions) {
  // A step is a token: the same number of steps as above.
  const options = {
    device,
    threads,
    contextLength: nGen + UNTIMED + 64,
    speculate: "off",
  } as const;
  await using model = await load(path, options);
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    let start = 0, last = 0;
    let n = 0;
    // A prompt of its own for each round, so that nothing of it is known already.
    const prompt = `${round} ${PROMPT}`;
    for await (const { token } of model.generate(prompt, { maxTokens: nGen, temperature: 0 })) {
      if (token === undefined) break;
      last = performance.now();
      if (n++ === 0) start = last;
    }
    if (n > 1) times.push((last - start) / (n - 1) * 1e3);
  }
  return quantile(times, UNDISTURBED);
}
