/** Answers many prompts, several at a time; results arrive as they finish. */
import { load } from "../../src/mod.ts";

const demo = `${import.meta.dirname}/../../models/demo`;
await using model = await load(demo, { parallel: 8 });

const animals = ["cow", "dog", "cat", "duck", "horse", "sheep"];
const requests = animals.map((animal) => ({
  id: animal,
  prompt: `What sound does a ${animal} make?`,
  temperature: 0,
  maxTokens: 32,
}));
for await (const { id, completion, error } of model.batch(requests)) {
  console.log(`${id}: ${completion?.text ?? error?.message}`);
}
