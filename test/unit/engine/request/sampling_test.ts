import { assert, assertEquals, assertThrows } from "@std/assert";
import { describeSampling } from "../../../../src/engine/request/describe_sampling.ts";
import {
  commonField,
  describeRange,
  historySize,
  isSampledOnHost,
  modelDefaults,
  penaltyHistories,
  type ResolvedSampling,
  resolveLogitBias,
  resolveSampling,
  SAMPLING_DEFAULTS,
  SAMPLING_FIELDS,
  SAMPLING_RANGES,
  type SamplingOptions,
  samplingParams,
} from "../../../../src/engine/request/sampling.ts";
import {
  type GenerationRequest,
  resolveRequest,
} from "../../../../src/engine/generation/request.ts";
import type { GenerateOptions } from "../../../../src/engine/request/options.ts";
import type { Runner } from "../../../../src/engine/runner.ts";
import { type SequenceAdapters, TokenList } from "../../../../src/engine/token_list.ts";
import { ForgeError } from "../../../../src/errors.ts";
import type { GgufValue } from "../../../../src/formats/gguf/types.ts";
import type { JsonObject } from "../../../../src/formats/json.ts";
import { show } from "../../../../src/formats/quote.ts";
import { fakeCheckpoint } from "../../models/fakes.ts";

function resolved(options: SamplingOptions): ResolvedSampling {
  return resolveSampling({ seed: 1, ...options }, SAMPLING_DEFAULTS);
}

function jsonDefaults(generationConfig: JsonObject) {
  return modelDefaults({ ...fakeCheckpoint({}), generationConfig });
}

function ggufDefaults(metadata: Readonly<Record<string, GgufValue>>) {
  return modelDefaults(fakeCheckpoint({ metadata }));
}

Deno.test("every option has a default", () => {
  assertEquals(resolved({}), { ...SAMPLING_DEFAULTS, seed: 1 });
  assertEquals(SAMPLING_DEFAULTS, {
    temperature: 0.8,
    topK: 40,
    topP: 0.95,
    minP: 0.05,
    repeatPenalty: 1,
    repeatLastN: 64,
    presencePenalty: 0,
    frequencyPenalty: 0,
    dryMultiplier: 0,
    dryBase: 1.75,
    dryAllowedLength: 2,
    dryPenaltyLastN: -1,
    topNSigma: 0,
    typicalP: 1,
    xtcProbability: 0,
    xtcThreshold: 0.1,
    dynatempRange: 0,
    dynatempExponent: 1,
    mirostat: 0,
    mirostatTau: 5,
    mirostatEta: 0.1,
  });
});

Deno.test("an undefined option counts as missing", () => {
  assertEquals(resolved({ temperature: undefined, topK: undefined }), resolved({}));
});

Deno.test("a missing seed is drawn and is valid", () => {
  const draw = () => resolveSampling({}, SAMPLING_DEFAULTS).seed;
  const seeds = Array.from({ length: 20 }, draw);
  assert(new Set(seeds).size > 10);
  for (const seed of seeds) assertEquals(resolved({ seed }).seed, seed);
});

Deno.test("options accept the ends of their ranges and nothing beyond", () => {
  for (const name of Object.keys(SAMPLING_RANGES) as (keyof SamplingOptions)[]) {
    const { min, max, step } = SAMPLING_RANGES[name];
    for (const value of [min, max]) assertEquals(resolved({ [name]: value })[name], value);
    const bad = [
      min - 1,
      max + 1,
      NaN,
      Infinity,
      -Infinity,
      "1",
      null,
      ...(step > 0 ? [step / 2] : []),
    ];
    for (const value of bad) {
      const error = assertThrows(
        () => resolved({ [name]: value } as SamplingOptions),
        ForgeError,
        step === 2
          ? `${name} is ${show(value)}; valid is ${min} or ${max}`
          : `${name} is ${show(value)}; valid is ${
            step === 1 ? "a whole number" : "a number"
          } from ${min} to`,
      );
      assertEquals(error.code, "usage");
    }
  }
});

