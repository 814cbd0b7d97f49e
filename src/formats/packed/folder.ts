/** Common types of the readers of packed matrices. */
import { ForgeError } from "../../errors.ts";
import type { JsonObject } from "../json.ts";
import { quote } from "../quote.ts";
import type { TensorInfo, TensorType } from "../tensor_info.ts";

/** A matrix and the tensors that it replaces. */
export interface Unpacked {
  readonly matrix: TensorInfo;
  readonly parts: readonly TensorInfo[];
}

/** A folder with a `quantization_config`. */
export interface PackedFolder {
  readonly path: string;
  /** `quantization_config` of config.json. */
  readonly settings: JsonObject;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
}

/** Returns an error for a packing that forge does not read. */
export function unknownPacking(path: string, what: string): ForgeError {
  const known =
    "FP8 (E4M3), GPTQ and AWQ of 4 bits, integers of compressed-tensors of 4 and 8, NVFP4, " +
    "and MXFP4 of gpt-oss";
  return new ForgeError(
    "unsupported",
    `${quote(path)} is ${what}, which forge does not read from safetensors; it reads ${known}; ` +
      "otherwise use the model's GGUF files or the unquantized ones",
  );
}

/** Types of scales. */
export const FLOATS: readonly TensorType[] = ["F32", "F16", "BF16"];

/**
 * Returns a tensor that the codes of a matrix need.
 *
 * @throws {ForgeError} `bad_model` if it is missing
 */
export function part({ path, tensors }: PackedFolder, name: string): TensorInfo {
  const found = tensors.get(name);
  if (found !== undefined) return found;
  throw new ForgeError(
    "bad_model",
    `${quote(path)} has no tensor ${quote(name)}, which its 4-bit codes need`,
  );
}

/**
 * Returns a tensor, which may be missing.
 *
 * @throws {ForgeError} `bad_model` if it has another shape or type
 */
export function expected<T extends TensorInfo | undefined>(
  tensor: T,
  shape: readonly number[],
  types: readonly TensorType[],
): T {
  if (tensor === undefined) return tensor;
  const fits = tensor.shape.length === shape.length &&
    tensor.shape.every((size, i) => size === shape[i]);
  if (fits && types.includes(tensor.type)) return tensor;
  throw new ForgeError(
    "bad_model",
    `${quote(tensor.file)}: tensor ${
      quote(tensor.name)
    } is ${tensor.type} [${tensor.shape}]; the others of its ` +
      `matrix imply ${types.join(" or ")} [${shape}]`,
  );
}
