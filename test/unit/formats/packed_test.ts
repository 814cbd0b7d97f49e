/** Folders with packed matrices: supported ones and their types, and errors for others. */
import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { unpackedTensors } from "../../../src/formats/packed/mod.ts";
import { unpackedGgufTensors } from "../../../src/formats/packed/nvfp4.ts";
import type { TensorInfo, TensorType } from "../../../src/formats/tensor_info.ts";
import { joinParts } from "../../support/parts.ts";
import { TempFolder } from "../../support/temp_folder.ts";

type Tensors = Record<string, readonly [TensorType, ...number[]]>;

/** The group of each of 256 columns, as in `g_idx`. */
const RUNS = Int32Array.from({ length: 256 }, (_, i) => Math.floor(i / 128));

/** Bytes before the tensors of a file, which belong to none of them. */
const HEADER = new Uint8Array(64).fill(0xff);

/** Returns the tensors of a file that contains only `g_idx` and a bias. */
function unpack(
  settings: JsonObject,
  tensors: Tensors,
  gIdx = RUNS,
  bias = new Float32Array(64),
): Map<string, TensorInfo> {
  using folder = new TempFolder();
  const stored = [gIdx, bias].map((values) => new Uint8Array(values.slice().buffer));
  const file = folder.write("model.safetensors", joinParts([HEADER, ...stored]));
  const infos = Object.entries(tensors).map(([name, [type, ...shape]]): [string, TensorInfo] => {
    const [offset, bytes] = name.endsWith("g_idx")
      ? [HEADER.length, gIdx.byteLength]
      : name.endsWith("bias")
      ? [HEADER.length + gIdx.byteLength, bias.byteLength]
      : [0, 0];
    return [name, { name, type, shape, file, offset, bytes }];
  });
  return new Map(unpackedTensors({ quantization_config: settings }, new Map(infos), "folder"));
}

/** Returns the packed matrices by name: type, shape and group size. */
function shapes(settings: JsonObject, tensors: Tensors, gIdx = RUNS) {
  return Array.from(unpack(settings, tensors, gIdx).values(), ({ name, type, shape, packed }) => {
    return [name, type, shape, packed?.groupRows, packed?.groupCols];
  });
}

const FP8 = { quant_method: "fp8", weight_block_size: [128, 128] };
const GPTQ = { quant_method: "gptq", bits: 4, group_size: 128, desc_act: false };
const AWQ = { quant_method: "awq", bits: 4, group_size: 128, version: "gemm" };

const gptqTensors: Tensors = {
  "a.qweight": ["I32", 32, 64],
  "a.qzeros": ["I32", 2, 8],
  "a.scales": ["F16", 2, 64],
  "a.g_idx": ["I32", 256],
};
const awqTensors: Tensors = {
  "a.qweight": ["I32", 256, 8],
  "a.qzeros": ["I32", 2, 8],
  "a.scales": ["F16", 2, 64],
};

Deno.test("8-bit floats are found with scales of every granularity", () => {
  const cases: [Tensors[string], number, number][] = [
    [["F32", 2, 3], 128, 128],
    [["BF16", 200, 1], 1, 288],
    [["BF16", 200], 1, 288],
    [["F32"], 200, 288],
    [["F32", 1], 200, 288],
  ];
  for (const [scales, groupRows, groupCols] of cases) {
    const tensors: Tensors = {
      "a.weight": ["F8_E4M3", 200, 288],
      "a.weight_scale_inv": scales,
      "a.input_scale": ["F32", 1],
      "a.activation_scale": ["F32", 1],
      "a.input_global_scale": ["F32", 1],
      "a.input_scale_ub": ["F32", 1],
      "a.k_scale": ["F32", 1],
      "a.k_proj.output_scale": ["F32", 1],
    };
    const expected = [["a.weight", "FP8", [200, 288], groupRows, groupCols]];
    for (const settings of [FP8, { quant_method: "fp8" }, { quant_method: "fbgemm_fp8" }]) {
      assertEquals(shapes(settings, tensors), expected);
    }
  }
});