Deno.test("each option has its range and its keys in requests", () => {
  const [share, size] = ["a number from 0 to 1", "a number from 0 to 100"];
  const count = `a whole number from 0 to ${2 ** 30}`, last = count.replace("0", "-1");
  const [penalty, either] = ["a number from -100 to 100", "0 or 2"];
  const options = {
    temperature: [size, "temperature"],
    topK: [count, "top_k"],
    topP: [share, "top_p"],
    minP: [share, "min_p"],
    repeatPenalty: ["a number from 0.01 to 100", "repetition_penalty", "repeat_penalty"],
    repeatLastN: [last, "repeat_last_n"],
    presencePenalty: [penalty, "presence_penalty"],
    frequencyPenalty: [penalty, "frequency_penalty"],
    dryMultiplier: [size, "dry_multiplier"],
    dryBase: ["a number from 1 to 100", "dry_base"],
    dryAllowedLength: [count, "dry_allowed_length"],
    dryPenaltyLastN: [last, "dry_penalty_last_n"],
    topNSigma: ["a number from -1 to 100", "top_n_sigma"],
    typicalP: [share, "typical_p"],
    xtcProbability: [share, "xtc_probability"],
    xtcThreshold: [share, "xtc_threshold"],
    dynatempRange: [size, "dynatemp_range"],
    dynatempExponent: [size, "dynatemp_exponent"],
    mirostat: [either, "mirostat"],
    mirostatTau: [size, "mirostat_tau"],
    mirostatEta: [share, "mirostat_eta"],
    seed: [`a whole number from 0 to ${2 ** 53 - 1}`, "seed"],
  };
  const names = Object.keys(SAMPLING_RANGES) as (keyof SamplingOptions)[];
  const keysOf = (name: string) =>
    Object.entries(SAMPLING_FIELDS).flatMap(([key, option]) => option === name ? [key] : []);
  assertEquals(
    Object.fromEntries(
      names.map((name) => [name, [describeRange(SAMPLING_RANGES[name]), ...keysOf(name)]]),
    ),
    options,
  );
});

Deno.test("options override the model's defaults, which override forge's", () => {
  const json = jsonDefaults({ temperature: 0.6, top_k: 20, top_p: 0.9, repetition_penalty: 1.1 });
  assertEquals(json, {
    ...SAMPLING_DEFAULTS,
    temperature: 0.6,
    topK: 20,
    topP: 0.9,
    repeatPenalty: 1.1,
  });
  const gguf = ggufDefaults({ "general.sampling.temp": 0.6, "general.sampling.min_p": 0.1 });
  assertEquals(gguf, { ...SAMPLING_DEFAULTS, temperature: 0.6, minP: 0.1 });
  const keys = { "general.sampling.xtc_probability": 0.5, "general.sampling.penalty_last_n": -1 };
  assertEquals(ggufDefaults(keys), { ...SAMPLING_DEFAULTS, xtcProbability: 0.5, repeatLastN: -1 });
  assertEquals(resolveSampling({ temperature: 1, seed: 1 }, json).temperature, 1);
});

Deno.test("each key of a model's files sets the option of its name", () => {
  const keys = {
    gguf: {
      temp: "temperature",
      top_k: "topK",
      top_p: "topP",
      min_p: "minP",
      penalty_repeat: "repeatPenalty",
      penalty_last_n: "repeatLastN",
      xtc_probability: "xtcProbability",
      xtc_threshold: "xtcThreshold",
      mirostat: "mirostat",
      mirostat_tau: "mirostatTau",
      mirostat_eta: "mirostatEta",
    },
    json: {
      temperature: "temperature",
      top_k: "topK",
      top_p: "topP",
      min_p: "minP",
      typical_p: "typicalP",
      repetition_penalty: "repeatPenalty",
    },
  };
  for (const [key, name] of Object.entries(keys.gguf)) {
    const value = name === "mirostat" ? 2 : name === "repeatPenalty" ? 3 : 0;
    assertEquals(
      ggufDefaults({ [`general.sampling.${key}`]: value }),
      { ...SAMPLING_DEFAULTS, [name]: value },
      key,
    );
  }
  for (const [key, name] of Object.entries(keys.json)) {
    const value = name === "topK" ? 1 : 0.5;
    assertEquals(jsonDefaults({ [key]: value }), { ...SAMPLING_DEFAULTS, [name]: value }, key);
  }
  assertEquals([commonField("repeatPenalty"), commonField("topK")], ["repeat_penalty", "top_k"]);
});

