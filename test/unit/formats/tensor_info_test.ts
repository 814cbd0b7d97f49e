import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { assertComputable, tensorBytes } from "../../../src/formats/tensor_info.ts";

Deno.test("bytes of a tensor follow from its type and shape", () => {
  assertEquals(tensorBytes("F32", []), 4);
  assertEquals(tensorBytes("BF16", [3, 5]), 30);
  assertEquals(tensorBytes("Q4_0", [2, 64]), 2 * 2 * 18);
  assertEquals(tensorBytes("Q6_K", [10, 256]), 2100);
  assertEquals(tensorBytes("TQ1_0", [256]), 54);
  assertEquals(tensorBytes("F4", [3, 2]), 3);
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
});
