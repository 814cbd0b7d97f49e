/** Tests reading the lines of a batch file: options and errors. */
import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { parseEntry, readRequest } from "../../../src/cli/batch/line.ts";
import { ForgeError } from "../../../src/errors.ts";
import type { GenerateOptions } from "../../../src/mod.ts";

function read(line: unknown, defaults: GenerateOptions = {}) {
  const text = typeof line === "string" ? line : JSON.stringify(line);
  return readRequest(parseEntry(text, 7), defaults);
}

function refusal(line: unknown): string {
  const error = assertThrows(() => read(line), ForgeError);
  assertEquals([error.code, error.message.includes("\n")], ["bad_input", false]);
  return error.message;
}

Deno.test("batch line: every option under its JSON name", () => {
  const request = read({
    id: "a",
    prompt: "hi",
    model: "any",
    max_tokens: 5,
    temperature: 0.5,
    top_k: 3,
    top_p: 0.9,
    min_p: 0.1,
    seed: 42,
    presence_penalty: 0.1,
    frequency_penalty: -0.2,
    repetition_penalty: 1.1,
    repeat_last_n: -1,
    dry_multiplier: 0.8,
    dry_base: 2,
    dry_allowed_length: 3,
    dry_penalty_last_n: 100,
    lora: [{ id: 1, scale: 0.5 }, { name: "x" }],
    dry_sequence_breakers: ["\n"],
    top_n_sigma: -1,
    typical_p: 0.9,
    xtc_probability: 0.5,
    xtc_threshold: 0.2,
    dynatemp_range: 0.4,
    dynatemp_exponent: 2,
    mirostat: 2,
    mirostat_tau: 4,
    mirostat_eta: 0.2,
    logit_bias: { "5": -100 },
    n: 2,
    stop: ["x", "y"],
    logprobs: 2,
    system: "be brief",
    raw: false,
    chat_template_kwargs: { enable_thinking: false },
  });
  assertEquals({ ...request }, {
    id: "a",
    prompt: "hi",
    maxTokens: 5,
    temperature: 0.5,
    topK: 3,
    topP: 0.9,
    minP: 0.1,
    seed: 42,
    presencePenalty: 0.1,
    frequencyPenalty: -0.2,
    repeatPenalty: 1.1,
    repeatLastN: -1,
    dryMultiplier: 0.8,
    dryBase: 2,
    dryAllowedLength: 3,
    dryPenaltyLastN: 100,
    lora: [{ name: 1, scale: 0.5 }, { name: "x", scale: undefined }],
    drySequenceBreakers: ["\n"],
    topNSigma: -1,
    typicalP: 0.9,
    xtcProbability: 0.5,
    xtcThreshold: 0.2,
    dynatempRange: 0.4,
    dynatempExponent: 2,
    mirostat: 2,
    mirostatTau: 4,
    mirostatEta: 0.2,
    logitBias: { "5": -100 },
    n: 2,
    stop: ["x", "y"],
    logprobs: 2,
    system: "be brief",
    raw: false,
    templateVariables: { enable_thinking: false },
  });
});

Deno.test("batch line: defaults, null and the spellings of OpenAI's API", () => {
  assertEquals(read({ prompt: "x" }, { temperature: 0, seed: 1 }), {
    id: 7,
    prompt: "x",
    temperature: 0,
    seed: 1,
  });
  const over = read({ prompt: "x", temperature: 1, seed: null }, { temperature: 0, seed: 1 });
  assertEquals([over.temperature, over.seed], [1, 1]);
  assertEquals(read({ prompt: "x", max_completion_tokens: 3, max_tokens: null }).maxTokens, 3);
  assertEquals(read({ prompt: "x", max_tokens: -1 }, { maxTokens: 5 }).maxTokens, undefined);
  assertEquals(read({ prompt: "x", logprobs: true }).logprobs, 0);
  assertEquals(read({ prompt: "x", logprobs: true, top_logprobs: 4 }).logprobs, 4);
  assertEquals(read({ prompt: "x", logprobs: false }, { logprobs: 3 }).logprobs, undefined);
  assertEquals(read({ prompt: [1, 2] }).prompt, Int32Array.of(1, 2));
  const parts = [{ type: "text", text: "a" }, { type: "text", text: "b" }];
  assertEquals(read({ messages: [{ role: "user", content: parts, name: "n" }] }).prompt, [
    { role: "user", content: "ab", name: "n" },
  ]);
});

Deno.test("batch line: a constraint replaces that of the batch", () => {
  const defaults = { jsonObject: true, temperature: 0 };
  const schema = { type: "integer" };
  assertEquals(read({ prompt: "x", regex: "a+" }, defaults), {
    id: 7,
    prompt: "x",
    temperature: 0,
    jsonSchema: undefined,
    jsonObject: undefined,
    regex: "a+",
    grammar: undefined,
    constraintScope: undefined,
  });
  assertEquals(read({ prompt: "x" }, defaults).jsonObject, true);
  assertEquals(read({ prompt: "x", json_schema: schema }, defaults).jsonSchema, schema);
  assertEquals(read({ prompt: "x", grammar: 'root ::= "a"' }).grammar, 'root ::= "a"');
  const format = (response_format: unknown) => read({ prompt: "x", response_format });
  assertEquals(format({ type: "json_object" }).jsonObject, true);
  assertEquals(format({ type: "json_schema", json_schema: { schema } }).jsonSchema, schema);
  assertEquals(format({ type: "text" }).jsonObject, undefined);
  assertStringIncludes(
    refusal({ prompt: "x", regex: "a", json_object: true }),
    "json_object or regex, not both",
  );
  assertStringIncludes(refusal({ prompt: "x", json_schema: "{}" }), 'json_schema is "{}"');
  assertStringIncludes(refusal({ prompt: "x", response_format: { type: "xml" } }), "xml");
  const bare = { type: "json_schema", json_schema: {} };
  assertStringIncludes(refusal({ prompt: "x", response_format: bare }), "schema is missing");
});

