import { basename, dirname, join } from "node:path";
import { ForgeError } from "../../errors.ts";
import { isFile } from "../file.ts";
import { type GgufHeader, type GgufValue, readGguf } from "./gguf.ts";
import { quote } from "../quote.ts";
import type { TensorInfo } from "../tensor_info.ts";

/** A GGUF model in one file or in numbered parts. */
interface GgufModel {
  /** Paths of the files, in the order of the parts. */
  readonly files: readonly string[];
  /** The metadata of the only file or of the first part. */
  readonly metadata: ReadonlyMap<string, GgufValue>;
  /** The tensors of all parts. */
  readonly tensors: ReadonlyMap<string, TensorInfo>;
}

const PART_NAME = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/s;

/**
 * Reads the headers of a GGUF model. `path` is its only file, or any of its parts, which are named
 * `NAME-00001-of-00003.gguf` and are in one folder.
 *
 * @throws {ForgeError} as `readGguf`; `not_found` if a part is missing; `bad_model` if the parts do
 * not belong together
 */
export function readGgufModel(path: string): GgufModel {
  const header = readGguf(path);
  const count = splitCount(header, path);
  if (count <= 1) return { files: [path], metadata: header.metadata, tensors: header.tensors };

  const files = partPaths(path, count);
  const tensors = new Map<string, TensorInfo>();
  let metadata = header.metadata;
  for (const [index, file] of files.entries()) {
    if (!isFile(file)) {
      const which = `part ${index + 1} of ${count} is missing: no file ${quote(file)}`;
      throw new ForgeError("not_found", `${quote(path)} is split, and ${which}`);
    }
    const part = file === path ? header : readGguf(file);
    checkPart(part, file, index, count);
    if (index === 0) metadata = part.metadata;
    for (const [name, tensor] of part.tensors) {
      if (tensors.has(name)) {
        const where = `in ${quote(file)} and in an earlier part`;
        throw new ForgeError("bad_model", `tensor ${quote(name)} is both ${where}`);
      }
      tensors.set(name, tensor);
    }
  }
  const expected = metadata.get("split.tensors.count");
  if (expected !== undefined && expected !== tensors.size) {
    throw new ForgeError(
      "bad_model",
      `the ${count} parts of ${
        quote(path)
      } hold ${tensors.size} tensors, not the ${expected} that ` +
        `"split.tensors.count" says`,
    );
  }
  return { files, metadata, tensors };
}

function splitCount(header: GgufHeader, path: string): number {
  const count = header.metadata.get("split.count") ?? 1;
  if (typeof count !== "number" || !Number.isInteger(count) || count < 0 || count > 99999) {
    const shown = typeof count === "object" ? "an array" : String(count);
    throw new ForgeError(
      "bad_model",
      `${quote(path)}: key "split.count" is ${shown}; 0 to 99999 are possible`,
    );
  }
  return count;
}

function partPaths(path: string, count: number): string[] {
  const total = String(count).padStart(5, "0");
  const [, name, , ofCount] = PART_NAME.exec(basename(path)) ?? [];
  if (ofCount !== total) {
    throw new ForgeError(
      "bad_model",
      `${quote(path)} is one of ${count} parts, so it must be named like ` +
        `"NAME-00001-of-${total}.gguf", next to the others`,
    );
  }
  return Array.from(
    { length: count },
    (_, index) =>
      join(dirname(path), `${name}-${String(index + 1).padStart(5, "0")}-of-${total}.gguf`),
  );
}

function checkPart(part: GgufHeader, file: string, index: number, count: number): void {
  const number = part.metadata.get("split.no");
  const ofCount = part.metadata.get("split.count");
  if (number !== index || ofCount !== count) {
    const says = typeof number === "number" && typeof ofCount === "number"
      ? `part ${number + 1} of ${ofCount}`
      : "not part of a split model";
    throw new ForgeError(
      "bad_model",
      `${quote(file)} should be part ${index + 1} of ${count}, and says that it is ${says} ` +
        `("split.no", "split.count")`,
    );
  }
}
