/** Cost of constraints: compile time, and mask time compared with a model's step. */
import { median } from "../src/bench/statistics.ts";
import { plural } from "../src/cli/output/format.ts";
import { openBackend } from "../src/engine/load/open_backend.ts";
import { type ConstraintOptions, Model, openCheckpoint } from "../src/mod.ts";
import { type BenchOptions, benchSubject } from "./bench_options.ts";

const person = {
  type: "object",
  properties: {
    name: { type: "string" },
    age: { type: "integer", minimum: 0, maximum: 150 },
    email: { type: "string", format: "email" },
    tags: { type: "array", items: { type: "string" } },
  },
  required: ["name", "age", "email", "tags"],
};

const CONSTRAINTS: Readonly<Record<string, ConstraintOptions>> = {
  "a person in JSON": { jsonSchema: person },
  "any JSON object": { jsonObject: true },
  "a string of up to 60": { jsonSchema: { type: "string", maxLength: 60 } },
  "a string of up to 4096": { jsonSchema: { type: "string", maxLength: 4096 } },
  "a list of up to 100": {
    jsonSchema: { type: "array", items: { type: "string", maxLength: 200 }, maxItems: 100 },
  },
  "sentences": { regex: "(?:[A-Z][a-z ,]{3,80}\\. )*" },
};

/** Prints, for each constraint, its compile time and its masks' share of a decode step. */
export async function benchConstraints(options: BenchOptions): Promise<void> {
  const { device, nGen, rounds, threads } = options;
  using subject = benchSubject(options);
  const checkpoint = typeof subject.model === "string"
    ? openCheckpoint(subject.model)
    : subject.model;
  await using model = await Model.open(checkpoint, [openBackend(device, threads)], {
    parallel: 1,
    contextLength: nGen + 16,
  });
  const { vocabSize } = model.tokenizer;
  console.log(`${subject.name}: ${plural(vocabSize, "token")}, ${plural(threads, "thread")}`);
  const free = await stepTime(model, {}, nGen, rounds);
  console.log(`  without: ${free.toFixed(3)} ms a step`);
  for (const [name, constraint] of Object.entries(CONSTRAINTS)) {
    const before = model.constraintCost;
    const step = await stepTime(model, constraint, nGen, rounds);
    const after = model.constraintCost!;
    const compile = after.compileMs - (before?.compileMs ?? 0);
    const mask = (after.maskMs - (before?.maskMs ?? 0)) / (after.masks - (before?.masks ?? 0));
    console.log(
      `  ${name}: compiled in ${compile.toFixed(0)} ms, ${mask.toFixed(4)} ms a mask ` +
        `(${(100 * mask / free).toFixed(2)}% of a step), ` +
        (Number.isNaN(step) ? "texts too short to be timed" : `${step.toFixed(3)} ms a step`),
    );
  }
}

/** In shorter texts most tokens are forced and take no time, so they say little about a step. */
const FEWEST_TOKENS = 8;

/** Milliseconds per decode step, the median of the rounds; NaN if no text was long enough. */
async function stepTime(
  model: Model,
  constraint: ConstraintOptions,
  nGen: number,
  rounds: number,
): Promise<number> {
  const times: number[] = [];
  for (let seed = 0; seed <= rounds; seed++) {
    const { timings, completionTokens: tokens } = await model.complete("x", {
      ...constraint,
      raw: true,
      seed,
      temperature: 1,
      topK: 0,
      topP: 1,
      minP: 0,
      maxTokens: nGen,
    });
    // The first round warms up.
    if (seed > 0 && tokens >= FEWEST_TOKENS) times.push(timings.decodeMs / (tokens - 1));
  }
  return times.length === 0 ? NaN : median(times);
}
