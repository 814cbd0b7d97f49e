import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { readGgufModel } from "../../../src/formats/gguf/split.ts";
import { type GgufField, writeGguf } from "../../../src/formats/gguf/writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";

/** Writes part `index` of `count` of a model with one tensor per part; returns its path. */
function writePart(
  folder: TempFolder,
  index: number,
  count: number,
  change: Record<string, GgufField> = {},
  tensor = `tensor ${index}`,
): string {
  const digits = (value: number) => String(value).padStart(5, "0");
  const path = folder.at(`tiny-${digits(index + 1)}-of-${digits(count)}.gguf`);
  const first: Record<string, GgufField> = index === 0
    ? { "general.architecture": ["string", "llama"] }
    : {};
  writeGguf(path, {
    metadata: {
      ...first,
      "split.no": ["u16", index],
      "split.count": ["u16", count],
      "split.tensors.count": ["i32", count],
      ...change,
    },
    tensors: [float32Tensor(tensor, [1], [index])],
  });
  return path;
}

function assertRefused(path: string, code: string, ...includes: string[]): void {
  const error = assertThrows(() => readGgufModel(path), ForgeError);
  assertEquals(error.code, code);
  for (const text of includes) {
    assert(error.message.includes(text), `${error.message} should include ${text}`);
  }
}

Deno.test("a model in one file has one file", () => {
  using folder = new TempFolder();
  const path = folder.at("one.gguf");
  writeGguf(path, { metadata: { a: ["u8", 1] }, tensors: [float32Tensor("t", [1], [1])] });
  const model = readGgufModel(path);
  assertEquals(model.files, [path]);
  assertEquals([model.metadata.get("a"), model.tensors.size], [1, 1]);
});

Deno.test("a split model is opened from any of its parts", () => {
  using folder = new TempFolder();
  const paths = [0, 1, 2].map((index) => writePart(folder, index, 3));
  for (const path of paths) {
    const model = readGgufModel(path);
    assertEquals(model.files, paths);
    assertEquals(model.metadata.get("general.architecture"), "llama");
    assertEquals([...model.tensors.keys()], ["tensor 0", "tensor 1", "tensor 2"]);
    assertEquals([...model.tensors.values()].map((tensor) => tensor.file), paths);
  }
});

Deno.test("the number of all tensors may be missing", () => {
  using folder = new TempFolder();
  const paths = [0, 1].map((index) => {
    const path = folder.at(`a-0000${index + 1}-of-00002.gguf`);
    writeGguf(path, {
      metadata: { "split.no": ["u16", index], "split.count": ["u16", 2] },
      tensors: [float32Tensor(`tensor ${index}`, [1], [index])],
    });
    return path;
  });
  assertEquals(readGgufModel(paths[1]!).tensors.size, 2);
});

Deno.test("a missing part is named", () => {
  using folder = new TempFolder();
  const path = writePart(folder, 0, 3);
  writePart(folder, 2, 3);
  assertRefused(path, "not_found", "part 2 of 3", "tiny-00002-of-00003.gguf");
});

Deno.test("parts that do not belong together are rejected", () => {
  using folder = new TempFolder();
  const path = writePart(folder, 0, 2);
  const second = writePart(folder, 1, 2, { "split.no": ["u16", 0] });
  assertRefused(path, "bad_model", "00002-of-00002", "part 2 of 2", "it is part 1 of 2");
  writePart(folder, 1, 2, { "split.count": ["u16", 3] });
  assertRefused(path, "bad_model", "it is part 2 of 3");
  Deno.copyFileSync(writePart(folder, 0, 1, { "split.count": ["string", "2"] }), second);
  assertRefused(path, "bad_model", "it is not part of a split model");
  writePart(folder, 1, 2, {}, "tensor 0");
  assertRefused(path, "bad_model", 'tensor "tensor 0" is both');
  writePart(folder, 1, 2);
  writePart(folder, 0, 2, { "split.tensors.count": ["i32", 9] });
  assertRefused(second, "bad_model", "hold 2 tensors, not the 9");
  writePart(folder, 0, 2, { "split.tensors.count": ["i32", 1] });
  assertRefused(second, "bad_model", "hold 2 tensors, not the 1");
});

Deno.test("a part with another name or an impossible count is rejected", () => {
  using folder = new TempFolder();
  const path = writePart(folder, 0, 2);
  const renamed = folder.at("renamed.gguf");
  Deno.renameSync(path, renamed);
  assertRefused(renamed, "bad_model", "one of 2 parts", "NAME-00001-of-00002.gguf");
  const other = folder.at("tiny-00001-of-00003.gguf");
  Deno.renameSync(renamed, other);
  assertRefused(other, "bad_model", "one of 2 parts", "NAME-00001-of-00002.gguf");
  const negative = writePart(folder, 0, 1, { "split.count": ["i32", -1] });
  assertRefused(negative, "bad_model", '"split.count" is -1', "0 to 99999");
  const broken = writePart(folder, 0, 1, { "split.count": ["f32", 1.5] });
  assertRefused(broken, "bad_model", '"split.count" is 1.5', "0 to 99999");
  const many = writePart(folder, 0, 1, { "split.count": ["u32", 100_000] });
  assertRefused(many, "bad_model", '"split.count" is 100000', "0 to 99999");
  const most = writePart(folder, 0, 99_999, { "split.count": ["u32", 99_999] });
  assertRefused(most, "not_found", "part 2 of 99999");
  // Files without parts have a count of 0 or 1.
  for (const count of [0, 1]) {
    const single = writePart(folder, 0, 1, { "split.count": ["u16", count] });
    assertEquals(readGgufModel(single).files, [single]);
  }
});
