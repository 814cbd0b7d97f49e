import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { type GgufHeader, readGguf } from "../../../src/formats/gguf/gguf.ts";
import { TENSOR_TYPES, type TensorType } from "../../../src/formats/tensor_info.ts";
import { ByteWriter } from "../../../src/formats/gguf/byte_writer.ts";
import { type GgufContents, type GgufField, writeGguf } from "../../../src/formats/gguf/writer.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import { encodeGguf } from "../../support/parts.ts";

function parse(bytes: Uint8Array): GgufHeader {
  using folder = new TempFolder();
  return readGguf(folder.write("model.gguf", bytes));
}

/** Checks that the bytes are rejected with a message that includes each of the given texts. */
function assertRefused(bytes: Uint8Array, ...includes: string[]): void {
  const error = assertThrows(() => parse(bytes), ForgeError);
  assertEquals(error.code, "bad_model");
  for (const text of includes) {
    assert(error.message.includes(text), `${error.message} should include ${text}`);
  }
  assert(!error.message.includes("\n"), "one line");
}

/** A header with the given counts, followed by what `write` adds. */
function header(tensors: number | bigint, keys: number | bigint, write?: (w: ByteWriter) => void) {
  const out = new ByteWriter();
  out.bytes(new TextEncoder().encode("GGUF")).u32(3).u64(tensors).u64(keys);
  write?.(out);
  return out.toBytes();
}

function text(out: ByteWriter, value: string): ByteWriter {
  const bytes = new TextEncoder().encode(value);
  return out.u64(bytes.length).bytes(bytes);
}

/** A header with one key, of the value type `type`, followed by what `write` adds. */
function oneKey(type: number, write: (w: ByteWriter) => void): Uint8Array {
  return header(0, 1, (out) => {
    text(out, "some.key").u32(type);
    write(out);
  });
}

/** A header with one tensor of the given `ne`, followed by 64 bytes of data. */
function oneTensor(ne: (number | bigint)[], type = 0, offset: number | bigint = 0): Uint8Array {
  return header(1, 0, (out) => {
    text(out, "weight").u32(ne.length);
    for (const size of ne) out.u64(size);
    out.u32(type).u64(offset).align(32).bytes(new Uint8Array(64));
  });
}

Deno.test("every kind of metadata value is read", () => {
  const { metadata, version } = parse(encodeGguf({
    metadata: {
      u8: ["u8", 255],
      i8: ["i8", -128],
      u16: ["u16", 65535],
      i16: ["i16", -32768],
      u32: ["u32", 4294967295],
      i32: ["i32", -2147483648],
      f32: ["f32", 0.5],
      f64: ["f64", Math.PI],
      yes: ["bool", true],
      no: ["bool", false],
      "small u64": ["u64", Number.MAX_SAFE_INTEGER],
      "large u64": ["u64", 2n ** 53n],
      "largest u64": ["u64", 2n ** 64n - 1n],
      "small i64": ["i64", -5],
      "large i64": ["i64", -(2n ** 63n)],
      text: ["string", "naïve 日本 😀\n\0"],
      marked: ["string", "\ufeffa"],
      empty: ["string", ""],
      texts: ["array", "string", ["", "a", "\ufeffb", "Ġé", "😀"]],
      bools: ["array", "bool", [true, false]],
      floats: ["array", "f32", [1.5, -2]],
      ints: ["array", "i32", [1, -2]],
      longs: ["array", "u64", [1n, 2n ** 64n - 1n]],
      "array of u8": ["array", "u8", [0, 255]],
      "array of i8": ["array", "i8", [-128, 127]],
      "array of u16": ["array", "u16", [1, 65535]],
      "array of i16": ["array", "i16", [-32768, 32767]],
      "array of u32": ["array", "u32", [2, 4294967295]],
      "array of i64": ["array", "i64", [-(2n ** 63n), 5n]],
      "array of f64": ["array", "f64", [Math.PI, -1e300]],
      none: ["array", "string", []],
      nested: ["array", "array", [["array", "u8", [1, 2]], ["array", "string", ["x"]]]],
    },
  }));
  assertEquals(version, 3);
  assertEquals(Object.fromEntries(metadata), {
    u8: 255,
    i8: -128,
    u16: 65535,
    i16: -32768,
    u32: 4294967295,
    i32: -2147483648,
    f32: 0.5,
    f64: Math.PI,
    yes: true,
    no: false,
    "small u64": Number.MAX_SAFE_INTEGER,
    "large u64": 2n ** 53n,
    "largest u64": 2n ** 64n - 1n,
    "small i64": -5,
    "large i64": -(2n ** 63n),
    text: "naïve 日本 😀\n\0",
    marked: "\ufeffa",
    empty: "",
    texts: ["", "a", "\ufeffb", "Ġé", "😀"],
    bools: [true, false],
    floats: Float32Array.of(1.5, -2),
    ints: Int32Array.of(1, -2),
    longs: BigUint64Array.of(1n, 2n ** 64n - 1n),
    "array of u8": Uint8Array.of(0, 255),
    "array of i8": Int8Array.of(-128, 127),
    "array of u16": Uint16Array.of(1, 65535),
    "array of i16": Int16Array.of(-32768, 32767),
    "array of u32": Uint32Array.of(2, 4294967295),
    "array of i64": BigInt64Array.of(-(2n ** 63n), 5n),
    "array of f64": Float64Array.of(Math.PI, -1e300),
    none: [],
    nested: [Uint8Array.of(1, 2), ["x"]],
  });
});

