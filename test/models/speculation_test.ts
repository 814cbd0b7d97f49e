/**
 * Every family with guesses gives the tokens and log-probabilities that it gives without, whatever
 * its layers are made of: a row of a step has the bits that it has alone.
 */
import { assert, assertEquals } from "@std/assert";
import { load, type LoadOptions } from "../../src/mod.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { readJson, type Reference } from "./reference_check.ts";

/** Their state cannot be taken back. */
const RECURRENT = ["qwen3_5_text"];

const ignore = !sharedAvailable("models", "tiny");
const families = ignore
  ? []
  : Array.from(Deno.readDirSync(sharedPath("models", "tiny")), ({ name }) => name);

/** Greedy, with the loops that random weights fall into; and drawn, where few guesses come true. */
const REQUESTS = [
  { temperature: 0, seed: 1, maxTokens: 60, logprobs: 2 },
  { temperature: 1.5, seed: 2, maxTokens: 40, logprobs: 1, frequencyPenalty: 0.4 },
];

async function tell(family: string, options: LoadOptions) {
  const folder = sharedPath("models", "tiny", family);
  const { prompt_ids } = readJson<Reference>(`${folder}/reference.json`);
  await using model = await load(folder, { device: "cpu", threads: 2, ...options });
  // Twice the same, so that the look-up has something to go on with.
  const prompt = Int32Array.from([...prompt_ids, ...prompt_ids]);
  // One token again and again, whatever the weights say.
  const again = { logitBias: { [prompt_ids[1]!]: 1e4 }, temperature: 0, seed: 3, maxTokens: 30 };
  const requests = [...REQUESTS, { ...again, logprobs: 2 }];
  return await Promise.all(requests.map((request) => model.complete(prompt, request)));
}

for (const family of families.filter((name) => !RECURRENT.includes(name))) {
  Deno.test({
    name: `tiny ${family}: guesses change no token`,
    ignore,
    fn: async () => {
      const plain = await tell(family, { speculate: "off" });
      let drafted = 0;
      for (const speculate of [3, 12]) {
        const guessed = await tell(family, { speculate });
        for (const [i, { timings, ...answer }] of guessed.entries()) {
          const { timings: _, ...expected } = plain[i]!;
          assertEquals(answer, expected);
          drafted += timings.drafted;
        }
      }
      assert(drafted > 20, `only ${drafted} tokens were guessed`);
    },
  });
}
