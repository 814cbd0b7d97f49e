/** Models as contents of a GGUF file: metadata, and tensors whose rows are read in pieces. */
import { basename, dirname, resolve } from "node:path";
import type { Backend, Weight } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { InputFile } from "../../formats/file.ts";
import { type GgufValue, readGguf } from "../../formats/gguf/gguf.ts";
import type { MixedModel } from "../../formats/gguf/mixes.ts";
import type { GgufField } from "../../formats/gguf/writer.ts";
import { quote } from "../../formats/quote.ts";
import type { TensorInfo, TensorType } from "../../formats/tensor_info.ts";
import { folderAsGguf, type FolderTensor } from "../../models/folder_as_gguf.ts";
import { ggufTokenizer } from "../../tokenizer/to_gguf.ts";
import { endTokens, openTokenizer } from "../load/tokenizer.ts";

/** A tensor to be written. */
export interface SourceTensor {
  readonly name: string;
  /** Outermost dimension first. */
  readonly shape: readonly number[];
  /** Type of a tensor that is not quantised. */
  readonly plainType: TensorType;
  /** The tensor of a GGUF file, whose bytes are copied if its type does not change. */
  readonly stored?: TensorInfo;
  /** Reads that begin and end at a multiple of this number of rows. */
  readonly rowsTogether: number;
  read(firstRow: number, nRows: number): Float32Array<ArrayBuffer>;
}

/** A model to be written. */
interface Source {
  readonly fields: Readonly<Record<string, GgufField>>;
  readonly tensors: readonly SourceTensor[];
  readonly facts: Omit<MixedModel, "hasImportance">;
}

/**
 * Opens a model for writing.
 *
 * @param weights a device that leaves weights in their files until they are read
 * @throws {ForgeError} `unsupported` for a model that GGUF cannot express, or whose weights are
 * quantised already
 */
export function openSource(weights: Backend, checkpoint: Checkpoint): Source {
  return checkpoint.kind === "gguf"
    ? fileSource(weights, checkpoint)
    : folderSource(weights, checkpoint);
}

function folderSource(weights: Backend, checkpoint: Checkpoint): Source {
  const { architecture, fields, tensors, numbers, vocabSize } = folderAsGguf(weights, checkpoint);
  const tokenizer = openTokenizer(checkpoint);
  const metadata: Record<string, GgufField> = {
    "general.architecture": ["string", architecture],
    "general.type": ["string", "model"],
    "general.name": ["string", modelName(checkpoint.path)],
    ...fields,
    ...ggufTokenizer({
      json: checkpoint.tokenizerJson(),
      tokenizer,
      path: checkpoint.path,
      rows: vocabSize,
      endIds: [...endTokens(checkpoint, tokenizer)],
      chatTemplate: checkpoint.chatTemplate,
    }),
  };
  const values = new Map(
    Object.entries(fields).map(([key, field]) => [key, field.at(-1) as GgufValue]),
  );
  const computed = Array.from(numbers, ([name, values]): SourceTensor => ({
    name,
    shape: [values.length],
    plainType: "F32",
    rowsTogether: 1,
    read: () => values,
  }));
  return {
    fields: metadata,
    tensors: [...computed, ...tensors.map((tensor) => folderTensor(weights, tensor))],
    facts: modelFacts(architecture, values),
  };
}

/** Returns the name of a model's folder; downloaded ones are in a folder of their revision. */
function modelName(path: string): string {
  const folder = resolve(path);
  const name = basename(folder);
  return /^(main|[0-9a-f]{40})$/.test(name) ? basename(dirname(folder)) : name;
}

function folderTensor(weights: Backend, tensor: FolderTensor): SourceTensor {
  const { name, shape, offset, headRows } = tensor;
  const isBias = shape.length === 1;
  return {
    name,
    shape,
    plainType: "F32",
    rowsTogether: isBias ? 1 : Math.max(headRows, 1),
    read(firstRow, nRows) {
      const values = readRanges(weights, tensor, firstRow, nRows);
      if (offset !== 0) values.forEach((value, i) => values[i] = value + offset);
      if (headRows === 0) return values;
      return interleaved(values, headRows, isBias ? 1 : values.length / nRows);
    },
  };
}

