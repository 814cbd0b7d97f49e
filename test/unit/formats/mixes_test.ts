/** Types of published files, as llama.cpp reports them when it loads one. */
import { assertEquals } from "@std/assert";
import {
  type MixedModel,
  mixedTypes,
  MIXES,
  type MixName,
} from "../../../src/formats/gguf/mixes.ts";

/** Tensors of a Llama, with experts if their number is not 0. */
function tensorsOf(layers: number, experts: number) {
  const parts = ["attn_q", "attn_k", "attn_v", "attn_output"];
  const mlp = ["ffn_gate", "ffn_up", "ffn_down"];
  const matrix = (name: string) => ({ name: `${name}.weight`, shape: [4096, 4096] });
  const all = Array.from({ length: layers }, (_, i) => [
    ...parts.map((part) => matrix(`blk.${i}.${part}`)),
    ...mlp.map((part) =>
      experts === 0
        ? matrix(`blk.${i}.${part}`)
        : { name: `blk.${i}.${part}_exps.weight`, shape: [experts, 4096, 4096] }
    ),
    ...(experts === 0 ? [] : [matrix(`blk.${i}.ffn_gate_inp`)]),
    { name: `blk.${i}.attn_norm.weight`, shape: [4096] },
  ]).flat();
  return [matrix("token_embd"), ...all, matrix("output")];
}

function countsOf(mix: MixName, change: Partial<MixedModel> = {}): Record<string, number> {
  const model = { layers: 32, heads: 32, kvHeads: 8, experts: 0, hasImportance: false, ...change };
  const types = mixedTypes(mix, model, tensorsOf(model.layers, model.experts));
  const counts: Record<string, number> = {};
  for (const type of types.values()) counts[type] = (counts[type] ?? 0) + 1;
  return counts;
}

Deno.test("mixtures have the types of llama.cpp's files of 7B and 8B models", () => {
  assertEquals(countsOf("Q4_K_M"), { Q4_K: 193, Q6_K: 33 });
  // Llama 2 70B: 64 heads, of which 8 share keys and values.
  const large = { layers: 80, heads: 64, kvHeads: 8 };
  assertEquals(countsOf("Q4_K_M", large), { Q4_K: 441, Q5_K: 40, Q6_K: 81 });
  assertEquals(countsOf("Q3_K_S", large), { Q3_K: 481, Q5_K: 80, Q6_K: 1 });
  // As many layers without shared heads, and more layers.
  assertEquals(countsOf("Q4_K_M", { ...large, kvHeads: 64 }), { Q4_K: 481, Q6_K: 81 });
  assertEquals(countsOf("Q4_K_M", { ...large, layers: 88 }), { Q4_K: 529, Q6_K: 89 });
  assertEquals(countsOf("Q5_K_M"), { Q5_K: 193, Q6_K: 33 });
  assertEquals(countsOf("Q4_K_S"), { Q4_K: 217, Q5_K: 8, Q6_K: 1 });
  assertEquals(countsOf("Q3_K_M"), { Q3_K: 129, Q4_K: 92, Q5_K: 4, Q6_K: 1 });
  assertEquals(countsOf("Q3_K_L"), { Q3_K: 129, Q5_K: 96, Q6_K: 1 });
  assertEquals(countsOf("Q2_K", { kvHeads: 32 }), { Q2_K: 129, Q3_K: 96, Q6_K: 1 });
  assertEquals(countsOf("Q2_K"), { Q2_K: 129, Q3_K: 64, Q4_K: 32, Q6_K: 1 });
  assertEquals(countsOf("Q4_0"), { Q4_0: 225, Q6_K: 1 });
  assertEquals(countsOf("Q4_0", { hasImportance: true }), { Q4_0: 221, Q4_1: 4, Q6_K: 1 });
  assertEquals(countsOf("Q8_0"), { Q8_0: 226 });
  assertEquals(countsOf("Q5_0", { hasImportance: true }), { Q5_0: 221, Q5_1: 4, Q6_K: 1 });
  for (const mix of ["IQ4_NL", "IQ4_XS"] as const) {
    assertEquals(countsOf(mix), { [mix]: 189, Q5_K: 36, Q6_K: 1 });
    assertEquals(countsOf(mix, { hasImportance: true }), { [mix]: 193, Q5_K: 32, Q6_K: 1 });
    // Two heads share keys and values, then four.
    assertEquals(countsOf(mix, { kvHeads: 9 }), { [mix]: 221, Q5_K: 4, Q6_K: 1 });
  }
  assertEquals(countsOf("BF16"), { BF16: 226 });
  const mixtral = countsOf("Q4_K_M", { experts: 8 });
  assertEquals(mixtral, { Q4_K: 113, Q5_K: 32, Q6_K: 17, Q8_0: 64 });
  assertEquals(countsOf("Q4_K_M", { experts: 16 }), { Q4_K: 193, Q6_K: 33 });
});

