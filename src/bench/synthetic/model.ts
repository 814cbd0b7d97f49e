/** Models with random weights in temporary files, with the speed and size of real ones. */
import type { Quantizer } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { type GgufField, writeGguf } from "../../formats/gguf/writer.ts";
import { quote } from "../../formats/quote.ts";
import { float32Tensor, type TensorData } from "../../formats/tensor_data.ts";
import { writeSyntheticCheckpoint } from "./checkpoint.ts";
import { outputType, type ShapeSpec } from "./shapes.ts";
import type { SyntheticSpec } from "./spec.ts";
import { syntheticTokenizer } from "./tokenizer.ts";
import { SyntheticWeights } from "./weights.ts";

/** Signals that end a process by default, with the exit codes that shells report. */
const FATAL_SIGNALS = [["SIGTERM", 143], ["SIGHUP", 129]] as const;

/**
 * A model in a temporary file, which is removed on disposal, at exit and on termination signals.
 * The caller handles Ctrl-C.
 */
export class SyntheticModel implements Disposable {
  /** Path of the file. */
  readonly path: string;
  /** The path of a GGUF file, or a checkpoint for architectures that GGUF does not cover. */
  readonly model: string | Checkpoint;
  readonly #remove = () => removeIfThere(this.path);
  readonly #handlers = FATAL_SIGNALS.map(([signal, code]) => ({
    signal,
    exit: () => {
      this.#remove();
      Deno.exit(code);
    },
  }));

  /**
   * Writes the file to the temporary folder, a gigabyte in about a second.
   *
   * @throws {ForgeError} `device` if it cannot be written, for example on a full disk
   */
  constructor(spec: SyntheticSpec, quantizer: Quantizer) {
    this.path = temporaryFile();
    // Deno.exit, for example after a second Ctrl-C, runs no finally block.
    globalThis.addEventListener("unload", this.#remove);
    for (const { signal, exit } of this.#handlers) Deno.addSignalListener(signal, exit);
    try {
      this.model = this.#write(spec, quantizer);
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  #write(spec: SyntheticSpec, quantizer: Quantizer): string | Checkpoint {
    if ("shape" in spec) {
      writeSyntheticModel(this.path, spec, quantizer);
      return this.path;
    }
    const weights = new SyntheticWeights(quantizer);
    return writing(this.path, () => writeSyntheticCheckpoint(this.path, spec, weights));
  }

  [Symbol.dispose](): void {
    globalThis.removeEventListener("unload", this.#remove);
    for (const { signal, exit } of this.#handlers) Deno.removeSignalListener(signal, exit);
    this.#remove();
  }
}

/**
 * Writes a synthetic model as a GGUF file.
 *
 * @throws {ForgeError} `device` if the file cannot be written
 */
export function writeSyntheticModel(path: string, spec: ShapeSpec, quantizer: Quantizer): void {
  const tensors = [...modelTensors(spec, new SyntheticWeights(quantizer))];
  writing(path, () => writeGguf(path, { metadata: modelMetadata(spec), tensors }));
}

function writing<T>(path: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    throw error instanceof ForgeError ? error : cannotWrite(path, error);
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

function modelMetadata({ name, shape, hasPredictor }: ShapeSpec): Record<string, GgufField> {
  const { architecture, headDim } = shape;
  const nExtra = hasPredictor ? 1 : 0;
  const settings: Record<string, GgufField> = {
    block_count: ["u32", shape.nLayers + nExtra],
    nextn_predict_layers: ["u32", nExtra],
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

/**
 * Yields the tensors with their names in GGUF; matrices have the shape `[out_features,
 * in_features]`.
 */
function* modelTensors(
  { shape, type, hasPredictor }: ShapeSpec,
  weights: SyntheticWeights,
): Generator<TensorData> {
  const { hiddenSize, intermediateSize, headDim, vocabSize, tied } = shape;
  const qSize = shape.nHeads * headDim;
  const kvSize = shape.nKvHeads * headDim;
  const headType = outputType(type, hiddenSize);
  yield weights.matrix("token_embd.weight", tied ? headType : type, vocabSize, hiddenSize);
  yield norm("output_norm.weight", hiddenSize);
  if (!tied) yield weights.matrix("output.weight", headType, vocabSize, hiddenSize);
  if (hasPredictor) {
    const name = (part: string) => `blk.${shape.nLayers}.nextn.${part}.weight`;
    for (const part of ["enorm", "hnorm", "shared_head_norm"]) yield norm(name(part), hiddenSize);
    yield weights.matrix(name("eh_proj"), type, hiddenSize, 2 * hiddenSize);
  }
  for (let layer = 0; layer < shape.nLayers + (hasPredictor ? 1 : 0); layer++) {
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