Deno.test("values are copied into another file by their ranges", () => {
  const metadata: Record<string, GgufField> = {
    text: ["string", "é"],
    number: ["f64", Math.PI],
    flag: ["bool", true],
    texts: ["array", "string", ["a", "bc"]],
    nested: ["array", "array", [["array", "u8", [1, 2]]]],
  };
  const bytes = encodeGguf({ metadata });
  const fields = Array.from(parse(bytes).valueRanges, ([key, [start, end]]) => {
    return [key, ["encoded", bytes.subarray(start, end)]] as const;
  });
  assertEquals(encodeGguf({ metadata: Object.fromEntries(fields) }), bytes);
});

Deno.test("tensors of every type are located", () => {
  const types = (Object.keys(TENSOR_TYPES) as TensorType[])
    .filter((type) => TENSOR_TYPES[type].ggmlId !== undefined);
  const tensors = types.map((type, index): TensorData => {
    const { blockBytes, blockElements } = TENSOR_TYPES[type];
    const data = new Uint8Array(3 * 2 * blockBytes).fill(index + 1);
    return { name: `tensor of ${type}`, type, shape: [3, 2 * blockElements], data };
  });
  for (const alignment of [32, 8, 256, 1]) {
    const bytes = encodeGguf({ metadata: {}, tensors, alignment });
    const parsed = parse(bytes);
    assertEquals(parsed.tensors.size, types.length);
    assertEquals(parsed.dataOffset % alignment, 0);
    // Other readers take the alignment as a 32-bit number (type 4) only.
    const key = "general.alignment";
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const at = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("").indexOf(key);
    assertEquals(view.getUint32(at + key.length, true), 4);
    assertEquals(view.getUint32(at + key.length + 4, true), alignment);
    for (const [index, { name, type, shape }] of tensors.entries()) {
      const info = parsed.tensors.get(name)!;
      assertEquals([info.type, info.shape, info.offset % alignment], [type, shape, 0]);
      const stored = bytes.subarray(info.offset, info.offset + info.bytes);
      assertEquals(stored, new Uint8Array(6 * TENSOR_TYPES[type].blockBytes).fill(index + 1));
    }
  }
});

Deno.test("a shape is the reversed ne, up to four dimensions", () => {
  const values = new Float32Array(2 * 3 * 4 * 5);
  const contents: GgufContents = {
    version: 2,
    metadata: {},
    tensors: [
      float32Tensor("t4", [2, 3, 4, 5], values),
      float32Tensor("t1", [7], Array(7).fill(0)),
    ],
  };
  const bytes = encodeGguf(contents);
  // ne of t4 in the file: 5, 4, 3, 2, after the header, the name and the rank.
  const ne = new DataView(bytes.buffer, 24 + 8 + 2 + 4, 32);
  assertEquals([0, 8, 16, 24].map((at) => ne.getUint32(at, true)), [5, 4, 3, 2]);
  const parsed = parse(bytes);
  assertEquals(parsed.version, 2);
  assertEquals(parsed.tensors.get("t4")?.shape, [2, 3, 4, 5]);
  assertEquals(parsed.tensors.get("t1")?.shape, [7]);
});