Deno.test("batch line: the envelope of OpenAI's batch API", () => {
  const messages = [{ role: "user", content: "hi" }];
  const chat = { custom_id: "r1", method: "POST", url: "/v1/chat/completions" };
  assertEquals(read({ ...chat, body: { model: "m", messages, max_tokens: 2 } }), {
    id: "r1",
    prompt: messages,
    maxTokens: 2,
  });
  const text = { custom_id: "r2", method: "POST", url: "/v1/completions" };
  assertEquals(read({ ...text, body: { prompt: "Once" } }), {
    id: "r2",
    prompt: "Once",
    raw: true,
  });
  assertStringIncludes(refusal({ ...chat, url: "/v1/embeddings", body: {} }), "/v1/embeddings");
  assertStringIncludes(refusal({ ...chat, method: "GET", body: {} }), "GET");
  assertStringIncludes(refusal({ id: "x", body: { prompt: "a" } }), '"id"');
  assertStringIncludes(refusal({ custom_id: "x" }), "body is missing");
  assertStringIncludes(refusal({ ...chat, body: { id: 1, prompt: "a" } }), '"id"');
});

Deno.test("batch line: errors name the wrong value and the valid ones", () => {
  const cases: [unknown, ...string[]][] = [
    ["", "not valid JSON"],
    ["[1]", "an array"],
    ["null", "null"],
    ['{"prompt": "a", "prompt": "b"}', '"prompt"', "duplicate"],
    [{}, "prompt or messages is missing"],
    [{ prompt: "a", messages: [] }, "not both"],
    [{ prompt: 5 }, "prompt is 5"],
    [{ prompt: [1, -1] }, "prompt is an array"],
    [{ messages: [] }, "messages"],
    [{ messages: ["a"] }, "messages[0] is"],
    [{ messages: [{ role: "user" }] }, "messages[0].content is missing"],
    [{ messages: [{ content: "x" }] }, "messages[0].role"],
    [{ messages: [{ role: "user", content: [{ type: "image_url" }] }] }, "image_url"],
    [{ prompt: "a", model: 5 }, "model is 5"],
    [{ prompt: "a", id: 1.5 }, "id is 1.5"],
    [{ prompt: "a", id: true }, "id is true"],
    ['{"prompt": "a", "id": 12345678901234567890}', "id is 12345678901234567000"],
    [{ prompt: "a", max_tokens: -2 }, "max_tokens is -2", "0 to"],
    [{ prompt: "a", max_tokens: 1.5 }, "whole number"],
    [{ prompt: "a", max_tokens: "5" }, 'max_tokens is "5"'],
    [{ prompt: "a", max_tokens: 5, max_completion_tokens: 5 }, "not both"],
    [{ prompt: "a", temperature: 1000 }, "temperature is 1000", "0 to 100"],
    [{ prompt: "a", stop: "" }, 'stop is ""'],
    [{ prompt: "a", stop: ["a", 3] }, "stop is 3"],
    [{ prompt: "a", logprobs: 21 }, "logprobs is 21"],
    [{ prompt: "a", top_logprobs: 2 }, '"logprobs": true'],
    [{ prompt: "a", logit_bias: { "5": "x" } }, 'logit_bias["5"] is "x"; valid is a number'],
    [{ prompt: "a", n: 0 }, "n is 0"],
    [{ prompt: "a", raw: "yes" }, 'raw is "yes"'],
    [{ prompt: "a", maxTokens: 1 }, "did you mean max_tokens"],
    [{ prompt: "a", temprature: 1 }, "did you mean temperature"],
    [{ prompt: "a", n_predict: 1 }, "did you mean max_tokens"],
    [{ prompt: "a", mirostat: 1 }, "mirostat is 1; valid is 0 or 2"],
    [{ prompt: "a", dry_base: 0.5 }, "dry_base is 0.5; valid is a number from 1 to 100"],
    [
      { prompt: "a", dry_sequence_breakers: "x" },
      'dry_sequence_breakers is "x"',
      "a list of texts",
    ],
    [{ prompt: "a", dry_sequence_breakers: [""] }, 'dry_sequence_breakers is ""'],
    [{ prompt: "a", dynatemp_exp: 1 }, "did you mean dynatemp_exponent"],
    [{ prompt: "a", toString: 1 }, '"toString"', "valid are"],
    ['{"prompt": "a", "__proto__": 1}', '"__proto__"'],
  ];
  for (const [line, ...parts] of cases) {
    const message = refusal(line);
    for (const part of parts) assertStringIncludes(message, part);
  }
});

Deno.test("batch line: the name that llama.cpp has for the repetition penalty", () => {
  assertEquals(read({ prompt: "a", repeat_penalty: 1.2 }).repeatPenalty, 1.2);
});
