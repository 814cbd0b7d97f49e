/**
 * The expected frequencies of the scaled kinds were computed by transformers 5.18
 * (`ROPE_INIT_FUNCTIONS`, float32) from the same parameters.
 */
import { assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import type { GgufValue } from "../../../src/formats/gguf/types.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { readRope, type Rope, type RopeRequest } from "../../../src/models/parts/rope.ts";
import { ConfigReader } from "../../../src/models/config/config_reader.ts";
import type { GgufSink } from "../../../src/models/gguf_rules.ts";
import { fakeCheckpoint, ggufConfig, jsonConfig } from "./fakes.ts";

const REQUEST: RopeRequest = {
  headDim: 16,
  contextLength: 4096,
  sessionLength: 4096,
  layout: "half",
};

/** The rotation of a config.json with `rope_parameters`. */
function fromParameters(parameters: JsonObject, request: Partial<RopeRequest> = {}): Rope {
  return readRope(jsonConfig({ rope_parameters: parameters }), { ...REQUEST, ...request });
}

function fromJson(config: JsonObject, request: Partial<RopeRequest> = {}): Rope {
  return readRope(jsonConfig(config), { ...REQUEST, ...request });
}

function fromGguf(
  settings: Readonly<Record<string, GgufValue>>,
  request: Partial<RopeRequest> = {},
): Rope {
  return readRope(ggufConfig(settings), { ...REQUEST, ...request });
}

function assertRope(rope: Rope, invFreq: readonly number[], scale = 1): void {
  assertEquals(rope.invFreq.length, invFreq.length);
  rope.invFreq.forEach((frequency, i) => {
    assertAlmostEquals(frequency / invFreq[i]!, 1, 1e-5);
  });
  assertAlmostEquals(rope.scale, scale, 1e-7);
}

/** `theta ** (-2i / dim)`, divided by `factor`. */
function plain(theta = 10000, dim = 16, factor = 1): number[] {
  return Array.from({ length: dim / 2 }, (_, i) => 1 / theta ** (2 * i / dim) / factor);
}

const LLAMA3 = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 256,
};
const LLAMA3_FREQUENCIES = [
  1,
  0.1939228,
  0.01053823,
  0.0009115831,
  0.0001767767,
  3.428102e-05,
  6.64787e-06,
  1.289173e-06,
];
const YARN = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 1024 };
const YARN_FREQUENCIES = [
  1,
  0.3162278,
  0.08125,
  0.01976424,
  0.004375,
  0.0007905695,
  0.00025,
  7.905695e-05,
];
const LONGROPE = {
  rope_type: "longrope",
  original_max_position_embeddings: 1024,
  short_factor: [1, 1.05, 1.1, 1.2, 1.3, 1.5, 1.8, 2],
  long_factor: [1.1, 1.5, 2, 4, 8, 16, 24, 32],
};
const SHORT_FREQUENCIES = [
  1,
  0.3011693,
  0.09090909,
  0.02635231,
  0.007692308,
  0.002108185,
  0.0005555556,
  0.0001581139,
];
const LONG_FREQUENCIES = [
  0.9090909,
  0.2108185,
  0.05,
  0.007905695,
  0.00125,
  0.0001976424,
  4.166667e-05,
  9.882118e-06,
];
const LONGROPE_SCALE = 1.0954451150103321;

Deno.test("RoPE without scaling has powers of the base", () => {
  assertRope(fromParameters({ rope_type: "default", rope_theta: 500000 }), plain(500000));
  assertRope(fromJson({ rope_theta: 500000, rope_scaling: null }), plain(500000));
  assertRope(fromGguf({ "rope.freq_base": 500000 }), plain(500000));
  assertRope(fromGguf({ "rope.freq_base": 500000, "rope.scaling.type": "none" }), plain(500000));
});

Deno.test("RoPE's base defaults to that of the family", () => {
  assertRope(fromJson({}), plain(10000));
  const model_type = "smollm3";
  assertRope(fromJson({ model_type }), plain(2_000_000));
  assertRope(fromJson({ model_type, rope_parameters: { rope_type: "default" } }), plain(2_000_000));
  assertRope(fromGguf({}), plain(10000));
  assertRope(fromJson({ rope_theta: 3000, rope_parameters: {} }), plain(3000));
});

