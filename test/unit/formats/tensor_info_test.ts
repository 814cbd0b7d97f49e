import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import {
  assertComputable,
  assertStored,
  TENSOR_TYPES,
  tensorBytes,
} from "../../../src/formats/tensor_info.ts";

Deno.test("bytes of a tensor follow from its type and shape", () => {
  assertEquals(tensorBytes("F32", []), 4);
  assertEquals(tensorBytes("BF16", [3, 5]), 30);
  assertEquals(tensorBytes("Q4_0", [2, 64]), 2 * 2 * 18);
  assertEquals(tensorBytes("Q6_K", [10, 256]), 2100);
  assertEquals(tensorBytes("TQ1_0", [256]), 54);
  assertEquals(tensorBytes("F4", [3, 2]), 3);
  assertEquals(tensorBytes("U8", [2 ** 53 - 1]), 2 ** 53 - 1);
});

/** Types of GGUF files by their numbers in ggml.h: elements and bytes of a block. */
const GGML_TYPES: Readonly<Record<string, readonly [id: number, elements: number, bytes: number]>> =
  {
    F32: [0, 1, 4],
    F16: [1, 1, 2],
    Q4_0: [2, 32, 18],
    Q4_1: [3, 32, 20],
    Q5_0: [6, 32, 22],
    Q5_1: [7, 32, 24],
    Q8_0: [8, 32, 34],
    Q8_1: [9, 32, 36],
    Q2_K: [10, 256, 84],
    Q3_K: [11, 256, 110],
    Q4_K: [12, 256, 144],
    Q5_K: [13, 256, 176],
    Q6_K: [14, 256, 210],
    Q8_K: [15, 256, 292],
    IQ2_XXS: [16, 256, 66],
    IQ2_XS: [17, 256, 74],
    IQ3_XXS: [18, 256, 98],
    IQ1_S: [19, 256, 50],
    IQ4_NL: [20, 32, 18],
    IQ3_S: [21, 256, 110],
    IQ2_S: [22, 256, 82],
    IQ4_XS: [23, 256, 136],
    I8: [24, 1, 1],
    I16: [25, 1, 2],
    I32: [26, 1, 4],
    I64: [27, 1, 8],
    F64: [28, 1, 8],
    IQ1_M: [29, 256, 56],
    BF16: [30, 1, 2],
    TQ1_0: [34, 256, 54],
    TQ2_0: [35, 256, 66],
    MXFP4: [39, 32, 17],
    NVFP4: [40, 64, 36],
    Q1_0: [41, 128, 18],
  };

/** Types of safetensors files alone, by the bits of an element. */
const SAFETENSORS_BITS: Readonly<Record<string, number>> = {
  BOOL: 8,
  U8: 8,
  U16: 16,
  U32: 32,
  U64: 64,
  C64: 64,
  F8_E4M3: 8,
  F8_E5M2: 8,
  F8_E8M0: 8,
  F6_E2M3: 6,
  F6_E3M2: 6,
  F4: 4,
};

Deno.test("every type has the number and the blocks of its format", () => {
  // Matrices of packed folders become FP8 and FP4 in memory.
  const own = { FP8: [256, 32, 36], FP4: [257, 64, 40] };
  const known = Object.fromEntries(
    Object.entries(TENSOR_TYPES).flatMap(([name, type]) => {
      const { ggmlId, nativeId, blockElements, blockBytes } = type;
      const id = ggmlId ?? nativeId;
      return id === undefined ? [] : [[name, [id, blockElements, blockBytes]]];
    }),
  );
  assertEquals(known, { ...GGML_TYPES, ...own });
  const others = Object.entries(TENSOR_TYPES)
    .filter(([name]) => known[name] === undefined)
    .map(([name, { blockElements, blockBytes }]) => [name, 8 * blockBytes / blockElements]);
  assertEquals(Object.fromEntries(others), SAFETENSORS_BITS);
});

Deno.test("an impossible shape is explained", () => {
  assertEquals(
    tensorBytes("Q8_0", [32, 31]),
    "the last dimension of Q8_0 must be a multiple of 32",
  );
  assertEquals(
    tensorBytes("Q4_0", [2, 48]),
    "the last dimension of Q4_0 must be a multiple of 32",
  );
  assertEquals(tensorBytes("F32", [2 ** 30, 2 ** 30]), "it has more than 2^53 elements");
  assertEquals(tensorBytes("F64", [2 ** 51]), "it has more than 2^53 bytes");
  for (const size of [0, -1, 1.5, NaN, Infinity, 2 ** 53]) {
    assertEquals(
      tensorBytes("F32", [2, size]),
      "every dimension must be a whole number from 1 to 9007199254740991",
    );
  }
});

Deno.test("an unsupported tensor type is rejected by name", () => {
  const tensor = { name: "w", shape: [256], file: "model.gguf", offset: 0, bytes: 66 };
  assertComputable({ ...tensor, type: "IQ3_S" });
  const error = assertThrows(
    () => assertComputable({ ...tensor, type: "I64" }),
    ForgeError,
    'tensor "w" in "model.gguf" is stored as I64',
  );
  assertEquals(error.code, "unsupported");
  const listed = Object.entries(TENSOR_TYPES).filter(([, { supported }]) => !supported);
  const numbers = ["I8", "I16", "I32", "I64", "F64", ...Object.keys(SAFETENSORS_BITS)];
  assertEquals(listed.map(([name]) => name), ["Q8_1", "Q8_K", "NVFP4", "Q1_0", ...numbers]);
});

Deno.test("a packed tensor is rejected where its bytes are required", () => {
  const place = { file: "a.safetensors", offset: 0, bytes: 72 };
  const tensor = { name: "w", type: "FP8", shape: [2, 32], ...place } as const;
  assertStored(tensor);
  const packed = { packing: "f8_e4m3", groupRows: 2, groupCols: 32, codes: tensor } as const;
  const error = assertThrows(
    () => assertStored({ ...tensor, packed }),
    ForgeError,
    'tensor "w" in "a.safetensors" is packed (f8_e4m3)',
  );
  assertEquals(error.code, "unsupported");
});