Deno.test("a model that does not sample is greedy", () => {
  assertEquals(jsonDefaults({ do_sample: false, temperature: 0.6 }).temperature, 0);
  assertEquals(jsonDefaults({ do_sample: true }).temperature, 0.8);
});

Deno.test("invalid defaults of a model are ignored", () => {
  const bad = { temperature: -1, top_k: 1.5, top_p: "0.9", repetition_penalty: null };
  assertEquals(jsonDefaults(bad), SAMPLING_DEFAULTS);
  assertEquals(ggufDefaults({ "general.sampling.temp": NaN }), SAMPLING_DEFAULTS);
});

Deno.test("penalties cover the last tokens, all tokens or none", () => {
  const tokens = [1, 2, 3, 4];
  const histories = (options: SamplingOptions, draft: number[] = []) =>
    penaltyHistories(new TokenList(tokens), draft, resolved(options)).map((ids) => [...ids]);
  const history = (options: SamplingOptions) => histories(options)[0];
  assertEquals(history({}), []);
  assertEquals(history({ repeatPenalty: 1.1 }), tokens);
  assertEquals(history({ repeatPenalty: 1.1, repeatLastN: 2 }), [3, 4]);
  assertEquals(history({ presencePenalty: 1, repeatLastN: -1 }), tokens);
  assertEquals(history({ frequencyPenalty: -1, repeatLastN: 0 }), []);
  // A draft token counts like any other token.
  const draft = [5, 6];
  assertEquals(histories({}, draft), [[], [], []]);
  assertEquals(histories({ repeatPenalty: 1.1, repeatLastN: 3 }, draft), [
    [2, 3, 4],
    [3, 4, 5],
    [4, 5, 6],
  ]);
  assertEquals(histories({ repeatPenalty: 1.1, repeatLastN: 1 }, draft), [[4], [5], [6]]);
  assertEquals(histories({ presencePenalty: 1, repeatLastN: -1 }, [9]), [tokens, [...tokens, 9]]);
  const most = [-1, 0, 7].map((repeatLastN) =>
    historySize(resolved({ presencePenalty: 1, repeatLastN }))
  );
  assertEquals(most, [2 ** 31 - 1, 0, 7]);
});

Deno.test("the device gets the whole seed", () => {
  const { seed, temperature } = samplingParams(
    resolved({ seed: Number.MAX_SAFE_INTEGER }),
    undefined,
  );
  assertEquals([seed, temperature], [2n ** 53n - 1n, 0.8]);
  // If the host samples, the device takes the best token.
  const bias = new Map([[3, 1]]);
  const onHost = samplingParams(resolved({ typicalP: 0.5, seed: 9 }), bias);
  assertEquals([onHost.temperature, onHost.bias, onHost.seed], [0, bias, 9n]);
});

Deno.test("the chain is described in the order it is applied", () => {
  assertEquals(
    describeSampling(resolved({
      repeatPenalty: 1.1,
      presencePenalty: 0.5,
      frequencyPenalty: 0.25,
    })),
    "repeat_penalty 1.1 → presence_penalty 0.5 → frequency_penalty 0.25 over 64 tokens → " +
      "temperature 0.8 → top_k 40 → top_p 0.95 → min_p 0.05 → draw with seed 1",
  );
  assertEquals(describeSampling(resolved({ temperature: 0 })), "greedy");
  assertEquals(
    describeSampling(resolved({ temperature: 0, presencePenalty: 1 }), {
      logitBias: { 7: 1, 8: -1 },
      constraint: {
        start() {
          throw new Error("a description starts no constraint");
        },
      },
    }),
    "presence_penalty 1 over 64 tokens → logit_bias of 2 tokens → constraint → greedy",
  );
  assertEquals(
    describeSampling(resolved({ topK: 0, topP: 1, minP: 0 })),
    "temperature 0.8 → draw with seed 1",
  );
  assertEquals(
    describeSampling(resolved({ topK: 1, topP: 1, minP: 0.01 })),
    "temperature 0.8 → top_k 1 → min_p 0.01 → draw with seed 1",
  );
  assertEquals(
    describeSampling(resolved({ temperature: 0, repeatPenalty: 2, repeatLastN: -1 })),
    "repeat_penalty 2 over all tokens → greedy",
  );
  assertEquals(
    describeSampling(resolved({ temperature: 0, repeatPenalty: 2, repeatLastN: 0 })),
    "greedy",
  );
});