Deno.test("tensors of folders without packed matrices stay as they are", () => {
  const tensors: Tensors = { "a.weight": ["BF16", 64, 64], "a_blocks": ["U8", 4, 64, 2, 16] };
  for (const settings of [{ bits: 4 }, { quant_method: "mxfp4" }]) {
    assertEquals(
      shapes(settings, tensors).map(([name, ...info]) => [name, ...info.slice(0, 2)]),
      [["a.weight", "BF16", [64, 64]], ["a_blocks", "U8", [4, 64, 2, 16]]],
    );
  }
  // Vectors have no scales.
  const vector: Tensors = { "a.zeros": ["I8", 64] };
  assertEquals(shapes(FP8, vector), [["a.zeros", "I8", [64], undefined, undefined]]);
});

Deno.test("integers of 8 bits are read as 8-bit floats are", () => {
  const tensors: Tensors = { "a.weight": ["I8", 64, 96], "a.weight_scale": ["BF16", 64, 1] };
  const settings = { quant_method: "compressed-tensors", format: "int-quantized" };
  const [matrix] = unpack(settings, tensors).values();
  assertEquals([matrix?.packed?.packing, matrix?.type], ["int8", "Q8_0"]);
  assertEquals([matrix?.packed?.groupRows, matrix?.packed?.groupCols], [1, 96]);
});

Deno.test("experts in one tensor share scales as single ones do", () => {
  const experts = (...scales: number[]): Tensors => ({
    "experts.gate_up_proj": ["F8_E4M3", 4, 256, 128],
    "experts.gate_up_proj_scale_inv": ["F32", ...scales],
  });
  const name = "experts.gate_up_proj", shape = [4, 256, 128];
  assertEquals(shapes(FP8, experts(4, 2, 1)), [[name, "FP8", shape, 128, 128]]);
  assertEquals(shapes(FP8, experts(4, 1, 1)), [[name, "FP8", shape, 256, 128]]);
  assertEquals(shapes(FP8, experts(4, 256, 1)), [[name, "FP8", shape, 1, 128]]);
  // In transposed experts, such as Llama 4's, rows are the last dimension.
  assertEquals(shapes(FP8, experts(4, 1, 128)), [[name, "FP8", shape, 256, 1]]);
  assertEquals(shapes(FP8, experts(1)), [[name, "FP8", shape, 1024, 128]]);
  // The shape of the scales decides for square experts.
  const square = (...scales: number[]) => {
    const [matrix] = shapes(FP8, {
      "experts.up_proj": ["F8_E4M3", 4, 128, 128],
      "experts.up_proj_scale": ["F32", ...scales],
    });
    return matrix?.slice(3);
  };
  assertEquals([square(4, 1, 128), square(4, 128, 1), square(4, 128)], [
    [128, 1],
    [1, 128],
    [1, 128],
  ]);
});

Deno.test("both settings for the size of blocks are used", () => {
  const tensors: Tensors = { "a.weight": ["F8_E4M3", 64, 128], "a.weight_scale": ["F32", 2, 2] };
  const [none, block] = [null, [32, 64]].map((size) => ({ weights: { block_structure: size } }));
  const named = { config_groups: { group_0: none!, group_1: block! } };
  const groups = [["a.weight", "FP8", [64, 128], 32, 64]];
  assertEquals(shapes({ quant_method: "fp8", weight_block_size: [32, 64] }, tensors), groups);
  assertEquals(shapes({ quant_method: "compressed-tensors", ...named }, tensors), groups);
});

const nvfp4: Tensors = {
  "a.weight_packed": ["U8", 64, 128],
  "a.weight_scale": ["F8_E4M3", 64, 16],
  "a.weight_global_scale": ["F32", 1],
};

Deno.test("NVFP4 becomes FP4, or F32 where rows are no whole blocks", () => {
  const optimizer = (cols: number): Tensors => {
    return {
      "a.weight": ["U8", 64, cols / 2],
      "a.weight_scale": ["F8_E4M3", 64, cols / 16],
      "a.weight_scale_2": ["F32"],
      "a.input_scale": ["F32"],
    };
  };
  const settings = { quant_method: "modelopt", quant_algo: "NVFP4" };
  assertEquals(shapes(settings, optimizer(128)), [["a.weight", "FP4", [64, 128], 64, 128]]);
  assertEquals(shapes(settings, optimizer(96)), [["a.weight", "F32", [64, 96], 64, 96]]);
  const compressed = { quant_method: "compressed-tensors", format: "nvfp4-pack-quantized" };
  assertEquals(shapes(compressed, nvfp4), [["a.weight", "FP4", [64, 256], 64, 256]]);
});

