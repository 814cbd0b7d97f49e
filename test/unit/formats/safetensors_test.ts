import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import {
  readSafetensors,
  readSafetensorsIndex,
  type SafetensorsHeader,
} from "../../../src/formats/safetensors.ts";
import {
  encodeSafetensors,
  withLength,
  writeModelFolder,
} from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { joinParts } from "../../support/parts.ts";

const INDEX = "model.safetensors.index.json";

function parse(bytes: Uint8Array): SafetensorsHeader {
  using folder = new TempFolder();
  return readSafetensors(folder.write("model.safetensors", bytes));
}

/** Returns a file with a header (text verbatim, anything else as JSON) and 64 bytes of data. */
function file(header: unknown): Uint8Array {
  const text = typeof header === "string" ? header : JSON.stringify(header);
  return joinParts([withLength(text), new Uint8Array(64)]);
}

function assertRefused(bytes: Uint8Array, ...includes: string[]): void {
  const error = assertThrows(() => parse(bytes), ForgeError);
  assertEquals(error.code, "bad_model");
  for (const text of [...includes, "model.safetensors"]) {
    assert(error.message.includes(text), `${error.message} should include ${text}`);
  }
  assert(!error.message.includes("\n"), "one line");
}

Deno.test("tensors and metadata are read", () => {
  const bytes = encodeSafetensors({
    metadata: { format: "pt" },
    tensors: [
      float32Tensor("a.weight", [2, 3], [1, 2, 3, 4, 5, 6]),
      { name: "b", type: "BF16", shape: [2], data: Uint8Array.of(1, 2, 3, 4) },
      { name: "scalar", type: "I64", shape: [], data: new Uint8Array(8) },
      { name: "vision", type: "F16", shape: [1, 1, 1, 1, 2], data: new Uint8Array(4) },
    ],
  });
  const { metadata, tensors, fileBytes } = parse(bytes);
  assertEquals([...metadata], [["format", "pt"]]);
  assertEquals(fileBytes, bytes.length);
  const a = tensors.get("a.weight")!;
  assertEquals([a.type, a.shape, a.bytes], ["F32", [2, 3], 24]);
  const values = bytes.slice(a.offset, a.offset + a.bytes);
  assertEquals(new Float32Array(values.buffer), Float32Array.of(1, 2, 3, 4, 5, 6));
  const b = tensors.get("b")!;
  assertEquals(bytes.slice(b.offset, b.offset + b.bytes), Uint8Array.of(1, 2, 3, 4));
  assertEquals(tensors.get("scalar")?.shape, []);
  assertEquals(tensors.get("vision")?.shape, [1, 1, 1, 1, 2]);
});

Deno.test("an unsupported dtype is still listed", () => {
  const { tensors } = parse(file({ w: { dtype: "F8_E4M3", shape: [64], data_offsets: [0, 64] } }));
  assertEquals(tensors.get("w")?.type, "F8_E4M3");
});

Deno.test("the shortest file has no tensors", () => {
  const bytes = new Uint8Array(10);
  bytes.set([2], 0);
  bytes.set(new TextEncoder().encode("{}"), 8);
  assertEquals(parse(bytes).tensors.size, 0);
});

Deno.test("a large file does not make a large header believable", () => {
  using folder = new TempFolder();
  const bytes = new Uint8Array(16);
  new DataView(bytes.buffer).setBigUint64(0, 100_000_001n, true);
  const path = folder.write("model.safetensors", bytes);
  Deno.truncateSync(path, 2 ** 30);
  assertThrows(() => readSafetensors(path), ForgeError, "2 to 100000000 are possible");
});

Deno.test("an invalid header is rejected", () => {
  const claims = (length: bigint) => {
    const bytes = file({});
    new DataView(bytes.buffer as ArrayBuffer).setBigUint64(0, length, true);
    return bytes;
  };
  assertRefused(new Uint8Array(), "is empty");
  assertRefused(new Uint8Array(9), "is not a safetensors file", "9 bytes");
  assertRefused(claims(2n ** 63n), "claims 9223372036854775808 bytes", "2 to 72");
  assertRefused(claims(73n), "claims 73 bytes");
  assertRefused(claims(0n), "claims 0 bytes");
  assertRefused(file("[]"), "holds an array");
  assertRefused(file('{"a": '), "not valid JSON");
  assertRefused(file('{"w": 1, "w": 2}'), 'names "w" twice');
  assertRefused(file({ __metadata__: [] }), '"__metadata__" that is an array');
  assertRefused(file({ __metadata__: { a: 1 } }), 'metadata "a" that is a number');
  const invalid = file({ abc: 1 });
  invalid[10] = 0xff;
  assertRefused(invalid, "is not UTF-8");
});

