/** Answers of real models conform to their constraints, in batches of many constraints. */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { type BatchRequest, type Completion, load, type Model } from "../../../src/mod.ts";
import { JSON_SCHEMAS } from "../../support/json_schemas.ts";
import { validator } from "../../support/json_schema_validator.ts";
import { Random } from "../../support/random.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";

const DEMO = join(import.meta.dirname!, "..", "..", "..", "models", "demo");
const MODELS: [name: string, path: string, ignore: boolean][] = [
  ["demo", DEMO, false],
  [
    "stories260K",
    sharedPath("models", "stories260K"),
    !sharedAvailable("models", "stories260K"),
  ],
];

const REGEXES = [
  "(?:yes|no), [a-z]{3,8}\\.",
  "\\p{Lu}\\p{Ll}{2,9} (?:was|is) [^\\n.]{4,30}\\.",
  "\\d{4}-\\d\\d(?:-\\d\\d)?",
  " ?é{1,3}\\u{1F642}",
];

const GRAMMAR = `root ::= line{1,3}
line ::= "- " word (" " word){0,4} "\\n"
word ::= [a-z]{1,8} | "\\"" [^"\\n]{1,8} "\\""`;

/** Returns all answers by the id of their request. Fails if an answer is missing. */
async function answers(
  model: Model,
  requests: BatchRequest[],
): Promise<Map<string, Completion>> {
  const found = new Map<string, Completion>();
  for await (const { id, completion, error } of model.batch(requests)) {
    if (completion === undefined) throw error;
    found.set(String(id), completion);
  }
  assertEquals(found.size, requests.length);
  return found;
}

for (const [name, path, ignore] of MODELS) {
  Deno.test({
    name: `constraints on ${name}: every complete answer is valid for its schema`,
    ignore,
    fn: async () => {
      await using model = await load(path, { contextLength: 256, parallel: 16 });
      const random = new Random(`constraints on ${name}`);
      const requests = Object.entries(JSON_SCHEMAS).map(([id, jsonSchema]) => ({
        id,
        prompt: random.pick(["Once upon a time", "Answer:", '{"']),
        raw: random.chance(0.5),
        jsonSchema: JSON.parse(JSON.stringify(jsonSchema)),
        seed: random.u32(),
        temperature: random.pick([0, 0.7, 1.5]),
        topK: random.pick([0, 3, 40]),
        repeatPenalty: random.pick([1, 1.3]),
        maxTokens: 150,
      }));
      let whole = 0;
      for (const [id, { text, finishReason }] of await answers(model, requests)) {
        if (finishReason === "length") continue;
        assert(finishReason === "constraint_complete" || finishReason === "stop", id);
        const wrong = validator(JSON_SCHEMAS[id])(JSON.parse(text));
        assertEquals(wrong, undefined, `${id}: ${text}`);
        whole++;
      }
      assert(whole >= 60, `${whole} of ${requests.length} answers are whole`);
    },
  });

  Deno.test({
    name: `constraints on ${name}: answers match regular expressions and grammars, even when cut`,
    ignore,
    fn: async () => {
      await using model = await load(path, { contextLength: 256, parallel: 8 });
      const random = new Random(`patterns on ${name}`);
      const requests = REGEXES.flatMap((regex) =>
        [1, 2, 3].map((i) => ({
          id: `${i} ${regex}`,
          prompt: "Once upon a time",
          raw: i > 1,
          regex,
          seed: random.u32(),
          temperature: 1,
          maxTokens: 80,
        }))
      );
      const lines = { id: "lines", prompt: "A list:", grammar: GRAMMAR, maxTokens: 150, seed: 4 };
      const found = await answers(model, [...requests, lines]);
      for (const { id, regex } of requests) {
        const { text, finishReason } = found.get(id)!;
        const whole = new RegExp(`^(?:${regex})$`, "u");
        assert(finishReason === "length" || whole.test(text), `${id}: ${JSON.stringify(text)}`);
      }
      const { text, finishReason } = found.get("lines")!;
      const line = /^- (?:[a-z]{1,8}|"[^"\n]{1,8}")(?: (?:[a-z]{1,8}|"[^"\n]{1,8}")){0,4}$/;
      const whole = text.split("\n").slice(0, finishReason === "length" ? -1 : undefined);
      for (const part of whole.filter((part) => part !== "")) assert(line.test(part), text);
    },
  });
}

