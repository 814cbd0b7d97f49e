/** Tests that the library rejects unknown options by name at run time. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import {
  describeSampling,
  ForgeError,
  load,
  type Model,
  openCheckpoint,
  openTokenizer,
  quantize,
  StreamDecoder,
} from "../../../../src/mod.ts";
import { GENERATE_OPTIONS } from "../../../../src/engine/request/options.ts";
import { createHandler, offerModels } from "../../../../src/serve/mod.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeEndlessLlama } from "../../../support/tiny_llama.ts";

const TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.role == 'sage' %}!" +
  "{% endif %}{% endfor %}";

// deno-lint-ignore no-explicit-any -- JavaScript programs may pass any value
type Anything = any;

async function withModel(test: (model: Model) => Promise<void>): Promise<void> {
  using folder = new TempFolder();
  writeEndlessLlama(folder.at("model"), { chatTemplate: TEMPLATE });
  await using model = await load(folder.at("model"), { device: "reference" });
  await test(model);
}

async function assertRefused(run: () => unknown, code: string, ...parts: string[]) {
  // deno-lint-ignore require-await -- turns a synchronous throw into a rejection
  const error = await assertRejects(async () => run(), ForgeError);
  assertEquals(error.code, code, error.message);
  for (const part of parts) assert(error.message.includes(part), error.message);
  assert(!error.message.includes("\n"), error.message);
}

Deno.test("unknown options and wrong types are rejected by name", async () => {
  await withModel(async (model) => {
    const cases: readonly (readonly [Anything, ...string[]])[] = [
      [{ max_tokens: 3 }, 'a generation has no option "max_tokens"', "did you mean maxTokens?"],
      [{ max_new_tokens: 3 }, "did you mean maxTokens?"],
      [{ tools: [] }, '"tools"', "templateVariables: { tools }"],
      [{ nonsense: 1 }, '"nonsense"', "valid are temperature, "],
      [{ maxTokens: "3" }, 'maxTokens is "3"; valid is a whole number'],
      [{ temperature: "hot" }, 'temperature is "hot"; valid is a number'],
      [{ stop: [1] }, "stop is an array; valid is a string or an array of strings"],
      [{ raw: "yes" }, 'raw is "yes"; valid is true or false'],
      [{ system: 5 }, "system is 5; valid is a string"],
      [{ signal: {} }, "signal is an object; valid is an AbortSignal"],
      [{ onPrefill: 1 }, "onPrefill is 1; valid is a function"],
      [{ templateVariables: [] }, "templateVariables is an array; valid is an object"],
      [{ reasoningLimit: { most: "5", close: 1 } }, "valid is { most, close, open }"],
      [{ constraint: {} }, "constraint is an object; valid is an object with the method start()"],
      [{ lora: [{ name: "a", scal: 1 }] }, "valid is the name of an adapter, or a list"],
      [{ lora: [{ name: "a", scale: "1" }] }, "valid is the name of an adapter, or a list"],
      [{ shownTokens: ["a"] }, "shownTokens is an array; valid is an array of token ids"],
      [null, "a generation is null; valid is an object of options"],
    ];
    for (const [options, ...parts] of cases) {
      await assertRefused(() => model.complete("hi", options), "usage", ...parts);
      await assertRefused(() => model.completeMany("hi", 2, options), "usage", ...parts);
    }
    await assertRefused(() => model.generate("hi", cases[0]![0]).next(), "usage", "max_tokens");
    await assertRefused(
      () => model.encodePrompt("hi", { sytem: "x" } as Anything),
      "usage",
      "system",
    );
    await assertRefused(() => model.embed(["a"], { pool: "cls" } as Anything), "usage", '"pool"');
    await assertRefused(() => model.rerank("a", ["b"], { cut: 1 } as Anything), "usage", '"cut"');
    await assertRefused(
      () => model.batch([], { order: true } as Anything).next(),
      "usage",
      "order",
    );
    await assertRefused(
      () => createHandler(model, { api_key: "x" } as Anything),
      "usage",
      "did you mean apiKey?",
    );
    const { completionTokens } = await model.complete("hi", { maxTokens: 1, stop: undefined });
    assertEquals(completionTokens, 1);
  });
  await assertRefused(() => load("x", { ctx: 5 } as Anything), "usage", '"ctx"', "contextLength");
});

Deno.test("each option of a generation accepts values of its form alone", () => {
  const limit = { most: 0, close: 0 };
  const cases: Readonly<Record<string, { good: Anything[]; bad: Anything[] }>> = {
    lora: {
      good: ["a", [], [{ name: "a" }, { name: 0, scale: 2 }]],
      bad: [5, null, { name: "a" }, [null], ["a"], [{}], [{ name: "a", scale: "1" }], [
        { name: "a" },
        { name: "b", extra: 1 },
      ]],
    },
    stop: { good: ["a", [], ["a", "b"]], bad: [1, null, ["a", 1]] },
    shownTokens: { good: [[], [1, 2]], bad: [1, "a", [1, "a"], [1.5]] },
    drySequenceBreakers: { good: [[], ["a"]], bad: ["a", ["a", ""], ["a", 1]] },
    reasoningLimit: {
      good: [limit, { ...limit, open: 0 }, { most: 9, close: 8, open: 7 }],
      bad: [
        ...[5, null, {}, { most: 1 }, { close: 1 }, { ...limit, most: 1.5 }],
        ...["most", "close", "open"].map((name) => ({ ...limit, [name]: -1 })),
      ],
    },
    constraint: { good: [{ start() {} }], bad: [{}, { start: 1 }, null, "start"] },
  };
  for (const [name, { good, bad }] of Object.entries(cases)) {
    const { accepts } = GENERATE_OPTIONS[name as keyof typeof GENERATE_OPTIONS]!;
    for (const value of good) assert(accepts(value), `${name} ${JSON.stringify(value)}`);
    for (const value of bad) assert(!accepts(value), `${name} ${JSON.stringify(value)}`);
  }
});

Deno.test("invalid prompts and unknown roles are rejected", async () => {
  await withModel(async (model) => {
    const cases: readonly (readonly [Anything, ...string[]])[] = [
      [[1, 2, 3], "list of numbers", "Int32Array.from(ids)"],
      [new Uint32Array([1, 2]), "list of numbers"],
      [[], "the conversation is empty"],
      [{ role: "user", content: "hi" }, "the prompt is an object; valid is a string, an array"],
      [undefined, "the prompt is undefined"],
      [["hi"], 'messages[0] is "hi"; valid is an object with role and content'],
      [[{ role: "robot", content: "hi" }], 'messages[0].role is "robot"; valid are "system"'],
      [[{ content: "hi" }], "messages[0].role is undefined"],
      [
        [{ role: "user", content: "hi" }, { role: "user", content: null }],
        "messages[1].content is null; valid is a string",
      ],
    ];
    for (const [prompt, ...parts] of cases) {
      await assertRefused(() => model.complete(prompt, { maxTokens: 1 }), "bad_input", ...parts);
    }
    for (const role of ["system", "tool", "sage"]) {
      await model.complete([{ role, content: "hi" }], { maxTokens: 1 });
    }
  });
});

const LOAD_REFUSALS: readonly (readonly [Anything, string])[] = [
  [{ device: ["cpu"] }, "device is an array; valid is a string"],
  [{ devices: "cpu,cpu" }, 'devices is "cpu,cpu"; valid is an array of strings'],
  [{ dataParallel: "2" }, 'dataParallel is "2"; valid is a number'],
  [{ contextLength: null }, "contextLength is null; valid is a number"],
  [{ onWarning: 3 }, "onWarning is 3; valid is a function"],
  [{ speculate: true }, "speculate is true; valid is auto, on, off or a number of tokens"],
  [{ draftModel: null }, "draftModel is null; valid is a string"],
  [{ lora: "adapter" }, 'lora is "adapter"; valid is an array of { path, scale, name }'],
];

const QUANTIZE_REFUSALS: readonly (readonly [readonly Anything[], string])[] = [
  [["model", "out.gguf"], "quantize is undefined; valid is an object of options"],
  [[5, "out.gguf", { type: "Q4_0" }], "the path of the model is 5; valid is a string"],
  [["model", 5, { type: "Q4_0" }], "the path of the file is 5; valid is a string"],
  [["model", "out.gguf", { type: "Q4_0", thread: 1 }], "did you mean threads?"],
  [["model", "out.gguf", { type: "Q4_0", overwrite: "no" }], 'overwrite is "no"; valid is true'],
  [["model", "out.gguf", { type: "Q4_0", signal: {} }], "signal is an object; valid is an Abort"],
];

/** Calls of functions that need no model, and parts of their errors. */
function readingRefusals(model: Model): readonly (readonly [() => unknown, string])[] {
  const decoder = (...args: Anything[]) => () => new (StreamDecoder as Anything)(...args);
  const sampling = model.resolveSampling({});
  const describe = (...args: Anything[]) => () => (describeSampling as Anything)(...args);
  const { topK: _, ...lacksTopK } = sampling;
  const { tokenizer } = model;
  return [
    [() => openCheckpoint(5 as Anything), "the path of the model is 5; valid is a string"],
    [() => openTokenizer("model" as Anything), 'the checkpoint is "model"; valid is the result of'],
    [
      () => openTokenizer(undefined as Anything),
      "the checkpoint is undefined; valid is the result",
    ],
    [() => openTokenizer({ path: "x" } as Anything), "the checkpoint is an object; valid is the"],
    [decoder(), "the tokenizer is undefined; valid is a Tokenizer"],
    [decoder(model), "the tokenizer is an object; valid is a Tokenizer"],
    [decoder(tokenizer, { starts: true }), 'a StreamDecoder has no option "starts"'],
    [decoder(tokenizer, { startsText: "yes" }), 'startsText is "yes"; valid is true or false'],
    [decoder(tokenizer, { shownTokens: [1] }), "shownTokens is an array; valid is a Set of token"],
    [decoder(tokenizer, null), "a StreamDecoder is null; valid is an object of options"],
    [describe(), "the sampling is undefined; valid is an object"],
    [describe({ temperature: 1 }), "topK is undefined; valid is a whole number from 0"],
    [describe(lacksTopK), "topK is undefined; valid is a whole number from 0"],
    [describe({ ...sampling, topP: "1" }), 'topP is "1"; valid is a number from 0 to 1'],
    [describe({ ...sampling, top: 1 }), 'the sampling has no option "top"'],
    [describe(sampling, 5), "describeSampling is 5; valid is an object of options"],
    [describe(sampling, { regexp: "a" }), "did you mean regex?"],
    [describe(sampling, { regex: 5 }), "regex is 5; valid is a string"],
    [describe(sampling, { logitBias: [1] }), "logitBias is an array; valid is an object"],
    [describe(sampling, { regex: "a", jsonObject: true }), "jsonObject and regex are given"],
  ];
}