Deno.test("RoPE's parameters default to those of the family, and the older name counts", () => {
  const apertus = fromJson({ model_type: "apertus" });
  const parameters = {
    ...LLAMA3,
    rope_theta: 12_000_000,
    original_max_position_embeddings: 8192,
  };
  assertEquals(apertus, fromParameters(parameters));
  assertEquals(fromJson({ model_type: "apertus", rope_parameters: null }), apertus);
  const rope_parameters = { rope_type: "linear", factor: 4 };
  const older = (rope_scaling: JsonObject) => fromJson({ rope_parameters, rope_scaling });
  assertRope(older({ rope_type: "linear", factor: 2 }), plain(10000, 16, 2));
  assertRope(older({}), plain(10000, 16, 4));
  assertRope(older({ rope_type: "default" }), plain());
  const layerType = "full_attention";
  for (const settings of [{}, { rope_parameters: null }]) {
    const { invFreq } = fromJson({ model_type: "gemma4_text", ...settings }, { layerType });
    assertEquals(invFreq, Float32Array.of(1, 1e6 ** (-1 / 8), 0, 0, 0, 0, 0, 0));
  }
});

Deno.test("positions in time, height and width rotate text plainly", () => {
  const mrope = { rope_type: "mrope", mrope_section: [2, 3, 3] };
  assertRope(fromJson({ model_type: "qwen2_vl", rope_parameters: mrope }), plain(1e6));
  assertRope(fromGguf({ "rope.scaling.type": "mrope" }), plain());
  assertRefused(() => fromParameters(mrope), "unsupported", `"mrope"`);
});

Deno.test("proportional scaling rotates the first pairs only", () => {
  const parameters = { rope_type: "proportional", partial_rotary_factor: 0.45, factor: 2 };
  const [first, second, third] = plain(10000, 16, 2);
  const expected = Float32Array.of(first!, second!, third!, 0, 0, 0, 0, 0);
  assertEquals(fromParameters(parameters), { invFreq: expected, scale: 1, layout: "half" });
  assertRope(fromParameters({ rope_type: "proportional" }), plain());
});

Deno.test("RoPE may rotate a part of each head", () => {
  const model_type = "glm4";
  const parameters = { partial_rotary_factor: 0.25 };
  assertRope(fromJson({ model_type }), plain(10000, 8));
  assertRope(fromJson({ model_type, rope_parameters: parameters }), plain(10000, 4));
  assertRope(fromJson({ model_type, ...parameters, rope_scaling: null }), plain(10000, 4));
  // Llama rotates whole heads; transformers ignores the setting.
  assertRope(fromJson(parameters), plain(10000));
  assertRope(fromJson({ ...parameters, partial_rotary_factor: null }), plain(10000));
  // transformers ignores the setting of Bamba, whose default is a half.
  assertRope(fromJson({ model_type: "bamba", ...parameters }), plain(10000, 8));
  assertRope(fromGguf({ "rope.dimension_count": 8 }), plain(10000, 8));
  assertRope(fromGguf({ "rope.dimension_count": 2 }), [1]);
  const bySize = { "rope.dimension_count": 8, "rope.dimension_count_swa": 4 };
  assertRope(fromGguf(bySize, { layerType: "sliding_attention" }), plain(10000, 4));
  assertRope(fromGguf(bySize, { layerType: "full_attention" }), plain(10000, 8));
  const one = { "rope.dimension_count": 8 };
  assertRope(fromGguf(one, { layerType: "sliding_attention" }), plain(10000, 8));
});

Deno.test("RoPE's layout is the requested one", () => {
  assertEquals(fromJson({}, { layout: "interleaved" }).layout, "interleaved");
});

Deno.test("linear scaling divides every frequency", () => {
  const linear = { rope_type: "linear", factor: 4 };
  assertRope(fromParameters({ rope_theta: 10000, ...linear }), plain(10000, 16, 4));
  assertRope(fromJson({ rope_scaling: linear }), plain(10000, 16, 4));
  assertRope(fromJson({ rope_scaling: { type: "linear", factor: 4 } }), plain(10000, 16, 4));
  const gguf = { "rope.scaling.type": "linear", "rope.scaling.factor": 4 };
  assertRope(fromGguf(gguf), plain(10000, 16, 4));
});