Deno.test("the smallest file with a tensor has no keys and no padding at its end", () => {
  const bytes = encodeGguf({ metadata: {}, tensors: [float32Tensor("t", [1], [1])] });
  assertEquals(parse(bytes.subarray(0, 64 + 4)).tensors.get("t")?.offset, 64);
});

Deno.test("a number that its type cannot hold is not written", () => {
  const limits = { u8: [0, 255], i8: [-128, 127], u16: [0, 65535], i16: [-32768, 32767] } as const;
  const wide = { u32: [0, 2 ** 32 - 1], i32: [-(2 ** 31), 2 ** 31 - 1] } as const;
  for (const [type, [least, most]] of Object.entries({ ...limits, ...wide })) {
    const write = (value: number) => () =>
      encodeGguf({ metadata: { a: [type as keyof typeof limits, value] }, tensors: [] });
    for (const value of [least, most]) write(value)();
    for (const value of [least - 1, most + 1, 0.5, NaN]) {
      assertThrows(write(value), RangeError, `${value} is not a whole number from ${least} to`);
    }
  }
});

Deno.test("a tensor with more or fewer bytes than its shape implies is not written", () => {
  for (const count of [15, 17]) {
    const data = new Uint8Array(count);
    const parts = () => [data.subarray(0, 8), data.subarray(8)];
    for (const stored of [data, parts]) {
      const tensor: TensorData = { name: "t", type: "F32", shape: [4], data: stored };
      assertThrows(() => encodeGguf({ metadata: {}, tensors: [tensor] }), Error, `${count}`);
    }
  }
});

Deno.test("a file that is written over a longer one has its own length", () => {
  using folder = new TempFolder();
  const contents = (count: number): GgufContents => ({
    metadata: { a: ["u32", 1] },
    tensors: [float32Tensor("t", [count], new Float32Array(count))],
  });
  const path = folder.at("model.gguf");
  for (const count of [1000, 8]) {
    writeGguf(path, contents(count));
    assertEquals(Deno.readFileSync(path), encodeGguf(contents(count)));
  }
});

Deno.test("a header larger than the first read is read to its end, and no further", () => {
  using folder = new TempFolder();
  const path = folder.at("large.gguf");
  const words = Array.from({ length: 60_000 }, (_, index) => `word ${index} é`);
  writeGguf(path, {
    metadata: { words: ["array", "string", words], last: ["u32", 7] },
    tensors: [float32Tensor("w", [2], [1, 2])],
  });
  const parsed = readGguf(path);
  assertEquals(parsed.metadata.get("words"), words);
  assertEquals(parsed.metadata.get("last"), 7);
  assertEquals(parsed.fileBytes, Deno.statSync(path).size);
});

Deno.test("a value of any type may lie where the first read ends", () => {
  const cases: [GgufField, unknown][] = [
    [["u8", 1], 1],
    [["i8", -1], -1],
    [["u16", 2], 2],
    [["i16", -2], -2],
    [["u32", 3], 3],
    [["i32", -3], -3],
    [["f32", 0.5], 0.5],
    [["bool", true], true],
    [["string", "text"], "text"],
    [["array", "u8", [1]], Uint8Array.of(1)],
    [["array", "string", ["a"]], ["a"]],
    [["u64", 4], 4],
    [["i64", -4], -4],
    [["f64", 0.25], 0.25],
  ];
  const firstRead = 256 * 1024;
  // Before the value lie 60 bytes: the header, the key and length of the padding, the other key.
  for (const short of [0, 1]) {
    const padding = "-".repeat(firstRead - 60 - short);
    for (const [field, expected] of cases) {
      const metadata: Record<string, GgufField> = { pad: ["string", padding], x: field };
      assertEquals(parse(encodeGguf({ metadata })).metadata.get("x"), expected);
    }
  }
});