Deno.test("constraints: an answer does not depend on other requests of the batch", async () => {
  await using model = await load(DEMO, { contextLength: 256, parallel: 4 });
  const options = { regex: "[a-z ]{20,40}\\.", seed: 7, temperature: 1 };
  const request = { prompt: "Once", ...options };
  const alone = await model.complete(request.prompt, options);
  const found = await answers(model, [
    { id: "a", ...request },
    { id: "b", ...request, regex: "[A-Z ]{20,40}!" },
    { id: "c", ...request, regex: undefined, maxTokens: 30 },
    { id: "d", ...request },
  ]);
  assertEquals(found.get("a")!.tokenIds, alone.tokenIds);
  assertEquals(found.get("d")!.tokenIds, alone.tokenIds);
  assert(/^[A-Z ]{20,40}!$/.test(found.get("b")!.text));
});

Deno.test("constraints: work with stop strings, log-probabilities, bias and a token limit", async () => {
  await using model = await load(DEMO, { contextLength: 256, parallel: 2 });
  const base = { seed: 3, temperature: 1 };
  const stopped = await model.complete("Once", { ...base, regex: "ab[cd]{5}stop.*", stop: "stop" });
  assert(/^ab[cd]{5}$/.test(stopped.text), stopped.text);
  assertEquals(stopped.finishReason, "stop");
  const detailed = await model.complete("Once", { ...base, regex: "abc", logprobs: 2 });
  assertEquals(detailed.text, "abc");
  assertEquals(detailed.logprobs?.length, detailed.tokenIds.length);
  const cut = await model.complete("Once", { ...base, regex: "a{100}", maxTokens: 3 });
  assertEquals(cut.finishReason, "length");
  const a = model.tokenizer.encode("a", { addSpecial: false }).at(-1)!;
  const biased = await model.complete("Once", {
    ...base,
    raw: true,
    regex: "[ab]",
    logitBias: { [a]: -Infinity },
  });
  assertEquals(biased.text, "b");
});

Deno.test("constraints: an invalid one fails alone in a batch", async () => {
  await using model = await load(DEMO, { contextLength: 256, parallel: 2 });
  const errors: string[] = [];
  let good = 0;
  for await (
    const { completion, error } of model.batch([
      { prompt: "a", jsonSchema: { not: {} } },
      { prompt: "a", regex: "x{3}" },
      { prompt: "a", regex: "x", grammar: "y" },
    ])
  ) {
    if (completion === undefined) errors.push(error.message);
    else good++;
  }
  assertEquals(good, 1);
  assert(errors.some((message) => message.includes('"not"')));
  assert(errors.some((message) => message.includes("regex and grammar")));
});

Deno.test("topKCandidates returns the most probable tokens and their probabilities", async () => {
  await using model = await load(DEMO, { contextLength: 64, parallel: 1 });
  const logits = await model.logits("Once upon a");
  const best = await model.topKCandidates("Once upon a", 5);
  assertEquals(best.length, 5);
  assertEquals(best[0]!.token, logits.indexOf(Math.max(...logits)));
  assert(best.every(({ probability }, i) => i === 0 || probability <= best[i - 1]!.probability));
  const all = await model.topKCandidates("Once upon a", logits.length);
  const total = all.reduce((sum, { probability }) => sum + probability, 0);
  assert(Math.abs(total - 1) < 1e-6, `${total}`);
});
