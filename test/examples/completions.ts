/**
 * Generates several completions of one prompt, computed once, and prints their mean
 * log-probabilities.
 */
import { load } from "../../src/mod.ts";

const demo = `${import.meta.dirname}/../../models/demo`;
await using model = await load(demo);

const options = { seed: 7, maxTokens: 24, temperature: 1, logprobs: 2 };
for (const { text, logprobs = [] } of await model.completeMany("Tell me a story.", 3, options)) {
  const mean = logprobs.reduce((sum, { logprob }) => sum + logprob, 0) / logprobs.length;
  const [first] = logprobs;
  const [best, second] = first?.top ?? [];
  console.log(`${mean.toFixed(3)}  ${text}`);
  console.log(
    `  began with "${first?.text}"; likeliest were "${best?.text}" and "${second?.text}"`,
  );
}