/** Reads rows of the ranges that form a tensor. */
function readRanges(
  weights: Backend,
  { weight, ranges, columns: [firstCol, nCols] = [0, weight.cols] }: FolderTensor,
  firstRow: number,
  nRows: number,
): Float32Array<ArrayBuffer> {
  const values = new Float32Array(nRows * nCols);
  let begin = 0;
  for (const [first, count] of ranges) {
    const from = Math.max(firstRow, begin), to = Math.min(firstRow + nRows, begin + count);
    if (from < to) {
      const rows = weights.readWeight(weight, first + from - begin, to - from);
      for (let row = 0; row < to - from; row++) {
        const start = row * weight.cols + firstCol;
        values.set(rows.subarray(start, start + nCols), (from - firstRow + row) * nCols);
      }
    }
    begin += count;
  }
  return values;
}

/** Makes the rows of the halves of each head alternate: 0, n / 2, 1, n / 2 + 1, and so on. */
function interleaved(
  values: Float32Array<ArrayBuffer>,
  headRows: number,
  cols: number,
): Float32Array<ArrayBuffer> {
  const result = new Float32Array(values.length);
  const half = headRows / 2;
  for (let row = 0; row < values.length / cols; row++) {
    const inHead = row % headRows;
    const from = row - inHead + (inHead % 2) * half + Math.floor(inHead / 2);
    result.set(values.subarray(from * cols, (from + 1) * cols), row * cols);
  }
  return result;
}

/** Keys that describe the file instead of the model. */
const OF_FILE = /^(split\.|quantize\.|general\.(file_type|quantization_version|alignment)$)/;

/** Types of weights that can be quantised. */
const FLOATS: readonly TensorType[] = ["F32", "F16", "BF16"];

function fileSource(weights: Backend, checkpoint: Checkpoint): Source {
  const [path = checkpoint.path] = checkpoint.files;
  const { metadata, valueRanges } = readGguf(path);
  using file = InputFile.open(path);
  const fields: Record<string, GgufField> = {};
  for (const [key, [start, end]] of valueRanges) {
    if (OF_FILE.test(key)) continue;
    const bytes = new Uint8Array(end - start);
    file.readAt(start, bytes);
    fields[key] = ["encoded", bytes];
  }
  return {
    fields,
    tensors: Array.from(checkpoint.tensors.values(), (tensor) => fileTensor(weights, tensor)),
    facts: modelFacts(checkpoint.modelType, metadata),
  };
}

/**
 * Rejects a tensor of a GGUF file that cannot be written in a type.
 *
 * @throws {ForgeError} `unsupported` for quantised weights in another type
 */
export function assertWritable({ name, stored }: SourceTensor, type: TensorType): void {
  if (stored === undefined || FLOATS.includes(stored.type)) return;
  if (stored.type === type && stored.packed === undefined) return;
  throw new ForgeError(
    "unsupported",
    `tensor ${quote(name)} of ${
      quote(stored.file)
    } is quantised to ${stored.type} already; give a ` +
      `model in ${FLOATS.join(", ")}`,
  );
}

function fileTensor(weights: Backend, stored: TensorInfo): SourceTensor {
  const { name, shape, type } = stored;
  let weight: Weight | undefined;
  return {
    name,
    shape,
    plainType: type,
    stored,
    rowsTogether: 1,
    read(firstRow, nRows) {
      weight ??= weights.mapWeight([{ tensor: stored }], shape.at(-1) ?? 1);
      return weights.readWeight(weight, firstRow, nRows) as Float32Array<ArrayBuffer>;
    },
  };
}

function modelFacts(
  architecture: string,
  metadata: ReadonlyMap<string, GgufValue>,
): Source["facts"] {
  const number = (key: string, fallback: number) => {
    const value = metadata.get(`${architecture}.${key}`);
    // Lists have an entry for each layer.
    const first = typeof value === "object" ? value[0] : value;
    return typeof first === "number" && first > 0 ? first : fallback;
  };
  const heads = number("attention.head_count", 1);
  return {
    layers: number("block_count", 1),
    heads,
    kvHeads: number("attention.head_count_kv", heads),
    experts: number("expert_count", 0),
  };
}
