/** `csrc/forge.h` and its description in TypeScript agree in every name, type and number. */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { exportedFunctions, headerText } from "../../../ffi/build/exports.ts";
import { ABI_VERSION, symbols, versionSymbol } from "../../../ffi/abi.ts";
import { GROUP_KEY_BYTES, WEIGHT_PART_BYTES } from "../../../ffi/native_backend.ts";
import { PACKED_MATRIX_BYTES, TENSOR_PLACE_BYTES } from "../../../ffi/packed_matrix.ts";
import { ACTIVATIONS, PACKINGS, ROPE_LAYOUTS, ROUTER_SCORES } from "../../../ffi/abi/numbers.ts";
import { STATUS_NAMES } from "../../../ffi/status.ts";
import {
  CONTROL_WORDS,
  HEADER_WORDS,
  LOGITS_NAN,
  MASK_BITS,
  MASK_FLOATS,
  MASK_NONE,
  NOT_RUN,
  NOTHING_ALLOWED,
  RESULT_WORDS,
  SAMPLING_WORDS,
} from "../../../ffi/step_block.ts";
import { TENSOR_TYPES, type TensorTypeInfo } from "../../../src/formats/tensor_info.ts";
import { ROOT } from "../../support/checkout.ts";
import { type Parameter, parseHeader, readHeader } from "../../support/header.ts";

const header = readHeader();
const table: Deno.ForeignLibraryInterface = { ...versionSymbol, ...symbols };

const scalarTypes: Readonly<Record<string, string>> = {
  uint32_t: "u32",
  uint64_t: "u64",
  float: "f32",
  forge_status: "i32",
};

/** Returns the FFI type of a C type; all pointers are memory of the caller. */
function ffiType(type: string): string {
  return type.endsWith("*") ? "buffer" : scalarTypes[type] ?? `no FFI type for ${type}`;
}

