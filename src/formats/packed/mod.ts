/**
 * Folders with packed matrices, each in several tensors: bytes with scales, 4-bit floats (NVFP4),
 * and 4-bit integers by GPTQ, AWQ and compressed-tensors. This module presents each as one matrix
 * with its usual name and the type of its rows.
 */
import { isJsonObject, type JsonObject } from "../json.ts";
import { quote } from "../quote.ts";
import type { TensorInfo } from "../tensor_info.ts";
import { byteMatrices } from "./bytes.ts";
import { type PackedFolder, unknownPacking, type Unpacked } from "./folder.ts";
import { awqMatrices, gptqMatrices, int4Matrices } from "./int4.ts";
import { nvfp4Matrices } from "./nvfp4.ts";

/** Scales of quantized activations, keys or values, which forge does not use. */
const FOR_ACTIVATIONS = /\.(input|activation|output|q|k|v)(_global)?_scale(_ub)?$/;

/** Readers by `quant_method`. */
const METHODS: Readonly<Record<string, (folder: PackedFolder) => Iterable<Unpacked>>> = {
  fp8: byteMatrices,
  fbgemm_fp8: byteMatrices,
  modelopt: function* (folder) {
    yield* byteMatrices(folder);
    yield* nvfp4Matrices(folder);
  },
  "compressed-tensors": function* (folder) {
    yield* byteMatrices(folder);
    yield* nvfp4Matrices(folder);
    yield* int4Matrices(folder);
  },
  gptq: gptqMatrices,
  awq: awqMatrices,
  // The loader of gpt-oss combines its tensors.
  mxfp4: () => [],
};

/**
 * Returns the tensors of a folder with each packed matrix as one tensor.
 *
 * @throws {ForgeError} `unsupported` for a packing that forge does not read; `bad_model` if tensors
 * do not fit together
 */
export function unpackedTensors(
  config: JsonObject,
  tensors: ReadonlyMap<string, TensorInfo>,
  path: string,
): ReadonlyMap<string, TensorInfo> {
  const settings = config.quantization_config;
  if (!isJsonObject(settings) || settings.quant_method === undefined) return tensors;
  const method = String(settings.quant_method);
  const unpack = Object.hasOwn(METHODS, method) ? METHODS[method] : undefined;
  if (unpack === undefined) throw unknownPacking(path, `quantized by ${quote(method)}`);
  const result = new Map(tensors);
  for (const { matrix, parts } of unpack({ path, settings, tensors })) {
    for (const { name } of parts) result.delete(name);
    result.set(matrix.name, matrix);
  }
  for (const name of tensors.keys()) {
    if (FOR_ACTIVATIONS.test(name)) result.delete(name);
  }
  return result;
}