Deno.test("a factor without a type is linear scaling in GGUF", () => {
  assertRope(fromGguf({ "rope.scaling.factor": 4 }), plain(10000, 16, 4));
});

Deno.test("dynamic NTK scaling changes nothing within the model's own length", () => {
  assertRope(fromParameters({ rope_type: "dynamic", factor: 4 }), plain());
});

Deno.test("dynamic scaling by alpha divides the slowest frequency by it", () => {
  const rope = fromParameters({ rope_type: "dynamic", factor: 1, alpha: 1000 });
  assertRope(rope, plain().map((frequency, i) => frequency / 1000 ** (i / 7)));
});

Deno.test("llama3 scaling keeps short waves, divides long ones and blends the others", () => {
  assertRope(fromParameters({ rope_theta: 500000, ...LLAMA3 }), LLAMA3_FREQUENCIES);
  assertRope(fromJson({ rope_theta: 500000, rope_scaling: LLAMA3 }), LLAMA3_FREQUENCIES);
  // With equal bounds, a wave is either kept or divided.
  const steep = fromParameters({ rope_theta: 500000, ...LLAMA3, high_freq_factor: 1 });
  assertRope(steep, plain(500000).map((frequency, i) => i < 3 ? frequency : frequency / 8));
});

Deno.test("GGUF's rope_freqs divide the frequencies", () => {
  const always = Float32Array.from(plain(500000), (f, i) => f / LLAMA3_FREQUENCIES[i]!);
  assertRope(fromGguf({ "rope.freq_base": 500000 }, { divisors: { always } }), LLAMA3_FREQUENCIES);
});

Deno.test("YaRN divides slow frequencies and scales attention", () => {
  const scale = 1 + 0.1 * Math.log(4);
  assertRope(fromParameters({ rope_theta: 10000, ...YARN }), YARN_FREQUENCIES, scale);
  assertRope(fromJson({ rope_scaling: { ...YARN } }), YARN_FREQUENCIES, scale);
  const gguf = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4,
    "rope.scaling.original_context_length": 1024,
  };
  assertRope(fromGguf(gguf), YARN_FREQUENCIES, scale);
  const given = { ...gguf, "rope.scaling.attn_factor": 1.25 };
  assertRope(fromGguf(given), YARN_FREQUENCIES, 1.25);
  assertRope(fromParameters({ ...YARN, attention_factor: 1.25 }), YARN_FREQUENCIES, 1.25);
  const own = { ...given, "rope.scaling.yarn_attn_factor": 1.5 };
  assertRope(fromGguf(own), YARN_FREQUENCIES, 1.5);
});

Deno.test("YaRN does not scale attention if it does not lengthen the context", () => {
  const scaleOf = (parameters: JsonObject) => fromParameters({ ...YARN, ...parameters }).scale;
  assertEquals(scaleOf({ factor: 0.5 }), 1);
  assertEquals(scaleOf({ factor: 1 }), 1);
  assertAlmostEquals(scaleOf({ factor: 1.5 }), 1 + 0.1 * Math.log(1.5));
  // One of the two without the other, or 0, changes nothing.
  for (const name of ["mscale", "mscale_all_dim"]) {
    assertAlmostEquals(scaleOf({ [name]: 0.7 }), 1 + 0.1 * Math.log(4));
    assertAlmostEquals(scaleOf({ mscale: 0.7, mscale_all_dim: 0.7, [name]: 0 }), scaleOf({}));
  }
});

Deno.test("YaRN's factor defaults to the ratio of the lengths", () => {
  const scale = 1 + 0.1 * Math.log(4);
  assertRope(fromParameters({ ...YARN, factor: null }), YARN_FREQUENCIES, scale);
  const gguf = { "rope.scaling.type": "yarn", "rope.scaling.original_context_length": 1024 };
  assertRope(fromGguf(gguf), YARN_FREQUENCIES, scale);
});

Deno.test("the original length defaults to the model's own, and outside it counts", () => {
  const { original_max_position_embeddings, ...yarn } = YARN;
  const scale = 1 + 0.1 * Math.log(4);
  const own = { max_position_embeddings: 1024, rope_parameters: yarn };
  assertRope(fromJson(own), YARN_FREQUENCIES, scale);
  const rope_parameters = { ...yarn, original_max_position_embeddings: 64 };
  const outside = { original_max_position_embeddings, rope_parameters };
  assertRope(fromJson(outside), YARN_FREQUENCIES, scale);
});