Deno.test("other files and unsupported versions of GGUF are named in errors", () => {
  assertRefused(new Uint8Array(), "is empty");
  assertRefused(new TextEncoder().encode("GGU"), "cut off", "3 bytes");
  assertRefused(
    new TextEncoder().encode("PK..and more"),
    "is not a GGUF file",
    'starts with "PK.."',
  );
  const version = (value: number) => {
    const bytes = header(0, 0);
    new DataView(bytes.buffer).setUint32(4, value, true);
    return bytes;
  };
  assertRefused(version(1), "version 1, of 2023", "2 and 3");
  assertRefused(version(4), "version 4", "2 and 3");
  for (const known of [2, 3]) assertRefused(version(known * 2 ** 24), "big-endian");
});

Deno.test("false counts and lengths are rejected before any allocation", () => {
  assertRefused(header(2n ** 60n, 0), "claims 1152921504606846976 tensors", "room for at most 0");
  assertRefused(header(0, 2n ** 64n - 1n), "claims 18446744073709551615 keys");
  assertRefused(oneKey(8, (out) => out.u64(2n ** 63n)), '"some.key"', "9223372036854775808");
  assertRefused(
    oneKey(9, (out) => out.u32(6).u64(2n ** 62n)),
    "4611686018427387904 values of type f32",
  );
  assertRefused(oneKey(9, (out) => out.u32(8).u64(2 ** 40)), "1099511627776 values of type string");
  assertRefused(
    oneKey(9, (out) => text(out.u32(8).u64(2), "ok").u64(2n ** 63n)),
    '"some.key" [1] claims 9223372036854775808 bytes',
  );
  assertRefused(oneKey(9, (out) => out.u32(9).u64(1000)), "1000 values of type array");
});

Deno.test("a large file does not make large claims about the header believable", () => {
  using folder = new TempFolder();
  const claim = (type: number, write: (w: ByteWriter) => void, includes: string) => {
    const path = folder.write("sparse.gguf", oneKey(type, write));
    Deno.truncateSync(path, 2 ** 35);
    assertThrows(() => readGguf(path), ForgeError, includes);
  };
  claim(8, (out) => out.u64(2 ** 34), "room for at most 268435");
  claim(8, (out) => out.u64(2 ** 27), "134217728 bytes; at most 67108864");
  claim(9, (out) => out.u32(0).u64(2 ** 30), "1073741824 values of type u8");
  claim(9, (out) => out.u32(8).u64(2 ** 26), "67108864 values of type string");
});

Deno.test("damaged metadata is rejected by key", () => {
  assertRefused(oneKey(13, (out) => out.u32(0)), '"some.key" has value type 13', "0 to 12");
  assertRefused(oneKey(7, (out) => out.u8(2)), '"some.key" has the boolean 2');
  assertRefused(oneKey(9, (out) => out.u32(7).u64(2).u8(1).u8(9)), "has the boolean 9");
  assertRefused(oneKey(4, (out) => out.u8(1)), '"some.key" is cut off', "4 bytes at offset");
  const bomb = oneKey(9, (out) => {
    for (let depth = 0; depth < 100; depth++) out.u32(9).u64(1);
  });
  assertRefused(bomb, "nests arrays more than 4 deep");
  const twice = header(0, 2, (out) => {
    text(out, "a").u32(0).u8(1);
    text(out, "a").u32(0).u8(2);
  });
  assertRefused(twice, 'key "a" appears twice');
  const badUtf8 = oneKey(9, (out) => out.u32(8).u64(1).u64(2).bytes(Uint8Array.of(0xc3, 0x28)));
  assertRefused(badUtf8, '"some.key" [0] is not UTF-8');
});

Deno.test("a single invalid string is read with replacement characters", () => {
  const { metadata } = parse(oneKey(8, (out) => out.u64(3).bytes(Uint8Array.of(0x61, 0xff, 0x62))));
  assertEquals(metadata.get("some.key"), "a\ufffdb");
});

Deno.test("an impossible alignment is rejected", () => {
  const zero = encodeGguf({ metadata: { "general.alignment": ["u32", 0] } });
  assertRefused(zero, '"general.alignment" is 0', "power of two");
  assertRefused(encodeGguf({ metadata: { "general.alignment": ["u32", 48] } }), "is 48");
  assertRefused(encodeGguf({ metadata: { "general.alignment": ["string", "32"] } }), "is 32");
  assertRefused(encodeGguf({ metadata: { "general.alignment": ["u32", 2 ** 31] } }), "1048576");
});