Deno.test("the chain of the host is described in the order it is applied", () => {
  assertEquals(
    describeSampling(
      resolved({
        repeatPenalty: 1.1,
        dryMultiplier: 0.8,
        topNSigma: 1,
        typicalP: 0.9,
        xtcProbability: 0.5,
        dynatempRange: 0.3,
      }),
      { logitBias: { 7: 1 } },
    ),
    "repeat_penalty 1.1 over 64 tokens → dry_multiplier 0.8 with dry_base 1.75 over all tokens → " +
      "logit_bias of 1 token → top_n_sigma 1 → top_k 40 → typical_p 0.9 → top_p 0.95 → " +
      "min_p 0.05 → xtc_probability 0.5 with xtc_threshold 0.1 → temperature 0.8 ± 0.3 → " +
      "draw with seed 1 on the host",
  );
  assertEquals(
    describeSampling(resolved({ topK: 0, topP: 1, minP: 0, typicalP: 0.9 })),
    "typical_p 0.9 → temperature 0.8 → draw with seed 1 on the host",
  );
  assertEquals(
    describeSampling(resolved({ mirostat: 2, typicalP: 0.5 })),
    "temperature 0.8 → mirostat 2 with mirostat_tau 5, mirostat_eta 0.1 → " +
      "draw with seed 1 on the host",
  );
  assertEquals(
    describeSampling(resolved({ temperature: 0, dryMultiplier: 1, typicalP: 0.5 })),
    "dry_multiplier 1 with dry_base 1.75 over all tokens → greedy on the host",
  );
});

Deno.test("the host samples only with options that no device implements", () => {
  const isOnHost = (options: SamplingOptions) => isSampledOnHost(resolved(options));
  for (
    const on of [
      { dryMultiplier: 0.1 },
      { topNSigma: 1 },
      { typicalP: 0.99 },
      { xtcProbability: 0.1 },
      { xtcProbability: 0.1, xtcThreshold: 0.5 },
      { dynatempRange: 0.1 },
      { dynatempRange: 0.1, temperature: 0 },
      { mirostat: 2 },
      { temperature: 0, dryMultiplier: 0.1 },
    ]
  ) assert(isOnHost(on), JSON.stringify(on));
  for (
    const off of [
      {},
      { dryMultiplier: 1, dryPenaltyLastN: 0 },
      { topNSigma: -1 },
      { temperature: 0, mirostat: 2, dynatempRange: 0.1 },
      { xtcProbability: 1, xtcThreshold: 0.51 },
      { temperature: 0, typicalP: 0.1, mirostat: 2, xtcProbability: 1, topNSigma: 1 },
    ]
  ) assert(!isOnHost(off), JSON.stringify(off));
});

Deno.test("logit biases are checked, and named by token", () => {
  const bias = resolveLogitBias({ "3": -Infinity, "96": 2.5, "0": -100 }, 97);
  assertEquals([...bias ?? []].sort(), [[0, -100], [3, -Infinity], [96, 2.5]]);
  assertEquals(resolveLogitBias({}, 97), undefined);
  assertEquals(resolveLogitBias(undefined, 97), undefined);
  for (const key of ["97", "-1", "1.5", "x", "", "1e1", " 1"]) {
    const error = assertThrows(() => resolveLogitBias({ [key]: 1 }, 97), ForgeError);
    const message = `the logit biases name token ${JSON.stringify(key)}; valid ids are 0 to 96`;
    assertEquals([error.code, error.message], ["usage", message]);
  }
  for (const value of [NaN, Infinity, 1e39, "1", null]) {
    const bias = { "5": value as number };
    const error = assertThrows(() => resolveLogitBias(bias, 97), ForgeError);
    assertEquals(
      error.message,
      `the logit bias of token 5 is ${
        show(value)
      }; valid is a number, or -Infinity to ban the token`,
    );
  }
});

