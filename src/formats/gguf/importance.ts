/**
 * Importance matrices: for each matrix of a model, the squares of the activations that its columns
 * were multiplied with. Files are those of llama.cpp: GGUF, or the older binary form (`.dat`),
 * which is read only.
 */
import { ForgeError } from "../../errors.ts";
import { InputFile, reasonOf, Replacement } from "../file.ts";
import { quote } from "../quote.ts";
import { float32Tensor, type TensorData } from "../tensor_data.ts";
import type { TensorInfo } from "../tensor_info.ts";
import { isGgufFile, readGguf } from "./gguf.ts";
import { ggufParts } from "./writer.ts";

/** Squared activations of a matrix, or of the matrices of all experts of a layer. */
export interface Importance {
  /** `[matrices, cols]`: sums over all tokens. */
  readonly sums: Float32Array<ArrayBuffer>;
  /** Tokens that each matrix was multiplied with. */
  readonly counts: Float32Array<ArrayBuffer>;
}

/** Importances by the names of tensors in GGUF files. */
export type ImportanceMatrix = ReadonlyMap<string, Importance>;

/** Text that importances were measured with. */
interface MeasuredText {
  /** Its path. */
  readonly dataset: string;
  readonly chunks: number;
  readonly chunkTokens: number;
}

const SUMS = ".in_sum2";
const COUNTS = ".counts";

/**
 * Writes importances in llama.cpp's GGUF form. @throws {ForgeError} `usage` if the file cannot be
 * written
 */
export function writeImportance(
  path: string,
  matrix: ImportanceMatrix,
  { dataset, chunks, chunkTokens }: MeasuredText,
): void {
  const tensors = [...matrix].sort(([a], [b]) => a < b ? -1 : 1)
    .flatMap(([name, { sums, counts }]): TensorData[] => [
      float32Tensor(name + SUMS, [counts.length, sums.length / counts.length], sums),
      float32Tensor(name + COUNTS, [counts.length, 1], counts),
    ]);
  const parts = ggufParts({
    metadata: {
      "general.type": ["string", "imatrix"],
      "imatrix.datasets": ["array", "string", [dataset]],
      "imatrix.chunk_count": ["u32", chunks],
      "imatrix.chunk_size": ["u32", chunkTokens],
    },
    tensors,
  });
  try {
    using replacement = new Replacement(path);
    for (const part of parts) {
      for (let done = 0; done < part.length;) {
        done += replacement.file.writeSync(part.subarray(done));
      }
    }
    using _file = replacement.commit();
  } catch (error) {
    if (error instanceof ForgeError) throw error;
    throw new ForgeError("usage", `cannot write ${quote(path)}: ${reasonOf(error)}`);
  }
}

/**
 * Reads a file of importances.
 *
 * @throws {ForgeError} `not_found` if it is missing; `bad_model` if it has neither form or is
 * damaged
 */
export function readImportance(path: string): ImportanceMatrix {
  const matrix = isGgufFile(path) ? readGgufForm(path) : readBinaryForm(path);
  for (const [name, { sums, counts }] of matrix) {
    const isValid = (value: number) => Number.isFinite(value) && value >= 0;
    if (sums.every(isValid) && counts.every(isValid)) continue;
    throw damaged(path, `${quote(name)} has an importance that is negative or not finite`);
  }
  return matrix;
}

function readGgufForm(path: string): ImportanceMatrix {
  const { metadata, tensors } = readGguf(path);
  if (metadata.get("general.type") !== "imatrix") {
    throw damaged(path, 'its key "general.type" is not "imatrix"');
  }
  using file = InputFile.open(path);
  const floats = ({ type, name, offset, bytes }: TensorInfo) => {
    if (type !== "F32") throw damaged(path, `tensor ${quote(name)} is stored as ${type}, not F32`);
    const data = new Uint8Array(bytes);
    file.readAt(offset, data);
    return new Float32Array(data.buffer);
  };
  const matrix = new Map<string, Importance>();
  for (const [key, tensor] of tensors) {
    if (!key.endsWith(SUMS)) continue;
    const name = key.slice(0, -SUMS.length);
    const countsOf = tensors.get(name + COUNTS);
    if (countsOf === undefined) throw damaged(path, `it has no tensor ${quote(name + COUNTS)}`);
    const [sums, counts] = [floats(tensor), floats(countsOf)];
    if (sums.length % counts.length !== 0) {
      throw damaged(path, `${quote(name)} has ${sums.length} sums for ${counts.length} counts`);
    }
    matrix.set(name, { sums, counts });
  }
  if (matrix.size === 0) throw damaged(path, "it has no importances");
  return matrix;
}

/** Longest name and most entries of the binary form, so that other files fail at once. */
const MAX_NAME = 1024, MAX_ENTRIES = 1 << 20;

/** Entries: length of the name, name, number of chunks, number of values, values. */
function readBinaryForm(path: string): ImportanceMatrix {
  using file = InputFile.open(path);
  let at = 0;
  const take = (bytes: number) => {
    if (at + bytes > file.size) throw damaged(path, "it is not an importance matrix, or cut short");
    const data = new Uint8Array(bytes);
    file.readAt(at, data);
    at += bytes;
    return data;
  };
  const number = (what: string, most: number) => {
    const value = new DataView(take(4).buffer).getInt32(0, true);
    if (value >= 1 && value <= most) return value;
    throw damaged(path, `it is not an importance matrix: its ${what} is ${value}`);
  };
  const matrix = new Map<string, Importance>();
  const entries = number("number of entries", MAX_ENTRIES);
  for (let i = 0; i < entries; i++) {
    const name = new TextDecoder().decode(take(number("length of a name", MAX_NAME)));
    const calls = number("number of chunks", 2 ** 31 - 1);
    const sums = new Float32Array(take(4 * number("number of values", 2 ** 28)).buffer);
    matrix.set(name, { sums, counts: new Float32Array([calls]) });
  }
  return matrix;
}

function damaged(path: string, reason: string): ForgeError {
  return new ForgeError(
    "bad_model",
    `${quote(path)} cannot be read as an importance matrix: ${reason}`,
  );
}

/**
 * Returns the mean squares for the rows of a matrix, or of an expert's: 1 for every column of an
 * expert that no token chose.
 *
 * @param nMatrices number of matrices that the tensor stacks
 * @returns `undefined` if the importances are for another shape
 */
export function meanSquares(
  { sums, counts }: Importance,
  cols: number,
  nMatrices: number,
  index: number,
): Float32Array<ArrayBuffer> | undefined {
  if (sums.length !== cols * nMatrices) return undefined;
  // The binary form has one count for all experts.
  const count = counts[counts.length === nMatrices ? index : 0]!;
  const own = sums.slice(index * cols, (index + 1) * cols);
  return count > 0 && own.some((sum) => sum > 0)
    ? own.map((sum) => sum / count)
    : new Float32Array(cols).fill(1);
}
