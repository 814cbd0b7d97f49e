/** Writes a model with quantised weights as a GGUF file. */
import type { Quantizer } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { openCheckpoint } from "../../formats/checkpoint.ts";
import {
  checkNotRead,
  InputFile,
  isFile,
  reasonOf,
  Replacement,
  statPath,
} from "../../formats/file.ts";
import { type Importance, meanSquares, readImportance } from "../../formats/gguf/importance.ts";
import { mixedTypes, MIXES, type MixName } from "../../formats/gguf/mixes.ts";
import { ggufHeader, padded } from "../../formats/gguf/writer.ts";
import { quote } from "../../formats/quote.ts";
import { tensorBytes, type TensorType } from "../../formats/tensor_info.ts";
import {
  BOOLEAN,
  checkArgument,
  checkOptions,
  FUNCTION,
  NUMBER,
  type OptionChecks,
  SIGNAL,
  STRING,
} from "../../formats/arguments.ts";
import { fetchLibraries, openBackend } from "../load/open_backend.ts";
import { LazyWeights } from "./lazy_weights.ts";
import { assertWritable, openSource, type SourceTensor } from "./source.ts";

/** Options of {@linkcode quantize}. */
export interface QuantizeOptions {
  /** Types of the weights: a name of {@linkcode MIXES}. */
  readonly type: MixName;
  /** Threads that compute. @default one per core */
  readonly threads?: number | undefined;
  /**
   * File with the importances of columns, by `forge perplexity --imatrix` or llama-imatrix. Errors
   * in important columns count more. @default all are equal
   */
  readonly importance?: string | undefined;
  /** Replaces an existing file. @default false */
  readonly overwrite?: boolean | undefined;
  /** Stops the work and removes the unfinished file. */
  readonly signal?: AbortSignal | undefined;
  /** Called after each piece with the weights written so far, and all of them. */
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

const QUANTIZE_OPTIONS: OptionChecks<QuantizeOptions> = {
  type: undefined,
  threads: NUMBER,
  importance: STRING,
  overwrite: BOOLEAN,
  signal: SIGNAL,
  onProgress: FUNCTION,
};

/** A written file. */
export interface QuantizedFile {
  /** Size of the file. */
  readonly bytes: number;
  /** Bytes of the model's own files. */
  readonly sourceBytes: number;
  /** Number of weights. */
  readonly weights: number;
  /** Number of tensors of each type. */
  readonly types: Readonly<Partial<Record<TensorType, number>>>;
}

/**
 * Writes a model as a GGUF file with quantised weights, which llama.cpp loads too. Memory holds a
 * few megabytes of weights at a time. The file has its name once it is complete.
 *
 * @param model a folder with config.json and safetensors files, or a GGUF file with float weights
 * @throws {ForgeError} `unsupported` for a model that GGUF cannot express; `usage` for an existing
 * file, or one of those read; `device` if the file cannot be written, such as on a full disk;
 * `cancelled`
 */
export async function quantize(
  model: string,
  path: string,
  options: QuantizeOptions,
): Promise<QuantizedFile> {
  checkArgument("the path of the model", model, STRING);
  checkArgument("the path of the file", path, STRING);
  checkOptions("quantize", options, QUANTIZE_OPTIONS);
  const { type, overwrite = false, signal } = options;
  if (!Object.hasOwn(MIXES, type)) {
    const valid = Object.keys(MIXES).join(", ");
    throw new ForgeError("usage", `type is ${quote(String(type))}; valid are ${valid}`);
  }
  const checkpoint = openCheckpoint(model);
  const read = options.importance === undefined ? [] : [options.importance];
  checkNotRead(path, [model, ...checkpoint.files, ...read]);
  if (isFile(path) && !overwrite) {
    throw new ForgeError("usage", `${quote(path)} exists already; --overwrite replaces it`);
  }
  const importance = options.importance === undefined
    ? undefined
    : readImportance(options.importance);
  await fetchLibraries();
  const device = openBackend("cpu", options.threads);
  try {
    using weights = new LazyWeights(device);
    const source = openSource(weights, checkpoint);
    const types = mixedTypes(
      type,
      { ...source.facts, hasImportance: importance !== undefined },
      source.tensors,
    );
    const tensors = source.tensors.map((tensor): PlannedTensor => {
      const planned = types.get(tensor.name) ?? tensor.plainType;
      // Experts in MXFP4 are as they were trained.
      const final = tensor.stored?.type === "MXFP4" ? "MXFP4" : planned;
      assertWritable(tensor, final);
      return {
        ...tensor,
        type: final,
        bytes: Number(tensorBytes(final, tensor.shape)),
        importance: importance?.get(tensor.name),
      };
    });
    if (importance !== undefined && !tensors.some((tensor) => tensor.importance !== undefined)) {
      throw new ForgeError(
        "bad_input",
        `${quote(options.importance!)} has importances of no tensor of ${quote(model)}`,
      );
    }
    const header = ggufHeader({
      metadata: {
        ...source.fields,
        "general.file_type": ["u32", MIXES[type].fileType],
        "general.quantization_version": ["u32", 2],
        ...(importance === undefined ? {} : {
          "quantize.imatrix.file": ["string", options.importance!],
          "quantize.imatrix.entries_count": ["u32", importance.size],
        }),
      },
      tensors,
    });
    using output = openOutput(path);
    const write = async (bytes: Uint8Array) => {
      signal?.throwIfAborted();
      try {
        for (let done = 0; done < bytes.length;) {
          done += await output.file.write(bytes.subarray(done));
        }
      } catch (error) {
        throw cannotWrite("device", path, error);
      }
    };
    const total = tensors.reduce((sum, tensor) => sum + elements(tensor), 0);
    let done = 0;
    await write(header);
    for (const tensor of tensors) {
      for await (const [bytes, count] of tensorPieces(device, tensor, device.info.threads)) {
        await write(bytes);
        options.onProgress?.(done += count, total);
      }
      await write(new Uint8Array(padded(tensor.bytes) - tensor.bytes));
    }
    using _file = commit(output, path);
    const sourceBytes = checkpoint.files.reduce((sum, file) => sum + statPath(file).size, 0);
    return { ...summary(header.length, tensors, total), sourceBytes };
  } catch (error) {
    if (signal?.aborted) throw new ForgeError("cancelled", "quantising was stopped");
    throw error;
  } finally {
    device.close();
  }
}

/** A tensor with the type it is written in. */
interface PlannedTensor extends SourceTensor {
  readonly type: TensorType;
  readonly bytes: number;
  readonly importance: Importance | undefined;
}

const elements = ({ shape }: SourceTensor) => shape.reduce((product, size) => product * size, 1);

/** Elements that one call quantises. */
const PIECE = 2 ** 20;

/** Yields the bytes of a tensor in order, and the number of elements of each piece. */
async function* tensorPieces(
  device: Quantizer,
  tensor: PlannedTensor,
  threads: number,
): AsyncGenerator<readonly [bytes: Uint8Array, elements: number]> {
  if (tensor.stored?.type === tensor.type) {
    yield* storedPieces(tensor);
    return;
  }
  const cols = tensor.shape.at(-1) ?? 1;
  const rows = elements(tensor) / cols;
  const together = tensor.rowsTogether;
  // The matrices of experts have importances of their own.
  const matrixRows = tensor.shape.at(-2) ?? 1;
  const nMatrices = rows / matrixRows;
  const most = Math.max(1, Math.floor(PIECE / cols / together)) * together;
  const inProgress: Promise<Uint8Array>[] = [];
  const counts: number[] = [];
  const next = async () => {
    const bytes = await inProgress.shift()!;
    return [bytes, counts.shift()!] as const;
  };
  try {
    for (let row = 0; row < rows;) {
      const index = Math.floor(row / matrixRows);
      const nRows = Math.min(most, (index + 1) * matrixRows - row);
      const values = tensor.read(row, nRows);
      const importance = tensor.importance &&
        importanceOf(tensor, meanSquares(tensor.importance, cols, nMatrices, index));
      inProgress.push(device.quantizeInBackground(tensor.type, nRows, cols, values, importance));
      counts.push(nRows * cols);
      row += nRows;
      if (inProgress.length > threads) yield await next();
    }
    while (inProgress.length > 0) yield await next();
  } catch (error) {
    await Promise.allSettled(inProgress);
    if (!(error instanceof ForgeError) || error.code !== "device") throw error;
    throw new ForgeError("bad_model", `tensor ${quote(tensor.name)}: ${error.message}`);
  }
}

/** Rejects importances for another shape. */
function importanceOf(
  { name, shape }: PlannedTensor,
  found: Float32Array<ArrayBuffer> | undefined,
): Float32Array<ArrayBuffer> {
  if (found !== undefined) return found;
  throw new ForgeError(
    "bad_input",
    `the importances of ${quote(name)} do not fit its shape [${shape}]: they are of another model`,
  );
}

/** Yields the bytes of a tensor as they are stored. */
function* storedPieces(
  tensor: PlannedTensor,
): Generator<readonly [bytes: Uint8Array, elements: number]> {
  const { file, offset, bytes } = tensor.stored!;
  using input = InputFile.open(file);
  for (let at = 0; at < bytes; at += PIECE) {
    const piece = new Uint8Array(Math.min(PIECE, bytes - at));
    input.readAt(offset + at, piece);
    yield [piece, elements(tensor) * piece.length / bytes];
  }
}

function openOutput(path: string): Replacement {
  try {
    return new Replacement(path);
  } catch (error) {
    throw cannotWrite("usage", path, error);
  }
}

function commit(output: Replacement, path: string): Deno.FsFile {
  try {
    return output.commit();
  } catch (error) {
    throw cannotWrite("usage", path, error);
  }
}

function cannotWrite(code: "usage" | "device", path: string, error: unknown): unknown {
  if (error instanceof ForgeError) return error;
  const message = `cannot write ${quote(path)}: ${reasonOf(error)}`;
  return new ForgeError(code, message, { cause: error });
}

function summary(
  headerBytes: number,
  tensors: readonly PlannedTensor[],
  weights: number,
): Omit<QuantizedFile, "sourceBytes"> {
  const types: Partial<Record<TensorType, number>> = {};
  for (const { type } of tensors) types[type] = (types[type] ?? 0) + 1;
  const bytes = tensors.reduce((sum, tensor) => sum + padded(tensor.bytes), headerBytes);
  return { bytes, weights, types };
}