Deno.test("NVFP4 of GGUF files becomes FP4 with a scale for each matrix", () => {
  const gguf = (tensors: Tensors) => {
    const infos = Object.entries(tensors).map(([name, [type, ...shape]]): [string, TensorInfo] => {
      return [name, { name, type, shape, file: "model.gguf", offset: 0, bytes: 0 }];
    });
    return Array.from(unpackedGgufTensors(new Map(infos)).values(), ({ name, type, packed }) => {
      return [name, type, packed?.groupRows, packed?.groupCols, packed?.scales?.name];
    });
  };
  const tensors: Tensors = {
    "up_exps.weight": ["NVFP4", 4, 96, 128],
    "up_exps.scale": ["F32", 4],
    "up_exps.input_scale": ["F32", 4],
    "q.weight": ["NVFP4", 32, 64],
    "q.scale": ["F32", 1],
    "k.weight": ["F16", 32, 64],
    "k.scale": ["F32", 1],
  };
  assertEquals(gguf(tensors), [
    ["up_exps.weight", "FP4", 96, 128, "up_exps.scale"],
    ["q.weight", "FP4", 32, 64, "q.scale"],
    ["k.weight", "F16", undefined, undefined, undefined],
    ["k.scale", "F32", undefined, undefined, undefined],
  ]);
  const wrong = () => gguf({ ...tensors, "up_exps.scale": ["F32", 1] });
  assertThrows(wrong, ForgeError, "imply F32 or F16 or BF16 [4]");
});

Deno.test("4-bit integers become matrices with rows in the usual order", () => {
  const matrix = (type: string) => [["a.weight", type, [64, 256], 1, 128]];
  // If all zeros are 8, Q4_1 represents their products with scales exactly.
  assertEquals(shapes({ ...GPTQ, sym: true }, gptqTensors), matrix("Q4_1"));
  assertEquals(shapes({ ...GPTQ, sym: false }, gptqTensors), matrix("Q5_0"));
  assertEquals(shapes(GPTQ, gptqTensors), matrix("Q5_0"));
  assertEquals(shapes(AWQ, awqTensors), matrix("Q5_0"));
  // Settings of matrices that are not packed.
  for (const settings of [{}, null]) {
    assertEquals(shapes({ ...GPTQ, dynamic: { "-:b": settings } }, gptqTensors), matrix("Q5_0"));
  }
  // Defaults and other spellings of the same packing.
  const { version: _, bits: w_bit, ...unnamed } = AWQ;
  assertEquals(shapes({ ...unnamed, w_bit }, awqTensors), matrix("Q5_0"));
  assertEquals(shapes({ ...AWQ, version: "GEMM" }, awqTensors), matrix("Q5_0"));
  const int4 = {
    quant_method: "compressed-tensors",
    config_groups: { a: { weights: { num_bits: 4 } } },
  };
  const compressed: Tensors = {
    "a.weight_packed": ["I32", 64, 32],
    "a.weight_scale": ["BF16", 64, 2],
    "a.weight_shape": ["I64", 2],
    "b.weight": ["BF16", 8, 8],
  };
  const groups = [
    { weights: { num_bits: 4, type: "int" }, format: "pack-quantized" },
    { weights: { num_bits: 8, type: "float" } },
    { weights: { num_bits: 8, type: "int" }, format: "int-quantized" },
  ];
  // Groups of other formats may come before and after.
  const [mixed, reversed] = [groups, groups.toReversed()]
    .map((config_groups) => ({ ...int4, config_groups: { ...config_groups } }));
  for (const settings of [int4, mixed!, reversed!]) {
    assertEquals(shapes(settings, compressed), [
      ["b.weight", "BF16", [8, 8], undefined, undefined],
      ...matrix("Q4_0"),
    ]);
  }
});

Deno.test("a bias of zeros is dropped, any other stays", () => {
  const names = (bias: Float32Array<ArrayBuffer>, rows = 64) =>
    [...unpack(GPTQ, { ...gptqTensors, "a.bias": ["F32", rows] }, RUNS, bias).keys()].sort();
  assertEquals(names(new Float32Array(64)), ["a.weight"]);
  assertEquals(names(new Float32Array(64).fill(1, 63)), ["a.bias", "a.weight"]);
  assertEquals(names(new Float32Array(32), 32), ["a.bias", "a.weight"]);
});