/** Returns the parameters of every function, as the comments in `ffi/abi` name them. */
function commentedParameters(): Map<string, { readonly type: string; readonly comment: string }[]> {
  const folder = join(ROOT, "ffi", "abi");
  const source = Array.from(
    Deno.readDirSync(folder),
    ({ name }) => Deno.readTextFileSync(join(folder, name)),
  ).join("\n");
  return new Map(
    Array.from(
      source.matchAll(/^ {2}(forge_\w+): \{\s*parameters: \[(.*?)\],/gms),
      ([, name = "", list = ""]) => [
        name,
        Array.from(
          list.matchAll(/"(\w+)", \/\/ (.+)$/gm),
          ([, type = "", comment = ""]) => ({ type, comment }),
        ),
      ],
    ),
  );
}

/** Formats a parameter in C. */
function declaration({ type, name }: Parameter): string {
  return type.endsWith("*") ? `${type}${name}` : `${type} ${name}`;
}

/** Returns the enum with a value of this name. */
function enumOf(name: string): ReadonlyMap<string, number> {
  const found = header.enums.find((values) => values.has(name));
  assert(found, `an enum with ${name}`);
  return found;
}

/** Returns the number of words of a struct with 32-bit fields. */
function wordsOf(name: string): number {
  const struct = header.structs.get(name);
  assert(struct, name);
  struct.fields.forEach(({ offset }, i) => assertEquals(offset, 4 * i, `${name} is all words`));
  return struct.bytes / 4;
}

Deno.test("abi: the header is parsed correctly", () => {
  const small = parseHeader(`
    /* FORGE_API int in_a_comment(void); */
    #define LIMIT 3
    enum { A = 0, /* first */ B = 7 };
    typedef struct { uint32_t a; /* uint32_t hidden; */ uint64_t b; float c; } pair;
    FORGE_API uint32_t none(void);
    FORGE_API forge_status two(const char *text,
                               uint64_t capacity);
  `);
  assertEquals([...small.functions.keys()], ["none", "two"]);
  assertEquals(small.functions.get("two")?.parameters, [
    { type: "const char *", name: "text" },
    { type: "uint64_t", name: "capacity" },
  ]);
  assertEquals(small.enums.map((values) => [...values]), [[["A", 0], ["B", 7]]]);
  assertEquals(small.structs.get("pair")?.fields.map(({ offset }) => offset), [0, 8, 16]);
  assertEquals(small.structs.get("pair")?.bytes, 24);
  assertEquals(small.constants.get("LIMIT"), 3);
});

Deno.test("abi: every function is on both sides, and exported once", () => {
  const exported = exportedFunctions(headerText(join(ROOT, "csrc", "forge.h")));
  assertEquals(exported.sort(), [...header.functions.keys()].sort());
  assert(header.functions.size >= 25);
  assertEquals(Object.keys(table).sort(), [...header.functions.keys()].sort());
});

Deno.test("abi: parameters and results have the right types", () => {
  for (const [name, { result, parameters }] of header.functions) {
    const symbol = table[name];
    assert(symbol && "parameters" in symbol, name);
    assertEquals<readonly unknown[]>(
      symbol.parameters,
      parameters.map(({ type }) => ffiType(type)),
      name,
    );
    assertEquals<unknown>(symbol.result, ffiType(result), name);
  }
});

Deno.test("abi: comments have the parameter names of the header", () => {
  const commented = commentedParameters();
  for (const [name, { parameters }] of header.functions) {
    if (parameters.length === 0) continue;
    assertEquals(
      commented.get(name),
      parameters.map((parameter) => ({
        type: ffiType(parameter.type),
        comment: declaration(parameter),
      })),
      name,
    );
  }
});

Deno.test("abi: only computing functions are non-blocking", () => {
  const nonblocking = Object.entries(table)
    .filter(([, symbol]) => "nonblocking" in symbol && symbol.nonblocking === true)
    .map(([name]) => name);
  assertEquals(nonblocking, ["forge_step_end", "forge_step_run"]);
});

Deno.test("abi: the version", () => {
  assertEquals(header.constants.get("FORGE_ABI_VERSION"), ABI_VERSION);
});

Deno.test("abi: structs", () => {
  assertEquals(wordsOf("forge_step_header"), HEADER_WORDS);
  assertEquals([...enumOf("FORGE_MASK_NONE").values()], [MASK_NONE, MASK_BITS, MASK_FLOATS]);
  assertEquals(wordsOf("forge_sampling"), SAMPLING_WORDS);
  assertEquals(wordsOf("forge_result"), RESULT_WORDS);
  assertEquals(wordsOf("forge_step_control"), CONTROL_WORDS);
  assertEquals(header.structs.get("forge_step_control")?.fields.map(({ name }) => name), [
    "stop",
    "masks_pending",
  ]);
  assertEquals(header.structs.get("forge_weight_part"), {
    fields: [
      { type: "uint32_t", name: "file", offset: 0 },
      { type: "uint32_t", name: "type", offset: 4 },
      { type: "uint64_t", name: "offset", offset: 8 },
      { type: "uint64_t", name: "rows", offset: 16 },
    ],
    bytes: WEIGHT_PART_BYTES,
  });
  assertEquals(header.structs.get("forge_tensor_place"), {
    fields: [
      { type: "uint32_t", name: "file", offset: 0 },
      { type: "uint32_t", name: "type", offset: 4 },
      { type: "uint64_t", name: "offset", offset: 8 },
    ],
    bytes: TENSOR_PLACE_BYTES,
  });
  assertEquals(header.structs.get("forge_packed_matrix"), {
    fields: [
      { type: "uint32_t", name: "packing", offset: 0 },
      { type: "uint32_t", name: "type", offset: 4 },
      { type: "uint64_t", name: "rows", offset: 8 },
      { type: "uint64_t", name: "cols", offset: 16 },
      { type: "uint64_t", name: "group_rows", offset: 24 },
      { type: "uint64_t", name: "group_cols", offset: 32 },
    ],
    bytes: PACKED_MATRIX_BYTES,
  });
  assertEquals(header.structs.get("forge_group")?.fields.map(({ name }) => name), [
    "n_devices",
    "n_stages",
    "first",
  ]);
  assertEquals(wordsOf("forge_group"), 3);
  assertEquals([...enumOf("FORGE_GROUP_KEY_BYTES").values()], [GROUP_KEY_BYTES]);
  assertEquals(header.structs.size, 8);
});

Deno.test("abi: packings", () => {
  const ours = Object.entries(PACKINGS)
    .map(([name, number]) => [`FORGE_PACKED_${name.toUpperCase()}`, number]);
  assertEquals(Object.fromEntries(ours), Object.fromEntries(enumOf("FORGE_PACKED_F8_E4M3")));
});

Deno.test("abi: statuses", () => {
  const texts = [...enumOf("FORGE_OK")].map(([name, value], i) => {
    assertEquals(value, i, name);
    const text = name.replace("FORGE_", "").replaceAll("_", " ").toLowerCase();
    return text === "io" ? "input/output error" : text === "internal" ? "internal error" : text;
  });
  assertEquals(texts, [...STATUS_NAMES]);
});

Deno.test("abi: weight types are the computable tensor types, under the same numbers", () => {
  const ours = Object.entries<TensorTypeInfo>(TENSOR_TYPES)
    .filter(([, { supported }]) => supported)
    .map(([name, { ggmlId, nativeId }]) => [`FORGE_${name}`, ggmlId ?? nativeId]);
  assertEquals(Object.fromEntries(ours), Object.fromEntries(enumOf("FORGE_F32")));
});

Deno.test("abi: activations and RoPE layouts", () => {
  assertEquals(
    Object.fromEntries(
      Object.entries(ACTIVATIONS).map(([name, value]) => [`FORGE_${name.toUpperCase()}`, value]),
    ),
    Object.fromEntries(enumOf("FORGE_IDENTITY")),
  );
  assertEquals(
    Object.fromEntries(
      Object.entries(ROPE_LAYOUTS).map(([name, value]) => [
        `FORGE_ROPE_${name.toUpperCase()}`,
        value,
      ]),
    ),
    Object.fromEntries(enumOf("FORGE_ROPE_HALF")),
  );
  const scores = Object.entries(ROUTER_SCORES)
    .map(([name, value]) => [`FORGE_SCORES_${name.toUpperCase()}`, value]);
  assertEquals(
    Object.fromEntries(scores),
    Object.fromEntries(enumOf("FORGE_SCORES_SOFTMAX")),
  );
});

Deno.test("abi: result flags", () => {
  assertEquals(Object.fromEntries(enumOf("FORGE_LOGITS_NAN")), {
    FORGE_LOGITS_NAN: LOGITS_NAN,
    FORGE_NOTHING_ALLOWED: NOTHING_ALLOWED,
    FORGE_NOT_RUN: NOT_RUN,
  });
});
