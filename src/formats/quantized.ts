/**
 * A checkpoint seen as if its matrices had been quantised: those stored as floats become blocks of a type while
 * they are read, as packed ones do; nothing is written.
 */
import { ForgeError } from "../errors.ts";
import type { Checkpoint } from "./checkpoint.ts";
import { quote } from "./quote.ts";
import { TENSOR_TYPES, tensorBytes, type TensorInfo, type TensorType } from "./tensor_info.ts";

/** The types that weights can be quantised to while they load. */
export const QUANTIZED_TYPES = ["Q8_0", "Q6_K", "Q4_K", "Q4_0"] as const;

/** One of {@linkcode QUANTIZED_TYPES}. */
export type QuantizedType = typeof QUANTIZED_TYPES[number];

/** Smaller matrices weigh little, and most of them decide much. */
const LEAST_ELEMENTS = 2 ** 13;

/** What is read row by row for tokens, and what logits come from: a bit more of these is worth its bytes. */
const TABLES = /(^|\.)(embed_tokens|embed_tokens_per_layer|lm_head|token_embd|output)\.weight$/;

/**
 * What stays as it is: routers and what gates whole experts or the steps of a recurrence, where a little changes
 * which numbers take part; and the matrices of latent attention that are put in another order as they load.
 */
const KEPT = new RegExp(
  String.raw`(^|\.)(gate|router|router\.\w+|shared_expert_gate|ffn_gate_inp\w*|` +
    String.raw`in_proj_(ba|a|b)|ssm_(ba|alpha|beta)|kv_b_proj|attn_(kv|k|v)_b)\.weight$`,
);

const FLOATS: readonly TensorType[] = ["F32", "F16", "BF16"];

/**
 * The checkpoint with its matrices in a type, as far as their rows are whole blocks of it: otherwise a type of
 * blocks of 32 with no fewer bits takes its place, or nothing. Tables of the vocabulary have at least 6 bits.
 *
 * @throws {ForgeError} `usage` where no weight is stored as floats
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
  throw new ForgeError(
    "usage",
    `${quote(checkpoint.path)} has no weights to quantise to ${type}: matrices in ` +
      `${FLOATS.join(", ")} can be, and it holds ${[...types].sort().join(", ")}`,
  );
}

/** All else of a checkpoint stays, and is read at its first use still. */
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

/** What a tensor becomes; nothing where it stays. */
function targetType(
  { kind }: Checkpoint,
  { name, type, shape, packed }: TensorInfo,
  asked: QuantizedType,
): TensorType | undefined {
  // In folders, tensors of more dimensions are convolutions, or experts in an order of their own.
  const isMatrix = shape.length === 2 || kind === "gguf" && shape.length === 3;
  if (!isMatrix || packed !== undefined || !FLOATS.includes(type) || KEPT.test(name)) return;
  if (shape.reduce((product, size) => product * size, 1) < LEAST_ELEMENTS) return;
  const wanted = TABLES.test(name) && asked !== "Q8_0" ? "Q6_K" : asked;
  return fitting(wanted, shape.at(-1)!);
}

/** The type, or the next that has blocks of so many columns. */
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