Deno.test("the last group of columns may be smaller than the others", () => {
  const tensors: Tensors = {
    ...gptqTensors,
    "a.qzeros": ["I32", 3, 8],
    "a.scales": ["F16", 3, 64],
  };
  const gIdx = RUNS.map((_, i) => Math.floor(i / 96));
  const [matrix] = unpack({ ...GPTQ, group_size: 96 }, tensors, gIdx).values();
  assertEquals(
    [matrix?.type, matrix?.packed?.groupCols, matrix?.packed?.columnOrder],
    ["Q5_0", 96, undefined],
  );
});

Deno.test("the order of columns follows g_idx, not desc_act", () => {
  const type = (settings: JsonObject, tensors: Tensors, gIdx?: Int32Array<ArrayBuffer>) =>
    shapes(settings, tensors, gIdx).map(([, type, , , groupCols]) => [type, groupCols])[0];
  const ordered = { ...GPTQ, desc_act: true };
  const other = RUNS.toReversed();
  const orderOf = (settings: JsonObject, gIdx?: Int32Array<ArrayBuffer>) =>
    unpack(settings, gptqTensors, gIdx).get("a.weight")?.packed?.columnOrder;
  const halves = Uint32Array.from({ length: 256 }, (_, i) => (i + 128) % 256);
  for (const settings of [ordered, GPTQ]) {
    assertEquals(type(settings, gptqTensors, other), ["Q5_0", 128]);
    assertEquals(orderOf(settings, other), halves);
    assertEquals(type(settings, gptqTensors), ["Q5_0", 128]);
    assertEquals(orderOf(settings), undefined);
  }
  // Groups that are not whole blocks, which no quantizer writes, become floats.
  for (const columns of [1, 8, 16]) {
    const odd = RUNS.map((group, i) => i < columns ? 1 : group);
    assertEquals(type(ordered, gptqTensors, odd), ["F32", 128]);
  }

  // A group size of -1 makes a row one group, whose columns GPTQ may take in any order.
  const whole = { ...ordered, group_size: -1 };
  const { "a.g_idx": _, ...oneGroup }: Tensors = {
    ...gptqTensors,
    "a.qzeros": ["I32", 1, 8],
    "a.scales": ["F16", 1, 64],
  };
  assertEquals(type(whole, oneGroup), ["Q5_0", 256]);
  const zeros = new Int32Array(256);
  assertEquals(type(whole, { ...oneGroup, "a.g_idx": ["I32", 256] }, zeros), ["Q5_0", 256]);

  const { "a.g_idx": __, ...withoutOrder } = gptqTensors;
  assertThrows(() => unpack(ordered, withoutOrder), ForgeError, `has no tensor "a.g_idx"`);
  for (const group of [2, -1]) {
    const beyond = RUNS.map((own, i) => i === 7 ? group : own);
    const { message } = assertThrows(() => unpack(GPTQ, gptqTensors, beyond), ForgeError);
    assertStringIncludes(message, `model.safetensors": tensor "a.g_idx" puts column 7 into`);
  }
});