Deno.test("YaRN's ramp follows its betas, rounded or not", () => {
  const rope = fromParameters({
    rope_theta: 150000,
    rope_type: "yarn",
    factor: 32,
    original_max_position_embeddings: 4096,
    beta_fast: 16,
    beta_slow: 2,
    truncate: false,
  });
  const expected = [
    1,
    0.225418,
    0.05081327,
    0.007387541,
    8.068715e-05,
    1.818834e-05,
    4.099978e-06,
    9.24209e-07,
  ];
  assertRope(rope, expected, 1.3465735902799727);
  const unrounded = { ...YARN, truncate: false };
  const explicit = fromParameters({ ...unrounded, beta_fast: 32, beta_slow: 1 });
  assertEquals(fromParameters(unrounded), explicit);
});

Deno.test("YaRN's ramp stays within the pairs, and may be a step", () => {
  const scale = 1 + 0.1 * Math.log(4);
  const short = [1, 0.2371708, 0.05, ...plain(10000, 16, 4).slice(3)];
  const length = "original_max_position_embeddings";
  assertRope(fromParameters({ ...YARN, [length]: 64 }), short, scale);
  const long = [1, 0.7498942, 0.5623413, 0.4216965, 0.3162278, 0.2209689, 0.1535787, 0.1060756];
  assertRope(fromParameters({ ...YARN, rope_theta: 10, [length]: 800 }), long, scale);
  const step = fromParameters({ ...YARN, beta_fast: 4, beta_slow: 4, truncate: false });
  assertRope(step, plain().map((frequency, i) => i < 4 ? frequency : frequency / 4), scale);
});

Deno.test("YaRN's mscale and mscale_all_dim divide each other", () => {
  const rope = fromParameters({
    rope_type: "yarn",
    factor: 40,
    original_max_position_embeddings: 4096,
    mscale: 0.707,
    mscale_all_dim: 1,
  });
  const expected = [
    1,
    0.3162278,
    0.1,
    0.02391472,
    0.005125,
    0.0008498622,
    2.5e-05,
    7.905694e-06,
  ];
  assertRope(rope, expected, 0.9210423553163399);
});

Deno.test("LongRoPE chooses its divisors by the length of the session", () => {
  for (
    const read of [
      (request: Partial<RopeRequest>) => fromParameters(LONGROPE, request),
      (request: Partial<RopeRequest>) => {
        const { original_max_position_embeddings, ...scaling } = LONGROPE;
        return fromJson({ original_max_position_embeddings, rope_scaling: scaling }, request);
      },
      (request: Partial<RopeRequest>) => {
        const { rope_type: _, ...scaling } = LONGROPE;
        return fromJson({ rope_scaling: { type: "su", ...scaling } }, request);
      },
    ]
  ) {
    assertRope(read({ sessionLength: 1024 }), SHORT_FREQUENCIES, LONGROPE_SCALE);
    assertRope(read({ sessionLength: 1025 }), LONG_FREQUENCIES, LONGROPE_SCALE);
  }
});

Deno.test("LongRoPE scales attention by the factor of lengths, if that is above 1", () => {
  const scaleOf = (parameters: JsonObject, contextLength = 4096) =>
    fromParameters({ ...LONGROPE, ...parameters }, { contextLength }).scale;
  assertAlmostEquals(scaleOf({}, 1536), Math.sqrt(1 + Math.log(1.5) / Math.log(1024)));
  assertAlmostEquals(scaleOf({ factor: 2 }), Math.sqrt(1.1));
  assertEquals(scaleOf({ factor: 0.5 }), 1);
  assertEquals(scaleOf({}, 512), 1);
  assertEquals(scaleOf({ attention_factor: 1.75 }), 1.75);
});

Deno.test("LongRoPE's divisors are tensors in GGUF, and its type need not be named", () => {
  const divisors = {
    short: Float32Array.from(LONGROPE.short_factor),
    long: Float32Array.from(LONGROPE.long_factor),
  };
  const settings = {
    "rope.scaling.original_context_length": 1024,
    "rope.scaling.attn_factor": 1.5,
  };
  assertRope(fromGguf(settings, { divisors, sessionLength: 1024 }), SHORT_FREQUENCIES, 1.5);
  assertRope(fromGguf(settings, { divisors }), LONG_FREQUENCIES, 1.5);
  const named = { ...settings, "rope.scaling.type": "longrope" };
  assertRope(fromGguf(named, { divisors }), LONG_FREQUENCIES, 1.5);
});

