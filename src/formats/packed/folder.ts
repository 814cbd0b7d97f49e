/** Common types of the readers of packed matrices. */
import { ForgeError } from "../../errors.ts";
import type { JsonObject } from "../json.ts";
import { quote } from "../quote.ts";
import type { TensorInfo } from "../tensor_info.ts";

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
    "FP8 (E4M3), GPTQ and AWQ of 4 bits, integers of compressed-tensors of 4 and 8, and " +
    "MXFP4 of gpt-oss";
  return new ForgeError(
    "unsupported",
    `${quote(path)} is ${what}, which forge does not read from safetensors; it reads ${known}; ` +
      "otherwise use the model's GGUF files or the unquantized ones",
  );
}
