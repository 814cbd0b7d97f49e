/** Gain of speculative decoding in repetitive text, and its cost elsewhere. */
import { median } from "../src/bench/statistics.ts";
import { type Completion, type GenerateOptions, load, type Model } from "../src/mod.ts";
import { type BenchOptions, benchSubject, subjectPath } from "./bench_options.ts";

const AT_ONCE = 8;

/** Always the same token. */
const ALWAYS = { logitBias: { 300: 1e6 } } as const;

/** All tokens almost equally likely, so that no draft token is accepted. */
const ANY = { temperature: 100, topK: 0, topP: 1, minP: 0 } as const;

const RECORDS = [["Socks", "fox", "green"], ["Biscuit", "dog", "red"], ["Luna", "cat", "blue"]]
  .map(([name, animal, colour]) => JSON.stringify({ name, animal, colour }));

interface Case {
  readonly prompt: string;
  readonly options: GenerateOptions;
  readonly atOnce: number;
}

const CASES: Readonly<Record<string, Case>> = {
  "records, in JSON": {
    prompt: `${[...RECORDS, ...RECORDS].join("\n")}\n`,
    options: { temperature: 0 },
    atOnce: 1,
  },
  "a story": { prompt: "Once upon a time", options: {}, atOnce: 1 },
  "one token again and again": { prompt: "Once", options: ALWAYS, atOnce: 1 },
  "random tokens": { prompt: "Once", options: ANY, atOnce: 1 },
  "random tokens, 8 at once": { prompt: "Once", options: ANY, atOnce: AT_ONCE },
  "one token, 8 at once": { prompt: "Once", options: ALWAYS, atOnce: AT_ONCE },
};

/** Prints the tokens per second of each case without and with draft tokens, over alternating rounds. */
export async function benchSpeculation(options: BenchOptions): Promise<void> {
  using subject = benchSubject(options);
  const path = subjectPath(subject);
  const { threads, rounds, nGen } = options;
  const settings = { threads, contextLength: nGen + 384, parallel: AT_ONCE };
  await using plain = await load(path, { ...settings, speculate: "off" });
  await using speculating = await load(path, { ...settings, speculate: "on" });
  console.log(`${subject.name}: decoded tokens/s without and with speculative decoding`);
  for (const [name, each] of Object.entries(CASES)) {
    // The first steps of a case, in which its costs are learned, are not timed.
    for (const model of [plain, speculating]) await measure(model, each, nGen, -1);
    const without: number[] = [], speculative: number[] = [];
    let drafted = 0, accepted = 0;
    for (let round = 0; round < rounds; round++) {
      // Alternate the order, since the second run finds the machine in another state.
      const models = round % 2 === 0 ? [plain, speculating] : [speculating, plain];
      const measured = new Map<Model, Measured>();
      for (const model of models) measured.set(model, await measure(model, each, nGen, round));
      const [expected, actual] = [measured.get(plain)!, measured.get(speculating)!];
      without.push(expected.speed);
      speculative.push(actual.speed);
      if (`${ids(actual.answers)}` !== `${ids(expected.answers)}`) {
        console.log(`  ${name}: DIFFERENT TOKENS`);
      }
      for (const { timings } of actual.answers) {
        drafted += timings.drafted;
        accepted += timings.accepted;
      }
    }
    const [a, b] = [median(without), median(speculative)];
    const share = drafted === 0 ? "none drafted" : `${accepted} of ${drafted} drafted accepted`;
    console.log(
      `  ${name.padEnd(26)} ${a.toFixed(1).padStart(7)} ${b.toFixed(1).padStart(7)} ` +
        `(${(b / a).toFixed(2)}×), ${share}`,
    );
  }
}

function ids(answers: readonly Completion[]) {
  return answers.map(({ tokenIds }) => tokenIds);
}

interface Measured {
  readonly answers: readonly Completion[];
  /** Decoded tokens per second. */
  readonly speed: number;
}

async function measure(
  model: Model,
  { prompt, options, atOnce }: Case,
  nGen: number,
  seed: number,
): Promise<Measured> {
  const answers = await model.completeMany(prompt, atOnce, {
    raw: true,
    maxTokens: nGen,
    ...options,
    seed: seed + 1,
  });
  const tokens = answers.reduce((sum, { completionTokens }) => sum + completionTokens - 1, 0);
  const longest = Math.max(...answers.map(({ timings }) => timings.decodeMs));
  return { answers, speed: tokens / longest * 1000 };
}
