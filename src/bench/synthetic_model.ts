/** Models with random weights, written to temporary GGUF files: as fast, and as large, as real ones. */
import type { Quantizer } from "../backend.ts";
import { ForgeError } from "../errors.ts";
import { type GgufField, writeGguf } from "../formats/gguf_writer.ts";
import { quote } from "../formats/quote.ts";
import { float32Tensor, type TensorData } from "../formats/tensor_data.ts";
import { TENSOR_TYPES } from "../formats/tensor_info.ts";
import type { ModelShape, SyntheticSpec, SyntheticType } from "./synthetic_shapes.ts";
import { syntheticTokenizer } from "./synthetic_tokenizer.ts";
import { SyntheticWeights } from "./synthetic_weights.ts";

/** A model in a file of its own, which goes when it is disposed of or the process exits. */
export class SyntheticModel implements Disposable {
  readonly path: string;
  readonly #remove: () => void;

  /**
   * Writes the file into the folder for temporary files, a gigabyte in about a second.
   *
   * @throws {ForgeError} `device` when it cannot be written, as on a full disk.
   */
  constructor(spec: SyntheticSpec, quantizer: Quantizer) {
    this.path = temporaryFile();
    this.#remove = () => removeIfThere(this.path);
    // Deno.exit, as at a second Ctrl-C, runs no finally block.
    globalThis.addEventListener("unload", this.#remove);
    try {
      writeSyntheticModel(this.path, spec, quantizer);
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  [Symbol.dispose](): void {
    globalThis.removeEventListener("unload", this.#remove);
    this.#remove();
  }
}

/**
 * Writes a synthetic model.
 *
 * @throws {ForgeError} `device` when the file cannot be written.
 */
export function writeSyntheticModel(path: string, spec: SyntheticSpec, quantizer: Quantizer): void {
  const tensors = [...modelTensors(spec, new SyntheticWeights(quantizer))];
  try {
    writeGguf(path, { metadata: modelMetadata(spec), tensors });
  } catch (error) {
    throw cannotWrite(path, error);
  }
}

function temporaryFile(): string {
  try {
    return Deno.makeTempFileSync({ prefix: "forge-synthetic-", suffix: ".gguf" });
  } catch (error) {
    throw cannotWrite("a temporary file", error);
  }
}

function removeIfThere(path: string): void {
  try {
    Deno.removeSync(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

function cannotWrite(path: string, error: unknown): unknown {
  if (error instanceof Deno.errors.NotCapable || !(error instanceof Error)) return error;
  return new ForgeError("device", `cannot write ${quote(path)}: ${error.message}`, {
    cause: error,
  });
}

function modelMetadata({ name, shape }: SyntheticSpec): Record<string, GgufField> {
  const { architecture, headDim } = shape;
  const settings: Record<string, GgufField> = {
    block_count: ["u32", shape.nLayers],
    context_length: ["u32", shape.contextLength],
    embedding_length: ["u32", shape.hiddenSize],
    feed_forward_length: ["u32", shape.intermediateSize],
    "attention.head_count": ["u32", shape.nHeads],
    "attention.head_count_kv": ["u32", shape.nKvHeads],
    "attention.key_length": ["u32", headDim],
    "attention.value_length": ["u32", headDim],
    "attention.layer_norm_rms_epsilon": ["f32", 1e-5],
    "rope.dimension_count": ["u32", headDim],
    "rope.freq_base": ["f32", shape.ropeTheta],
    vocab_size: ["u32", shape.vocabSize],
  };
  return {
    "general.architecture": ["string", architecture],
    "general.name": ["string", `synthetic ${name}`],
    ...Object.fromEntries(
      Object.entries(settings).map(([key, field]) => [`${architecture}.${key}`, field]),
    ),
    ...syntheticTokenizer(shape.vocabSize),
  };
}

/** The tensors under their names in GGUF, matrices as `[out_features, in_features]`. */
function* modelTensors(
  { shape, type }: SyntheticSpec,
  weights: SyntheticWeights,
): Generator<TensorData> {
  const { hiddenSize, intermediateSize, headDim, vocabSize, tied } = shape;
  const qSize = shape.nHeads * headDim;
  const kvSize = shape.nKvHeads * headDim;
  const outputType = headType(shape, type);
  yield weights.matrix("token_embd.weight", tied ? outputType : type, vocabSize, hiddenSize);
  yield norm("output_norm.weight", hiddenSize);
  if (!tied) yield weights.matrix("output.weight", outputType, vocabSize, hiddenSize);
  for (let layer = 0; layer < shape.nLayers; layer++) {
    const name = (part: string) => `blk.${layer}.${part}.weight`;
    yield norm(name("attn_norm"), hiddenSize);
    yield weights.matrix(name("attn_q"), type, qSize, hiddenSize);
    yield weights.matrix(name("attn_k"), type, kvSize, hiddenSize);
    yield weights.matrix(name("attn_v"), type, kvSize, hiddenSize);
    if (shape.architecture === "qwen3") {
      yield norm(name("attn_q_norm"), headDim);
      yield norm(name("attn_k_norm"), headDim);
    }
    yield weights.matrix(name("attn_output"), type, hiddenSize, qSize);
    yield norm(name("ffn_norm"), hiddenSize);
    yield weights.matrix(name("ffn_gate"), type, intermediateSize, hiddenSize);
    yield weights.matrix(name("ffn_up"), type, intermediateSize, hiddenSize);
    yield weights.matrix(name("ffn_down"), type, hiddenSize, intermediateSize);
  }
}

function norm(name: string, size: number): TensorData {
  return float32Tensor(name, [size], new Float32Array(size).fill(1));
}

/** Files of 4 and 5 bits usually have an output matrix of more: Q6_K, or Q8_0 where that does not fit. */
function headType({ hiddenSize }: ModelShape, type: SyntheticType): SyntheticType {
  if (!/^Q[45]/.test(type)) return type;
  return hiddenSize % TENSOR_TYPES.Q6_K.blockElements === 0 ? "Q6_K" : "Q8_0";
}
