/** Ranks sentences by the similarity of their vectors to a question's. */
import { load } from "../../src/mod.ts";

const demo = `${import.meta.dirname}/../../models/demo`;
await using model = await load(demo);

const sentences = [
  "The dog ran to the park with a red ball.",
  "Mom made a big cake for the party.",
  "The little boat went far out on the sea.",
];
const query = "A cat played in the park with a small ball.";
const [asked, ...known] = await model.embed([query, ...sentences], { pooling: "mean" });

/** Returns the cosine similarity of two unit vectors. */
const cosine = (a: Float32Array, b: Float32Array) => a.reduce((sum, x, i) => sum + x * b[i]!, 0);
const ranked = known.map(({ vector }, i) => ({
  similarity: cosine(asked!.vector, vector),
  sentence: sentences[i],
})).sort((a, b) => b.similarity - a.similarity);
for (const { similarity, sentence } of ranked) {
  console.log(`${similarity.toFixed(3)}  ${sentence}`);
}