Deno.test("arguments of the wrong type are rejected by name", async () => {
  await withModel(async (model) => {
    const any = model as Anything;
    const cases: readonly (readonly [() => unknown, string])[] = [
      [() => any.batch(5).next(), "requests is 5; valid is an array"],
      [() => any.embed("a"), 'texts is "a"; valid is an array of strings'],
      [() => any.embed([5]), "texts is an array; valid is an array of strings"],
      [() => any.rerank(5, ["a"]), "the query is 5; valid is a string"],
      [() => any.rerank("a", "b"), 'documents is "b"; valid is an array of strings'],
      [() => any.score("a"), 'tokens is "a"; valid is an Int32Array'],
      [() => any.score([1, 2]), "tokens is an array; valid is an Int32Array"],
      [() => any.completeMany("a", "2"), 'n is "2"; valid is a whole number'],
      [() => any.topKCandidates("a", "2"), 'k is "2"; valid is a whole number'],
      [() => any.savePrompt(5, "a"), "the path is 5; valid is a string"],
      [() => any.loadPrompt(5), "the path is 5; valid is a string"],
      [() => any.score(Int32Array.of(1, 2), {}), "signal is an object; valid is an AbortSignal"],
      [() => any.logits("a", { loras: [] }), 'logits has no option "loras"; did you mean lora?'],
      [() => any.loadPrompt("a", { lora: 5 }), "lora is 5; valid is the name of an adapter"],
      [() => any.resolveSampling({ temp: 1 }), 'no option "temp"; did you mean temperature?'],
      [() => createHandler(model, { anyHost: 1 } as Anything), "anyHost is 1; valid is true"],
      [() => createHandler(model, { names: "a" } as Anything), 'names is "a"; valid is an array'],
      [() => offerModels([], { keepAlive: 5 } as Anything), "did you mean keepAliveMs?"],
      [() => createHandler({} as Anything), "the model is an object; valid is a Model, or the"],
      [
        () => offerModels(model as Anything),
        "sources is an object; valid is an array of models to",
      ],
      [() => offerModels([null] as Anything), "a model to offer is null; valid is an object"],
      [
        () => offerModels([{ names: [] }] as Anything),
        "names is an array; valid is an array of at",
      ],
      [
        () => offerModels([{ names: ["a"] }] as Anything),
        "checkpoint is undefined; valid is a func",
      ],
      [() => any.savePrompt("a", "b", null), "a prompt is null; valid is an object of options"],
      [() => any.tokenizer.encode(5), "the text is 5; valid is a string"],
      [() => any.tokenizer.encode("a", { add: 1 }), 'encode has no option "add"; valid are addSp'],
      [() => any.tokenizer.encode("a", { truncate: 1 }), "truncate is 1; valid is true or false"],
      [() => any.tokenizer.decode(5), "ids is 5; valid is an array of token ids"],
      [() => any.tokenizer.decode([1], { skip_special: 1 }), "did you mean skipSpecial?"],
      [() => any.tokenizer.idOf(5), "the token is 5; valid is a string"],
      ...readingRefusals(model),
      [() => (load as Anything)(5), "the path of the model is 5; valid is a string"],
      ...LOAD_REFUSALS.map(([options, message]) => {
        return [() => (load as Anything)("model", options), message] as const;
      }),
      ...QUANTIZE_REFUSALS.map(([args, message]) => {
        return [() => (quantize as Anything)(...args), message] as const;
      }),
    ];
    for (const [run, message] of cases) await assertRefused(run, "usage", message);
  });
});

