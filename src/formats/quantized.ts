/** Quantization on load: matrices stored as floats become blocks of a type while they are read. */
import { ForgeError } from "../errors.ts";
import type { Checkpoint } from "./checkpoint.ts";
import { quote } from "./quote.ts";
import { TENSOR_TYPES, tensorBytes, type TensorInfo, type TensorType } from "./tensor_info.ts";

/** Types that weights can be quantized to on load. */
export const QUANTIZED_TYPES = ["Q8_0", "Q6_K", "Q4_K", "Q4_0"] as const;

/** One of {@linkcode QUANTIZED_TYPES}. */
export type QuantizedType = typeof QUANTIZED_TYPES[number];

/** Smaller matrices save little memory, and many of them are sensitive. */
const LEAST_ELEMENTS = 2 ** 13;

/** Embeddings and output matrices, which deserve more bits. */
const TABLES = /(^|\.)(embed_tokens|embed_tokens_per_layer|lm_head|token_embd|output)\.weight$/;

/**
 * Matrices that are not quantized: routers and gates of whole experts or recurrent steps, where
 * small errors change which values take part, and matrices of latent attention that are reordered
 * on load.
 */
const KEPT = new RegExp(
  String.raw`(^|\.)(gate|router|router\.\w+|shared_expert_gate|ffn_gate_inp\w*|` +
    String.raw`in_proj_(ba|a|b)|ssm_(ba|alpha|beta)|kv_b_proj|attn_(kv|k|v)_b)\.weight$`,
);

const FLOATS: readonly TensorType[] = ["F32", "F16", "BF16"];

/**
 * Returns a view of a checkpoint in which matrices have a quantized type. If their rows are not
 * whole blocks of the type, they get a type with blocks of 32 and at least as many bits, if there
 * is one. Embeddings and output matrices get at least 6 bits.
 *
 * @throws {ForgeError} `usage` if no weights are stored as floats
 */
export function quantized(checkpoint: Checkpoint, type: QuantizedType): Checkpoint {
  let changed = 0;
  const tensors = new Map<string, TensorInfo>();
  for (const [name, tensor] of checkpoint.tensors) {
    const target = targetType(checkpoint, tensor, type);
    if (target !== undefined) changed++;
    tensors.set(name, target === undefined ? tensor : inType(tensor, target));
  }
  if (changed > 0) return withTensors(checkpoint, tensors);
  const types = new Set(Array.from(tensors.values(), ({ type }) => type));
  const isOfFloats = [...types].every((type) => FLOATS.includes(type));
  throw new ForgeError(
    "usage",
    `${quote(checkpoint.path)} has no weights to quantize to ${type}: ` +
      (isOfFloats
        ? `its matrices have fewer than ${LEAST_ELEMENTS} elements, or rows of other lengths than ` +
          `multiples of ${TENSOR_TYPES[fitting(type, 32) ?? type].blockElements}`
        : `matrices in ${FLOATS.join(", ")} can be, and it holds ${[...types].sort().join(", ")}`),
  );
}

/** Replaces the tensors of a checkpoint; everything else stays lazy. */
function withTensors(
  checkpoint: Checkpoint,
  tensors: ReadonlyMap<string, TensorInfo>,
): Checkpoint {
  return {
    kind: checkpoint.kind,
    path: checkpoint.path,
    files: checkpoint.files,
    tensors,
    modelType: checkpoint.modelType,
    multimodal: checkpoint.multimodal,
    config: checkpoint.config,
    generationConfig: checkpoint.generationConfig,
    metadata: checkpoint.metadata,
    tokenizerJson: () => checkpoint.tokenizerJson(),
    tokenizerConfig: () => checkpoint.tokenizerConfig(),
    get chatTemplate() {
      return checkpoint.chatTemplate;
    },
  };
}

/** Returns the new type of a tensor, or `undefined` to keep the tensor. */
function targetType(
  { kind }: Checkpoint,
  { name, type, shape, packed }: TensorInfo,
  asked: QuantizedType,
): TensorType | undefined {
  // In folders, tensors of more dimensions are convolutions, or experts in a different order.
  const isMatrix = shape.length === 2 || kind === "gguf" && shape.length === 3;
  if (!isMatrix || packed !== undefined || !FLOATS.includes(type) || KEPT.test(name)) return;
  if (shape.reduce((product, size) => product * size, 1) < LEAST_ELEMENTS) return;
  const wanted = TABLES.test(name) && asked !== "Q8_0" ? "Q6_K" : asked;
  return fitting(wanted, shape.at(-1)!);
}

/** Returns the type, or the next one whose blocks divide the number of columns. */
function fitting(type: QuantizedType, cols: number): TensorType | undefined {
  const others = { Q8_0: [], Q6_K: ["Q8_0"], Q4_K: ["Q5_0"], Q4_0: [] } as const;
  return [type, ...others[type]].find((each) => cols % TENSOR_TYPES[each].blockElements === 0);
}

function inType(tensor: TensorInfo, type: TensorType): TensorInfo {
  const bytes = tensorBytes(type, tensor.shape);
  if (typeof bytes === "string") throw new RangeError(`${tensor.name}: ${bytes}`);
  const cols = tensor.shape.at(-1)!;
  const packed = { packing: "float", groupRows: 1, groupCols: cols, codes: tensor } as const;
  return { ...tensor, type, bytes, packed };
}
