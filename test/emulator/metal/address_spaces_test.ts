import { assert, assertEquals, assertMatch } from "@std/assert";
import {
  addressSpaceErrors,
  addressSpacesUnavailable,
  kernelFiles,
  unqualifiedPointers,
} from "./address_spaces.ts";

const unavailable = await addressSpacesUnavailable();
if (unavailable) console.error(`skipping: ${unavailable}`);

Deno.test("pointers of Metal kernels name their address space", () => {
  assertEquals(kernelFiles().flatMap(unqualifiedPointers), []);
  const text = "inline float f(device float* x, const float* y) {\n  u8* z = (u8*)y;\n";
  assertEquals(unqualifiedPointers({ name: "x.h", text }), [
    "x.h:1: const float*",
    "x.h:2: u8*",
    "x.h:2: u8*",
  ]);
});

Deno.test({
  name: "Metal kernels mix no address spaces",
  ignore: unavailable !== undefined,
  fn: async () => assertEquals(await addressSpaceErrors(kernelFiles(), "kernels"), []),
});

/** Misuses, each in a file and the kernels that include it. */
const misuses = [
  {
    misuse: "threadgroup memory is taken for device memory",
    file: "simd.h",
    change: [
      "inline T group_sum(T x, threadgroup T* partial",
      "inline T group_sum(T x, device T* partial",
    ],
    kernel: "rms_norm.metal",
  },
  {
    misuse: "a buffer is taken for constant memory",
    file: "layer_norm.metal",
    change: [
      "  const ulong begin = ulong(row) * cols;",
      "  const ulong begin = ulong(row) * cols;\n  constant float* wrong = x;",
    ],
    kernel: "layer_norm.metal",
  },
  {
    misuse: "an address of threadgroup memory is stored in a buffer's pointer",
    file: "gemm.h",
    change: [
      "simdgroup_load(x[n], tokens + 2",
      "simdgroup_load(x[n], (device const T*)tokens + 2",
    ],
    kernel: "gemm.metal",
  },
  {
    misuse: "a shuffle moves 64 bits",
    file: "simd.h",
    change: ["x += shuffled_xor(x, bits);", "x += simd_shuffle_xor(x, bits);"],
    kernel: "sample_token.metal",
  },
] as const;

Deno.test({
  name: "misuse of address spaces is caught",
  ignore: unavailable !== undefined,
  fn: async (t) => {
    for (const { misuse, file, change: [from, to], kernel } of misuses) {
      await t.step(misuse, async () => {
        const files = kernelFiles()
          .filter(({ name }) => name === kernel || name.endsWith(".h"))
          .map(({ name, text }) => {
            assert(name !== file || text.includes(from), `${file} no longer holds: ${from}`);
            return { name, text: name === file ? text.replace(from, to) : text };
          });
        const errors = await addressSpaceErrors(files, misuse.replaceAll(/\W+/g, "_"));
        assert(errors.length > 0, "clang took it");
        assertMatch(
          errors.join(""),
          /error: (no matching function|cannot initialize|C-style cast|casting)/,
        );
      });
    }
  },
});