Deno.test("Phi-MoE has a factor of attention for each of LongRoPE's lists", () => {
  const scaling = { ...LONGROPE, short_mscale: 1.2, long_mscale: 1.4 };
  assertRope(fromParameters(scaling, { sessionLength: 1024 }), SHORT_FREQUENCIES, 1.2);
  assertRope(fromParameters(scaling, { sessionLength: 1025 }), LONG_FREQUENCIES, 1.4);
});

const BY_TYPE = {
  full_attention: { rope_type: "linear", factor: 8, rope_theta: 1000000 },
  sliding_attention: { rope_type: "default", rope_theta: 20000 },
};

Deno.test("layers of a type have the parameters of their type", () => {
  const full = fromParameters(BY_TYPE, { layerType: "full_attention" });
  assertRope(full, plain(1000000, 16, 8));
  assertRope(fromParameters(BY_TYPE, { layerType: "sliding_attention" }), plain(20000));
  const rope_scaling = { type: "linear", rope_type: "linear", factor: 2 };
  const both = { rope_parameters: BY_TYPE, rope_scaling };
  assertRope(fromJson(both, { layerType: "full_attention" }), plain(1000000, 16, 2));
  const { sliding_attention } = BY_TYPE;
  const alone = { rope_parameters: { sliding_attention } };
  assertRope(fromJson(alone, { layerType: "sliding_attention" }), plain(20000));
  const none = { rope_parameters: { ...BY_TYPE, sliding_attention: null } };
  assertRope(fromJson(none, { layerType: "sliding_attention" }), plain(10000));
});

Deno.test("sliding layers are not scaled if parameters are not given by type", () => {
  const layerType = "sliding_attention";
  const scaling = { rope_type: "linear", factor: 8 };
  const older = { model_type: "gemma3_text", rope_theta: 500000, rope_scaling: scaling };
  assertRope(fromJson(older, { layerType: "full_attention" }), plain(500000, 16, 8));
  assertRope(fromJson(older, { layerType }), plain(10000));
  assertRope(fromJson({ ...older, rope_local_base_freq: 7000 }, { layerType }), plain(7000));
  // transformers gives sliding layers of OLMo 3 the default base, whatever that of the others is.
  assertRope(fromJson({ ...older, model_type: "olmo3" }, { layerType }), plain(500000));
  const gguf = {
    "rope.freq_base": 500000,
    "rope.scaling.type": "linear",
    "rope.scaling.factor": 8,
  };
  assertRope(fromGguf(gguf, { layerType }), plain(500000));
  assertRope(fromGguf(gguf, { layerType, ggufSlidingTheta: 20000 }), plain(20000));
  const own = { ...gguf, "rope.freq_base_swa": 7000 };
  assertRope(fromGguf(own, { layerType, ggufSlidingTheta: 20000 }), plain(7000));
});

/** Returns the settings and tensors that a GGUF file has for the rotation of a folder. */
function noted(config: JsonObject, request: Partial<RopeRequest> = {}) {
  const settings: Record<string, GgufValue> = {};
  const tensors: Record<string, Float32Array> = {};
  const sink: GgufSink = {
    setting: (key, [, value]) => void (settings[key] = value as GgufValue),
    tensor: () => {},
    numbers: (name, values) => void (tensors[name] = values),
  };
  const checkpoint = fakeCheckpoint({ config: { model_type: "llama", ...config } });
  const rope = readRope(new ConfigReader(checkpoint, undefined, sink), { ...REQUEST, ...request });
  return { settings, tensors, rope };
}

