/**
 * Speculative decoding changes no token and no log-probability, for every family: a row's result
 * has the same bits in every step.
 */
import { assert, assertEquals } from "@std/assert";
import { load, type LoadOptions } from "../../../src/mod.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { readJson, type Reference } from "../reference_check.ts";

const ignore = !sharedAvailable("models", "tiny");
const families = ignore
  ? []
  : Array.from(Deno.readDirSync(sharedPath("models", "tiny")), ({ name }) => name);

/** Greedy: random weights fall into loops. Sampled: few draft tokens are accepted. */
const REQUESTS = [
  { temperature: 0, seed: 1, maxTokens: 60, logprobs: 2 },
  { temperature: 1.5, seed: 2, maxTokens: 40, logprobs: 1, frequencyPenalty: 0.4 },
];

async function generate(family: string, options: LoadOptions) {
  const folder = sharedPath("models", "tiny", family);
  const { prompt_ids } = readJson<Reference>(`${folder}/reference.json`);
  await using model = await load(folder, { device: "cpu", threads: 2, ...options });
  // Repeated, so that the prompt lookup finds draft tokens.
  const prompt = Int32Array.from([...prompt_ids, ...prompt_ids]);
  // Repeats one token, so that all draft tokens are accepted.
  const again = { logitBias: { [prompt_ids[1]!]: 1e4 }, temperature: 0, seed: 3, maxTokens: 30 };
  const requests = [...REQUESTS, { ...again, logprobs: 2 }];
  return await Promise.all(requests.map((request) => model.complete(prompt, request)));
}

for (const family of families) {
  Deno.test({
    name: `tiny ${family}: draft tokens change no result`,
    ignore,
    fn: async () => {
      const plain = await generate(family, { speculate: "off" });
      let drafted = 0;
      for (const speculate of [3, 12]) {
        const answers = await generate(family, { speculate });
        for (const [i, { timings, ...answer }] of answers.entries()) {
          const { timings: _, ...expected } = plain[i]!;
          assertEquals(answer, expected);
          drafted += timings.drafted;
        }
      }
      assert(drafted > 20, `only ${drafted} draft tokens`);
    },
  });
}