Deno.test("an invalid tensor is rejected by name", () => {
  const good = { dtype: "F32", shape: [4, 4], data_offsets: [0, 64] };
  assertEquals(parse(file({ w: good })).tensors.size, 1);
  const refused = (change: Record<string, unknown>, ...includes: string[]) =>
    assertRefused(file({ w: { ...good, ...change } }), 'tensor "w"', ...includes);
  assertRefused(file({ w: 5 }), 'tensor "w" is described by a number');
  assertRefused(file({ w: null }), "is described by null");
  assertRefused(file('{"__proto__": 5}'), 'tensor "__proto__" is described by a number');
  refused({ dtype: "Q4" }, 'dtype "Q4"', "BF16");
  refused({ dtype: "Q4_0" }, 'dtype "Q4_0"');
  refused({ dtype: undefined }, "has no dtype");
  refused({ shape: "4x4" }, 'shape "4x4"');
  refused({ shape: undefined }, "has the shape missing;");
  refused({ shape: Array(60).fill(-1) }, `has the shape [${"-1,".repeat(19)}-1…;`);
  refused({ shape: [4, -4] }, "shape [4,-4]");
  refused({ shape: [4, 4.5] }, "shape [4,4.5]");
  refused({ shape: [1, 1, 1, 1, 1, 1, 1, 1, 16] }, "up to 8");
  refused({ shape: [0, 4], data_offsets: [0, 0] }, "every dimension");
  refused({ shape: [2 ** 40, 2 ** 40] }, "2^53 elements");
  refused({ shape: [4, 5] }, "takes 64 bytes", "[4,5] takes 80");
  refused({ shape: ["4", "4"] }, 'shape ["4","4"]; valid is a list of up to');
  refused({ data_offsets: undefined }, "data_offsets missing; valid is a list of begin and end");
  refused({ data_offsets: [-4, 60] }, "data_offsets [-4,60]; valid is");
  refused({ data_offsets: [0] }, "data_offsets [0]");
  refused({ data_offsets: [0, 64, 65] }, "a list of begin and end");
  refused({ data_offsets: [64, 0] }, "data_offsets [64, 0]");
  refused({ data_offsets: [0, 60] }, "60", "64");
  refused({ shape: [4, 3] }, "48", "64");
  refused({ data_offsets: [4, 68] }, "[4, 68]", "64 bytes of data");
  refused({ data_offsets: [0, 2 ** 53] }, "data_offsets");
});

Deno.test("a file truncated anywhere is rejected", () => {
  const bytes = encodeSafetensors({ tensors: [float32Tensor("w", [4], [1, 2, 3, 4])] });
  parse(bytes);
  for (let length = 0; length < bytes.length; length++) {
    assertThrows(() => parse(bytes.subarray(0, length)), ForgeError);
  }
});

Deno.test("tensors of a sharded model are found in the files of the index", () => {
  using folder = new TempFolder();
  const tensors = ["a", "b", "c", "d", "e"].map((name, index) => float32Tensor(name, [1], [index]));
  writeModelFolder(folder.path, {}, tensors, 2);
  const { weight_map } = JSON.parse(Deno.readTextFileSync(folder.at(INDEX)));
  const reversed = Object.fromEntries(Object.entries(weight_map).reverse());
  folder.write(INDEX, { weight_map: reversed });
  const shards = readSafetensorsIndex(folder.path, INDEX);
  assertEquals(shards.files.map((path) => path.slice(folder.path.length + 1)), [
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
  ]);
  assertEquals([...shards.tensors.keys()].sort(), ["a", "b", "c", "d", "e"]);
  for (const [index, { name }] of tensors.entries()) {
    const info = shards.tensors.get(name)!;
    assertEquals(info.file, shards.files[index % 2]);
    const bytes = Deno.readFileSync(info.file).slice(info.offset, info.offset + info.bytes);
    assertEquals(new Float32Array(bytes.buffer)[0], index);
  }
});

Deno.test("an index with wrong paths is rejected", () => {
  using folder = new TempFolder();
  writeModelFolder(
    folder.path,
    {},
    [float32Tensor("a", [1], [0]), float32Tensor("b", [1], [1])],
    2,
  );
  const index = (weightMap: unknown, code: string, ...includes: string[]) => {
    folder.write(INDEX, { weight_map: weightMap });
    const error = assertThrows(() => readSafetensorsIndex(folder.path, INDEX), ForgeError);
    assertEquals(error.code, code);
    for (const text of [...includes, INDEX]) {
      assert(error.message.includes(text), `${error.message} should include ${text}`);
    }
  };
  const shard = "model-00001-of-00002.safetensors";
  for (
    const escape of [
      "../model.safetensors",
      "/etc/passwd",
      "a/../../b",
      "..",
      "",
      "a//b",
      "./b",
      "C:b",
      "C:\\b",
      "a\0b",
    ]
  ) {
    index({ a: escape }, "bad_model", 'the file of tensor "a"', "inside the folder");
  }
  index({ a: 5 }, "bad_model", "a number, not a file name");
  index([], "bad_model", '"weight_map" is an array');
  index(undefined, "bad_model", '"weight_map" is missing');
  index({ a: "none.safetensors" }, "not_found", "none.safetensors");
  index({ a: shard, b: shard }, "bad_model", `tensor "b" is in "${shard}", but it is not`);
});