Deno.test("the output of attention next to eight experts has five bits in most mixtures", () => {
  const model = { layers: 2, heads: 8, kvHeads: 8, experts: 8, hasImportance: false };
  const name = "blk.0.attn_output.weight";
  // Mixtures of 4 bits and less have Q5_K there, except for these.
  const others: Partial<Record<MixName, string>> = {
    ...{ F32: "F32", BF16: "BF16", F16: "F16", Q8_0: "Q8_0", Q6_K: "Q6_K", Q5_1: "Q5_1" },
    ...{ Q5_0: "Q5_0", Q4_1: "Q4_1", Q4_0: "Q4_0", Q3_K_L: "Q3_K" },
  };
  for (const mix of Object.keys(MIXES) as MixName[]) {
    const type = mixedTypes(mix, model, [{ name, shape: [512, 512] }]).get(name);
    assertEquals(type, others[mix] ?? "Q5_K", mix);
  }
});

Deno.test("layers at both ends and every third one between get more bits", () => {
  const model = { heads: 32, kvHeads: 8, experts: 0, hasImportance: false };
  const more = (layers: number) => {
    const types = mixedTypes("Q4_K_M", { ...model, layers }, tensorsOf(layers, 0));
    return Array.from({ length: layers }, (_, i) => i)
      .filter((i) => types.get(`blk.${i}.ffn_down.weight`) === "Q6_K");
  };
  assertEquals(more(32), [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
  assertEquals(more(28), [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]);
});

Deno.test("value matrices count next to those that attention has in other layers", () => {
  const model = { layers: 16, heads: 32, kvHeads: 8, experts: 0, hasImportance: false };
  for (const other of ["attn_qkv", "attn_kv_b"]) {
    const tensors = Array.from({ length: 16 }, (_, i) => {
      const name = `blk.${i}.${i % 2 === 0 ? other : "attn_v"}.weight`;
      return { name, shape: [512, 512] };
    });
    const types = mixedTypes("Q4_K_M", model, tensors);
    const more = [...types].filter(([name, type]) => name.includes("attn_v") && type === "Q6_K");
    const layers = more.map(([name]) => Number(name.split(".")[1]));
    // The first two of sixteen, and every third one from there on.
    assertEquals(layers, [1, 3, 9, 15], other);
  }
});

Deno.test("small matrices and biases keep their types", () => {
  const model = { layers: 1, heads: 8, kvHeads: 8, experts: 4, hasImportance: false };
  const matrix = (name: string) => ({ name, shape: [4, 512] });
  const kept = [
    ...["attn_q_norm", "ffn_gate_inp", "ffn_gate_inp_shexp", "ssm_conv1d", "shortconv.conv"]
      .map((part) => `blk.0.${part}.weight`),
    ...["position_embd.weight", "token_types.weight", "per_layer_model_proj.weight"],
    ...["blk.0.ffn_up_exps.bias", "blk.0.ssm_a"],
  ];
  const types = mixedTypes("Q4_0", model, [...kept, "blk.0.ffn_up.weight"].map(matrix));
  assertEquals(Object.fromEntries(types), { "blk.0.ffn_up.weight": "Q4_0" });
});

Deno.test("queries, keys and values in one matrix have a type for all three", () => {
  const model = { layers: 2, heads: 8, kvHeads: 8, experts: 0, hasImportance: false };
  const typeOf = (mix: MixName) =>
    mixedTypes(mix, model, [{ name: "blk.0.attn_qkv.weight", shape: [512, 512] }])
      .get("blk.0.attn_qkv.weight");
  const types = {
    Q3_K_S: "Q3_K",
    Q3_K_M: "Q4_K",
    Q3_K_L: "Q4_K",
    Q4_K_S: "Q4_K",
    Q4_K_M: "Q5_K",
    Q5_K_S: "Q5_K",
    Q5_K_M: "Q6_K",
    Q6_K: "Q6_K",
  } as const;
  for (const [mix, type] of Object.entries(types)) assertEquals(typeOf(mix as MixName), type, mix);
});

Deno.test("layers count in order, and without experts only those with the matrix", () => {
  const model = { layers: 16, heads: 32, kvHeads: 8, experts: 0, hasImportance: false };
  const shape = [4096, 4096];
  const downs = (layers: readonly number[]) =>
    layers.map((layer) => ({ name: `blk.${layer}.ffn_down.weight`, shape }));
  // An eighth of the layers: the first two matrices, which are in layers 1 and 5.
  const types = mixedTypes("Q4_K_S", model, downs([15, 9, 5, 1]));
  assertEquals(Object.fromEntries(types), {
    "blk.1.ffn_down.weight": "Q5_K",
    "blk.5.ffn_down.weight": "Q5_K",
    "blk.9.ffn_down.weight": "Q4_K",
    "blk.15.ffn_down.weight": "Q4_K",
  });
  assertEquals(mixedTypes("Q4_K_S", { ...model, experts: 1 }, downs([15, 9, 5, 1])), types);
  const experts = mixedTypes("Q4_K_S", { ...model, experts: 4 }, downs([15, 9, 5, 1]));
  assertEquals([...experts.values()], ["Q5_K", "Q4_K", "Q4_K", "Q4_K"]);
});

Deno.test("a tied embedding has the type of an output matrix, and narrow rows other blocks", () => {
  const model = { layers: 2, heads: 4, kvHeads: 2, experts: 0, hasImportance: false };
  const typesOf = (mix: MixName, cols: number) => [
    ...mixedTypes(mix, model, [
      { name: "token_embd.weight", shape: [100, cols] },
      { name: "blk.0.attn_q.weight", shape: [64, cols] },
      { name: "blk.0.attn_v.weight", shape: [64, cols] },
      { name: "blk.0.ffn_gate_inp.weight", shape: [64, cols] },
    ]).values(),
  ];
  assertEquals(typesOf("Q4_K_S", 256), ["Q6_K", "Q4_K", "Q5_K"]);
  assertEquals(typesOf("Q4_K_S", 96), ["Q8_0", "Q5_0", "Q5_1"]);
  assertEquals(typesOf("Q3_K_S", 96), ["Q8_0", "IQ4_NL", "IQ4_NL"]);
  assertEquals(typesOf("Q2_K", 96), ["Q8_0", "IQ4_NL", "IQ4_NL"]);
  assertEquals(typesOf("IQ4_XS", 96), ["Q8_0", "IQ4_NL", "IQ4_NL"]);
  assertEquals(typesOf("Q6_K", 96), ["Q8_0", "Q8_0", "Q8_0"]);
  assertEquals(typesOf("Q6_K", 100), ["F16", "F16", "F16"]);
});

Deno.test("mixtures have the numbers of llama.cpp's enumeration of file types", () => {
  const numbers = Object.entries(MIXES).map(([name, { fileType }]) => [fileType, name] as const);
  assertEquals(numbers.sort(([a], [b]) => a - b), [
    [0, "F32"],
    [1, "F16"],
    [2, "Q4_0"],
    [3, "Q4_1"],
    [7, "Q8_0"],
    [8, "Q5_0"],
    [9, "Q5_1"],
    [10, "Q2_K"],
    [11, "Q3_K_S"],
    [12, "Q3_K_M"],
    [13, "Q3_K_L"],
    [14, "Q4_K_S"],
    [15, "Q4_K_M"],
    [16, "Q5_K_S"],
    [17, "Q5_K_M"],
    [18, "Q6_K"],
    [25, "IQ4_NL"],
    [30, "IQ4_XS"],
    [32, "BF16"],
  ]);
});
