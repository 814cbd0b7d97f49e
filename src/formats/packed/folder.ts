/** What the readers of packed matrices have in common. */
import { ForgeError } from "../../errors.ts";
import type { JsonObject } from "../json.ts";
import { quote } from "../quote.ts";
import type { TensorInfo } from "../tensor_info.ts";

/** A matrix and the names of the tensors that it takes the place of. */
export interface Unpacked {
  readonly matrix: TensorInfo;
  readonly parts: readonly TensorInfo[];
}

/** A folder that says how it is quantised. */
export interface PackedFolder {
  readonly path: string;
  /** `quantization_config` of config.json. */
  readonly settings: JsonObject;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
}

/** The error for a way of packing that forge does not read. */
export function unknownPacking(path: string, what: string): ForgeError {
  const known =
    "FP8 (E4M3), GPTQ and AWQ of 4 bits, integers of compressed-tensors of 4 and 8, and " +
    "MXFP4 of gpt-oss";
  return new ForgeError(
    "unsupported",
    `${quote(path)} is ${what}, which forge does not read from safetensors; it reads ${known}; ` +
      "otherwise take the model's GGUF files, or those that are not quantised",
  );
}