Deno.test("other packings and inconsistent tensors are rejected", () => {
  const f8 = (scale: Tensors[string], ...shape: number[]): Tensors => {
    return { "a.weight": ["F8_E4M3", ...shape], "a.weight_scale": scale };
  };
  const { "a.qzeros": _, ...withoutZeros } = awqTensors;
  const packed: Tensors = { "a.weight_packed": ["I32", 64, 32], "a.weight_scale": ["BF16", 64, 2] };
  const { "a.weight_global_scale": __, ...withoutGlobal } = nvfp4;
  const ct = (...bits: number[]) => {
    const groups = bits.map((num_bits, i) => [`group_${i}`, { weights: { num_bits } }]);
    return { quant_method: "compressed-tensors", config_groups: Object.fromEntries(groups) };
  };
  const bad: [JsonObject, Tensors, ForgeError["code"], string][] = [
    [{ quant_method: "bitsandbytes" }, {}, "unsupported", `quantized by "bitsandbytes"`],
    [{ quant_method: "constructor" }, {}, "unsupported", `quantized by "constructor"`],
    [FP8, { "a.weight": ["F8_E4M3", 64, 64] }, "bad_model", `neither "a.weight_scale" nor`],
    [
      FP8,
      f8(["F32", 3], 64, 64),
      "bad_model",
      "have the shape [3]; valid for [64,64] is one scale",
    ],
    [FP8, f8(["F32", 1, 64], 32, 64), "bad_model", "have the shape [1,64]"],
    [FP8, f8(["F32", 3, 2, 1], 4, 256, 128), "bad_model", "have the shape [3,2,1]"],
    [FP8, f8(["U8", 1], 64, 64), "unsupported", "stored as U8"],
    [FP8, f8(["F32", 1], 64, 40), "unsupported", "must be a multiple of 32"],
    [FP8, f8(["F32", 2, 2, 1], 2, 192, 128), "bad_model", "one per block of 128 x 128"],
    [{ ...FP8, weight_block_size: [0, 1] }, {}, "bad_model", 'has the block "[0,1]"'],
    [{ ...FP8, weight_block_size: [8, 8, 8] }, {}, "bad_model", 'has the block "[8,8,8]"'],
    [{ ...GPTQ, bits: 8 }, gptqTensors, "unsupported", `quantized to "8" bits`],
    [{ ...GPTQ, checkpoint_format: "gptq_v2" }, {}, "unsupported", `the format "gptq_v2"`],
    [{ ...GPTQ, dynamic: { "x": { bits: 8 } } }, {}, "unsupported", "other numbers of bits"],
    [{ ...GPTQ, dynamic: { y: {}, x: { bits: 8 } } }, {}, "unsupported", "other numbers of bits"],
    [GPTQ, { ...gptqTensors, "a.g_idx": ["I32", 255] }, "bad_model", "imply I32 [256]"],
    [GPTQ, { ...gptqTensors, "a.scales": ["F16", 3, 64] }, "bad_model", "imply I32 [3,8]"],
    [{ ...GPTQ, group_size: 64 }, gptqTensors, "unsupported", "2 groups in 256 columns"],
    [{ ...AWQ, bits: 8 }, awqTensors, "unsupported", `quantized to "8" bits`],
    [{ ...AWQ, version: "gemv" }, {}, "unsupported", `AWQ of the version "gemv"`],
    [AWQ, { ...awqTensors, "a.scales": ["F16", 2, 32] }, "bad_model", "or BF16 [2,64]"],
    [
      { ...AWQ, group_size: 48 },
      { ...awqTensors, "a.qzeros": ["I32", 6, 8], "a.scales": ["F16", 6, 64] },
      "unsupported",
      "6 groups in 256 columns",
    ],
    [AWQ, withoutZeros, "bad_model", `no tensor "a.qzeros"`],
    [ct(8), packed, "unsupported", `quantized to "8" bits`],
    [ct(4, 8), packed, "unsupported", `quantized to "8" bits`],
    [ct(8, 4), packed, "unsupported", `quantized to "8" bits`],
    [ct(4), { ...packed, "a.weight_scale": ["BF16", 32, 2] }, "bad_model", "or BF16 [64,2]"],
    [ct(4), { ...packed, "a.weight_zero_point": ["I32", 8, 2] }, "unsupported", "zero points or"],
    [ct(4), { ...packed, "a.weight_packed": ["I64", 64, 128] }, "unsupported", "4 bits in I64"],
    [ct(4), { ...nvfp4, "a.weight_scale": ["U8", 64, 8] }, "unsupported", "(MXFP4)"],
    [ct(4), { ...nvfp4, "a.weight_scale": ["F8_E4M3", 64, 8] }, "bad_model", "F8_E4M3 [64,16]"],
    [ct(4), { ...nvfp4, "a.weight_global_scale": ["F32", 64] }, "bad_model", "imply F32 or"],
    [ct(4), { ...nvfp4, "a.pre_quant_scale": ["F32", 256] }, "unsupported", "scaled inputs (AWQ)"],
    [ct(4), withoutGlobal, "bad_model", `no tensor "a.weight_global_scale"`],
    [ct(4), { ...packed, "a.weight_g_idx": ["I32", 256] }, "unsupported", "an order of columns"],
    [ct(8), { "a.weight": ["I8", 64, 64] }, "bad_model", `neither "a.weight_scale" nor`],
    [
      ct(8),
      {
        "a.weight": ["I8", 64, 64],
        "a.weight_scale": ["F32", 64, 1],
        "a.weight_zero_point": ["I8", 64, 1],
      },
      "unsupported",
      "8 bits with zero points",
    ],
  ];
  for (const [settings, tensors, code, message] of bad) {
    const error = assertThrows(() => unpack(settings, tensors), ForgeError, message);
    assertEquals(error.code, code);
  }
});
