/** A batch of requests at once, compared with the same requests one by one. */
import { load, type Model } from "../src/mod.ts";
import { median } from "../src/bench/statistics.ts";
import { type BenchOptions, benchSubject, subjectPath } from "./bench_options.ts";

const REQUESTS = 64;
const GENERATED = 64;
const AT_ONCE = 32;

const REQUEST = { raw: true, maxTokens: GENERATED, temperature: 0 } as const;

/** Prints the tokens per second of both methods, over alternating rounds. */
export async function benchBatch(options: BenchOptions): Promise<void> {
  using subject = benchSubject(options);
  const path = subjectPath(subject);
  const { threads, rounds } = options;
  await using model = await load(path, { threads, contextLength: 256, parallel: AT_ONCE });
  await generate(model, -1, 1);
  const batch: number[] = [], single: number[] = [];
  for (let round = 0; round < rounds; round++) {
    single.push(await generate(model, 2 * round, 1));
    batch.push(await generate(model, 2 * round + 1, AT_ONCE));
  }
  const [all, one] = [median(batch), median(single)];
  console.log(`${subject.name}: ${REQUESTS} prompts, up to ${GENERATED} tokens each, tokens/s`);
  console.log(`  one by one    ${one.toFixed(0)}`);
  console.log(`  ${AT_ONCE} at a time  ${all.toFixed(0)} (${(all / one).toFixed(2)}×)`);
}

/** Tokens per second of all requests, with `atOnce` of them in flight at a time. */
async function generate(model: Model, round: number, atOnce: number): Promise<number> {
  const waiting = Array.from({ length: REQUESTS }, (_, i) => i);
  let tokens = 0;
  const start = performance.now();
  const worker = async () => {
    for (let i = waiting.shift(); i !== undefined; i = waiting.shift()) {
      // A unique beginning, so that no request shares a prefix with another.
      const prompt = `${round}.${i}: Once upon a time there was a fox who lived near a river`;
      const { completionTokens } = await model.complete(prompt, REQUEST);
      tokens += completionTokens;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return tokens / (performance.now() - start) * 1000;
}