Deno.test("impossible tensors are rejected by name", () => {
  assertEquals(parse(oneTensor([16])).tensors.get("weight")?.bytes, 64);
  assertRefused(oneTensor([17]), '"weight" needs 68 bytes', "only 64 bytes of data");
  assertRefused(oneTensor([8], 0, 64), "needs 32 bytes at offset 64");
  assertRefused(oneTensor([8], 0, 2n ** 64n - 32n), "at offset 18446744073709551584");
  assertRefused(oneTensor([4], 0, 4), "starts at offset 4", "multiple of 32");
  assertRefused(oneTensor([]), "has 0 dimensions", "1 to 4");
  assertRefused(oneTensor([1, 1, 1, 1, 1]), "has 5 dimensions");
  assertRefused(oneTensor([4, 0]), "has a dimension of 0");
  assertRefused(oneTensor([2n ** 60n]), "has a dimension of 1152921504606846976");
  assertRefused(oneTensor([2 ** 40, 2 ** 40]), "shape [1099511627776, 1099511627776]", "2^53");
  assertRefused(oneTensor([2 ** 52], 28), "more than 2^53 bytes");
  assertRefused(oneTensor([16], 2), "cannot have the shape [16]", "Q4_0", "multiple of 32");
  assertRefused(oneTensor([16], 99), "type number 99", "0 to 41");
  const removed = {
    ...{ 4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8" },
    ...{ 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8" },
  };
  for (const [id, type] of Object.entries(removed)) {
    assertRefused(oneTensor([16], Number(id)), type, "removed");
  }
});

Deno.test("a duplicate tensor is rejected", () => {
  const tensors = [float32Tensor("t", [1], [1]), float32Tensor("t", [1], [2])];
  assertRefused(encodeGguf({ metadata: {}, tensors }), 'tensor "t" appears twice');
});

Deno.test("a file truncated anywhere is rejected", () => {
  const bytes = encodeGguf({
    metadata: { name: ["string", "tiny"], tokens: ["array", "string", ["a", "b"]] },
    tensors: [float32Tensor("weight", [8], [1, 2, 3, 4, 5, 6, 7, 8])],
  });
  parse(bytes);
  for (let length = 0; length < bytes.length; length++) {
    assertThrows(() => parse(bytes.subarray(0, length)), ForgeError);
  }
});

Deno.test("a missing file, a folder and an odd name are reported", () => {
  using folder = new TempFolder();
  const missing = assertThrows(() => readGguf(folder.at("no\nfile.gguf")), ForgeError);
  assertEquals(missing.code, "not_found");
  assert(missing.message.includes("no\\nfile.gguf"));
  assertThrows(() => readGguf(folder.path), ForgeError, "is not a regular file");
});

for (const name of ["llama-bpe", "qwen2", "llama-spm", "deepseek-llm"]) {
  const file = `ggml-vocab-${name}.gguf`;
  Deno.test({
    name: `the vocabulary of ${file} encodes back to the bytes of the file`,
    ignore: !sharedAvailable("tokenizers", file),
    fn: () => {
      const path = sharedPath("tokenizers", file);
      const { metadata } = readGguf(path);
      const bytes = Deno.readFileSync(path);
      for (const key of ["tokenizer.ggml.tokens", "tokenizer.ggml.merges"]) {
        const values = metadata.get(key) as string[] | undefined;
        if (values === undefined) continue;
        assert(values.length >= 32_000, `${key} has ${values.length}`);
        const encoded = new ByteWriter();
        text(encoded, key).u32(9).u32(8).u64(values.length);
        for (const value of values) text(encoded, value);
        assert(containsBytes(bytes, encoded.toBytes()), `${key} does not match the file`);
      }
    },
  });
}

/** True if `part` occurs in `whole`; searches for its first 24 bytes, which are rare. */
function containsBytes(whole: Uint8Array, part: Uint8Array): boolean {
  const latin1 = (bytes: Uint8Array) => new TextDecoder("latin1").decode(bytes);
  const at = latin1(whole).indexOf(latin1(part.subarray(0, 24)));
  if (at < 0 || at + part.length > whole.length) return false;
  return part.every((byte, index) => whole[at + index] === byte);
}