Deno.test("a GGUF file has the rotation of the folder that it is written from", () => {
  const base = { "rope.freq_base": 500000, "rope.dimension_count": 16 };
  const original = { "rope.scaling.original_context_length": 1024 };
  const yarn = {
    ...base,
    ...original,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4,
    "rope.scaling.yarn_beta_fast": 32,
    "rope.scaling.yarn_beta_slow": 1,
  };
  const linear = { "rope.scaling.type": "linear", "rope.scaling.factor": 4 };
  const betas = { "rope.scaling.yarn_beta_fast": 16, "rope.scaling.yarn_beta_slow": 2 };
  const mscale = { mscale: 0.7, mscale_all_dim: 0.7 };
  const cases: [parameters: JsonObject, settings: Record<string, GgufValue>][] = [
    [{ rope_type: "default" }, base],
    [{ rope_type: "linear", factor: 4 }, { ...base, ...linear }],
    [LLAMA3, base],
    [YARN, yarn],
    [{ ...YARN, factor: null }, yarn],
    [{ ...YARN, beta_fast: 16, beta_slow: 2 }, { ...yarn, ...betas }],
    [{ ...YARN, ...mscale }, { ...yarn, "rope.scaling.yarn_log_multiplier": 0.7 }],
    ...["longrope", "su"].map((rope_type): (typeof cases)[number] => [
      { ...LONGROPE, rope_type },
      { ...base, ...original, "rope.scaling.attn_factor": LONGROPE_SCALE },
    ]),
  ];
  for (const [parameters, expected] of cases) {
    const { settings, tensors, rope } = noted({
      rope_parameters: { rope_theta: 500000, ...parameters },
    });
    assertEquals(settings, expected);
    const [always, long, short] = ["rope_freqs", "rope_factors_long", "rope_factors_short"]
      .map((name) => tensors[`${name}.weight`]);
    assertEquals([always, long, short].map((values) => values !== undefined), [
      parameters === LLAMA3,
      "long_factor" in parameters,
      "short_factor" in parameters,
    ]);
    // Equal factors of DeepSeek cancel, and its attention has them in its own scale.
    const isCancelled = "mscale" in parameters;
    const read = fromGguf(settings, { divisors: { always, long, short } });
    assertRope(read, [...rope.invFreq], isCancelled ? 1 : rope.scale);
  }
  const dynamic = noted({ rope_parameters: { rope_type: "dynamic", factor: 1, alpha: 1000 } });
  assertEquals(Object.keys(dynamic.settings), Object.keys(base));
  assertRope(fromGguf(dynamic.settings), [...dynamic.rope.invFreq]);
  const layerType = "sliding_attention";
  const sliding = noted({ rope_parameters: BY_TYPE }, { layerType });
  assertEquals(sliding.settings, { "rope.freq_base_swa": 20000 });
});

Deno.test("the ends of YaRN's ramp are rounded in GGUF files, unless the family does not", () => {
  const settings = { "rope.scaling.type": "yarn", "rope.scaling.factor": 4 };
  const yarn = { ...YARN, original_max_position_embeddings: 4096 };
  assertEquals(fromGguf(settings), fromParameters(yarn));
  for (const truncate of [true, false]) {
    const folder = fromParameters({ ...yarn, truncate });
    assertEquals(fromGguf(settings, { ggufTruncate: truncate }), folder);
  }
});

function assertRefused(read: () => Rope, code: string, ...includes: string[]): void {
  const error = assertThrows(read, ForgeError);
  assertEquals(error.code, code);
  for (const text of includes) assertEquals(error.message.includes(text), true, error.message);
}

