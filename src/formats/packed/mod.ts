/**
 * Folders whose matrices are packed, each in several tensors: bytes with scales, and 4-bit integers
 * by GPTQ, AWQ and compressed-tensors. Seen through this file they hold matrices under their usual
 * names, of the types that their rows become when they are read.
 */
import { isJsonObject, type JsonObject } from "../json.ts";
import { quote } from "../quote.ts";
import type { TensorInfo } from "../tensor_info.ts";
import { byteMatrices } from "./bytes.ts";
import { type PackedFolder, unknownPacking, type Unpacked } from "./folder.ts";
import { awqMatrices, gptqMatrices, int4Matrices } from "./int4.ts";

/**
 * What formats keep beside weights for those who compute with rounded activations, keys or values.
 */
const FOR_ACTIVATIONS = /\.(input|activation|output|q|k|v)(_proj\.output)?_scale(_ub)?$/;

/** Ways of packing by their `quant_method`. */
const METHODS: Readonly<Record<string, (folder: PackedFolder) => Iterable<Unpacked>>> = {
  fp8: byteMatrices,
  fbgemm_fp8: byteMatrices,
  modelopt: byteMatrices,
  "compressed-tensors": function* (folder) {
    yield* byteMatrices(folder);
    yield* int4Matrices(folder);
  },
  gptq: gptqMatrices,
  awq: awqMatrices,
  // gpt-oss's, whose tensors its own loader puts together.
  mxfp4: () => [],
};

/**
 * The tensors of a folder, packed matrices as one each.
 *
 * @throws {ForgeError} `unsupported` for a way of packing that forge does not read; `bad_model`
 * where tensors do not fit together.
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
  if (unpack === undefined) throw unknownPacking(path, `quantised by ${quote(method)}`);
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
