/**
 * Tests that draft tokens leave the distribution of sampled texts unchanged: the frequencies of
 * all texts of three tokens, over many seeds, against their probabilities by the model's logits.
 * The seeds are fixed, so that the test does not fail by chance.
 */
import { assert, assertEquals } from "@std/assert";
import { load, type Model } from "../../../../src/mod.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { EOS, writeForeseeingLlama, writeRandomLlama } from "../../../support/tiny_llama.ts";

const TOP_K = 3, LENGTH = 3, TEMPERATURE = 1.4, TEXTS = 2400;
const SAMPLING = {
  temperature: TEMPERATURE,
  topK: TOP_K,
  topP: 1,
  minP: 0,
  maxTokens: LENGTH,
  logitBias: { [EOS]: -Infinity },
};
const PROMPT = Int32Array.from([0, 40, 41]);

/**
 * Critical value of chi-square with 26 degrees of freedom, exceeded with a probability of 0.001.
 */
const CRITICAL = 54.05;

/** Returns the probabilities of the tokens that may follow a text, at a temperature. */
async function next(model: Model, text: readonly number[], temperature: number) {
  const logits = await model.logits(Int32Array.from([...PROMPT, ...text]));
  const ranked = Array.from(logits, (logit, token) => ({ token, logit }))
    .filter(({ token }) => token !== EOS)
    .sort((a, b) => b.logit - a.logit).slice(0, TOP_K)
    .map(({ token, logit }) => ({ token, weight: Math.exp((logit - logits[0]!) / temperature) }));
  const total = ranked.reduce((sum, { weight }) => sum + weight, 0);
  return ranked.map(({ token, weight }) => ({ token, probability: weight / total }));
}

/** Returns the probability of each text that may be sampled. */
async function probabilities(model: Model, temperature: number): Promise<Map<string, number>> {
  let texts = [{ text: [] as number[], probability: 1 }];
  for (let i = 0; i < LENGTH; i++) {
    const longer = texts.map(async ({ text, probability: before }) =>
      (await next(model, text, temperature)).map(({ token, probability }) => ({
        text: [...text, token],
        probability: before * probability,
      }))
    );
    texts = (await Promise.all(longer)).flat();
  }
  return new Map(texts.map(({ text, probability }) => [`${text}`, probability]));
}

async function sample(model: Model) {
  const texts: string[] = [];
  let drafted = 0, accepted = 0;
  for (let seed = 0; seed < TEXTS; seed += 32) {
    const seeds = Array.from({ length: 32 }, (_, i) => seed + i);
    const answers = await Promise.all(
      seeds.map((seed) => model.complete(PROMPT, { ...SAMPLING, seed })),
    );
    for (const { tokenIds, timings } of answers) {
      texts.push(`${tokenIds}`);
      drafted += timings.drafted;
      accepted += timings.accepted;
    }
  }
  return { texts, drafted, accepted };
}

function chiSquare(texts: readonly string[], expected: ReadonlyMap<string, number>): number {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  assertEquals([...counts.keys()].filter((text) => !expected.has(text)), []);
  return [...expected].reduce((sum, [text, probability]) => {
    const mean = probability * texts.length;
    return sum + ((counts.get(text) ?? 0) - mean) ** 2 / mean;
  }, 0);
}

for (
  const [name, writeModel] of [
    ["mostly accepted", writeForeseeingLlama],
    [
      "mostly rejected",
      (folder: string) => writeRandomLlama(folder, { predictor: true }),
    ],
  ] as const
) {
  Deno.test(`draft tokens that are ${name} leave the distribution unchanged`, async () => {
    using folder = new TempFolder();
    writeModel(folder.path);
    const options = { device: "cpu", threads: 1, kvType: "F32" } as const;
    await using plain = await load(folder.path, { ...options, speculate: "off" });
    await using drafting = await load(folder.path, { ...options, speculate: 2 });
    const { texts, drafted, accepted } = await sample(drafting);
    assertEquals(texts, (await sample(plain)).texts, "the same seeds give the same texts");
    // The last token needs no draft token after it.
    assert(drafted >= TEXTS / 2, `only ${drafted} drafted`);
    assert(name === "mostly accepted" ? accepted > drafted / 2 : accepted < drafted / 2);
    const measured = chiSquare(texts, await probabilities(plain, TEMPERATURE));
    assert(measured < CRITICAL, `chi-square ${measured}`);
    // The test would find texts sampled at another temperature.
    const other = chiSquare(texts, await probabilities(plain, 2 * TEMPERATURE));
    assert(other > CRITICAL, `chi-square ${other} of another distribution`);
  });
}