Deno.test("invalid parameters of RoPE are named", () => {
  const bad: [JsonObject, ...string[]][] = [
    [{ rope_theta: 0 }, "rope_theta", `"0"`, "above 0"],
    [{ rope_theta: "10000" }, "rope_theta", "a finite number"],
    [{ rope_theta: 1e-300 }, "rope_theta", "finite"],
    [{ rope_type: "linear" }, "factor is missing"],
    [{ rope_type: "linear", factor: -1 }, "factor", `"-1"`],
    [{ rope_type: 7 }, "rope_type", `"7"`, "text"],
    [{ ...LLAMA3, high_freq_factor: 0.5 }, "high_freq_factor", "at least low_freq_factor, 1"],
    [{ ...LLAMA3, original_max_position_embeddings: null }, "original_max_position_embeddings"],
    [{ ...YARN, factor: 0 }, "factor", `"0"`],
    [{ ...YARN, truncate: "yes" }, "truncate", "true or false"],
    [{ ...YARN, attention_factor: 0 }, "attention_factor"],
    [{ ...LONGROPE, long_factor: "12345678" }, "long_factor", "a list of 8 numbers above 0"],
    [{ ...YARN, mscale: 1e999, mscale_all_dim: 1 }, "mscale", "a finite number"],
    [{ ...LONGROPE, long_factor: [1, 2] }, "long_factor", "a list of 8 numbers above 0"],
    [{ ...LONGROPE, long_factor: [...LONGROPE.long_factor.slice(1), 0] }, "long_factor"],
    [{ ...LONGROPE, long_factor: [...LONGROPE.long_factor.slice(1), "2"] }, "long_factor"],
    [{ rope_type: "dynamic" }, "factor is missing"],
    [{ ...LONGROPE, original_max_position_embeddings: 1 }, "attention_factor", "Infinity"],
    [{ rope_type: "yarn" }, "factor is missing"],
    [{ ...YARN, partial_rotary_factor: 0.5 }, "partial_rotary_factor", `"0.5"`, "1 in this"],
  ];
  for (const [parameters, ...includes] of bad) {
    assertRefused(() => fromParameters(parameters), "bad_model", ...includes);
  }
  const partly: [number, ...string[]][] = [
    [2, `"32"`, "at most 16"],
    [0.2, `"3"`, "an even"],
    [0.01, `"0"`, "an even"],
  ];
  for (const [partial_rotary_factor, ...includes] of partly) {
    const read = () => fromJson({ model_type: "glm4", partial_rotary_factor });
    assertRefused(read, "bad_model", "partial_rotary_factor", ...includes);
  }
  const none = { model_type: "glm4", partial_rotary_factor: null };
  assertRefused(() => fromJson(none), "bad_model", "partial_rotary_factor is null");
  const scaled = { partial_rotary_factor: 0.5, rope_scaling: YARN };
  assertRefused(() => fromJson(scaled), "bad_model", "1 in this architecture");
});

Deno.test("RoPE's parameters must fit the type of the layers", () => {
  assertRefused(() => fromParameters(BY_TYPE), "bad_model", "one set for all layers");
  const layerType = "sliding_attention";
  const refused = (own: JsonObject, ...includes: string[]) =>
    assertRefused(() => fromJson(own, { layerType }), "bad_model", ...includes);
  const { full_attention } = BY_TYPE;
  refused({ model_type: "gemma4_text", rope_parameters: { full_attention } }, "rope_theta is");
  refused({ rope_parameters: { full_attention, sliding_attention: 1 } }, "sliding_attention is");
  const older = { type: "linear", factor: 8 };
  refused({ model_type: "gemma4_text", rope_scaling: older }, "rope_parameters in its place");
  refused({ model_type: "gemma3_text", rope_scaling: older }, "rope_type in its place");
  const { sliding_attention } = BY_TYPE;
  const rope_scaling = { rope_type: "linear", factor: 8 };
  refused({ rope_parameters: { sliding_attention }, rope_scaling }, "none next to rope_parameters");
});

Deno.test("an unknown kind of scaling is rejected with a list of the known ones", () => {
  const read = () => fromParameters({ rope_type: "spiral" });
  assertRefused(
    read,
    "unsupported",
    `"spiral"`,
    "linear, dynamic, llama3, yarn, longrope, proportional",
  );
});

Deno.test("invalid parameters of RoPE in GGUF are named by their key", () => {
  const bad: [Record<string, GgufValue>, Partial<RopeRequest>, ...string[]][] = [
    [{ "rope.freq_base": 0 }, {}, "llama.rope.freq_base", `"0"`],
    [{ "rope.freq_base": NaN }, {}, "llama.rope.freq_base", `"NaN"`],
    [{ "rope.freq_base": 2n ** 63n }, {}, "llama.rope.freq_base", "9223372036854775808"],
    [{ "rope.dimension_count": 17 }, {}, "llama.rope.dimension_count", `"17"`],
    [{ "rope.dimension_count": 0 }, {}, "llama.rope.dimension_count", `"0"`],
    [{ "rope.scaling.type": "linear" }, {}, "llama.rope.scaling.factor is missing"],
    [{}, { divisors: { always: new Float32Array(3) } }, "divisors", `"3"`, "as many as pairs, 8"],
    [{}, { divisors: { always: new Float32Array(8) } }, "finite"],
    [{}, { divisors: { always: new Float32Array(8).fill(-1) } }, "finite"],
  ];
  for (const [settings, request, ...includes] of bad) {
    assertRefused(() => fromGguf(settings, request), "bad_model", ...includes);
  }
});
