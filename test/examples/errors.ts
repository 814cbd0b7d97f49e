/** Handles a ForgeError, which has a code for programs and a one-line message for people. */
import { ForgeError, load } from "../../src/mod.ts";

const demo = `${import.meta.dirname}/../../models/demo`;

async function report(action: () => Promise<unknown>): Promise<void> {
  try {
    await action();
  } catch (error) {
    if (!(error instanceof ForgeError)) throw error;
    console.log(`${error.code}: ${error.message}`);
  }
}

await report(() => load("no/such/model"));
await using model = await load(demo);
await report(() => model.complete("Hi", { temperature: -1 }));
await report(() => model.complete("Hi", { jsonSchema: { unevaluatedProperties: false } }));
await report(() => model.complete("word ".repeat(5000)));