Deno.test("a generation's options have defaults, and given ones are passed on", () => {
  const runner = { contextLength: 100, vocabSize: 50, limits: { maxTop: 12 } } as Runner;
  const tokens = Int32Array.of(1, 2, 3), endTokens = new Set([4]);
  const resolve = (options: GenerateOptions, adapters?: SequenceAdapters) =>
    resolveRequest(
      { tokens, startsText: true },
      resolved({}),
      options,
      runner,
      endTokens,
      adapters,
    );
  const plain: GenerationRequest = {
    prompt: tokens,
    startsText: true,
    shownTokens: new Set(),
    sampling: resolved({}),
    logitBias: undefined,
    dryBreakers: ["\n", ":", '"', "*"],
    stream: 0,
    maxTokens: 97,
    stop: [],
    endTokens,
    logprobs: undefined,
    reasoningLimit: undefined,
    constraint: undefined,
    adapters: undefined,
    vocabSize: 50,
    signal: undefined,
    onPrefill: undefined,
  };
  assertEquals(resolve({}), plain);
  const { signal } = new AbortController();
  const onPrefill = () => {};
  const constraint = { describe: "a constraint" } as unknown as GenerationRequest["constraint"];
  const reasoningLimit = { most: 5 } as unknown as GenerationRequest["reasoningLimit"];
  const adapters = { key: "a" } as unknown as SequenceAdapters;
  const given: readonly (readonly [GenerateOptions, Partial<GenerationRequest>])[] = [
    [{ shownTokens: [7, 8] }, { shownTokens: new Set([7, 8]) }],
    [{ logitBias: { 3: 2 } }, { logitBias: new Map([[3, 2]]) }],
    [{ drySequenceBreakers: [] }, { dryBreakers: [] }],
    [{ drySequenceBreakers: ["a"] }, { dryBreakers: ["a"] }],
    [{ maxTokens: 0 }, { maxTokens: 0 }],
    [{ maxTokens: 96 }, { maxTokens: 96 }],
    [{ maxTokens: 98 }, { maxTokens: 97 }],
    [{ stop: "x" }, { stop: ["x"] }],
    [{ stop: ["x", "y"] }, { stop: ["x", "y"] }],
    [{ logprobs: 0 }, { logprobs: 0 }],
    [{ logprobs: 11 }, { logprobs: 11 }],
    // Devices report fewer alternatives than the most valid number.
    [{ logprobs: 20 }, { logprobs: 12 }],
    [{ reasoningLimit }, { reasoningLimit }],
    [{ constraint }, { constraint }],
    [{ signal }, { signal }],
    [{ onPrefill }, { onPrefill }],
  ];
  for (const [options, changed] of given) assertEquals(resolve(options), { ...plain, ...changed });
  assertEquals(resolve({}, adapters), { ...plain, adapters });
  const bad: readonly (readonly [GenerateOptions, message: string])[] = [
    [{ maxTokens: -1 }, "maxTokens is -1"],
    [{ maxTokens: 1.5 }, "maxTokens is 1.5"],
    [{ logprobs: 21 }, "logprobs is 21"],
    [{ logprobs: -1 }, "logprobs is -1"],
    [{ logitBias: { 50: 1 } }, 'token "50"; valid ids are 0 to 49'],
  ];
  for (const [options, message] of bad) assertThrows(() => resolve(options), ForgeError, message);
  const ofLength = (length: number) => {
    const prompt = { tokens: new Int32Array(length), startsText: false };
    return resolveRequest(prompt, resolved({}), {}, runner, endTokens).maxTokens;
  };
  assertEquals([ofLength(0), ofLength(99)], [100, 1]);
  assertThrows(() => ofLength(100), ForgeError, "the prompt has 100 tokens; the context of 100");
});