Deno.test("a batch rejects an invalid request and continues", async () => {
  await withModel(async (model) => {
    const requests: Anything[] = [
      { id: 1, prompt: "a", maxTokens: 1 },
      { id: 2, prompt: "a", maxTokens: 1, messages: [] },
      { id: 3, prompt: "a", max_tokens: 1 },
      { id: 4, prompt: [1, 2], maxTokens: 1 },
      null,
    ];
    const errors: (string | undefined)[] = [];
    for await (const { error } of model.batch(requests, { ordered: true })) {
      errors.push(error?.message.split(";")[0]);
    }
    assertEquals(errors, [
      undefined,
      'a request of a batch has no option "messages"',
      'a request of a batch has no option "max_tokens"',
      "the prompt is a list of numbers",
      "request 4 of the batch is null",
    ]);
  });
});

Deno.test("adapters of a model are rejected by name", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.path);
  const cases: readonly (readonly [Anything, string])[] = [
    [null, "an adapter is null; valid is an object of options"],
    ["path", 'an adapter is "path"; valid is an object of options'],
    [{}, "the path of an adapter is undefined; valid is a string"],
    [{ path: "a", scales: 2 }, 'an adapter has no option "scales"; did you mean scale?'],
    [{ path: "a", scale: "2" }, 'scale is "2"; valid is a number'],
    [{ path: "a", scale: 1e39 }, 'the scale of the adapter "a" is 1e+39'],
    [{ path: "a", name: 5 }, "name is 5; valid is a string"],
  ];
  for (const [adapter, message] of cases) {
    const options = { device: "reference", lora: [adapter] };
    await assertRefused(() => load(folder.path, options), "usage", message);
  }
});
