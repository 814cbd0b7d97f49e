/** The two ends of a decoder: token ids to hidden states, hidden states to logits. */
import type { Value, Weight } from "../../backend.ts";
import type { ForwardPass, ModelSource } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";
import { type BiasRule, loadBias } from "./blocks.ts";

const EMBEDDING: TensorName = ["embed_tokens", "token_embd"];
const LM_HEAD: TensorName = ["lm_head", "output"];

/** Output matrix and the operations after it. */
export interface HeadParts {
  /**
   * True if the config ties the output matrix to the embedding.
   *
   * @default its `tie_word_embeddings`
   */
  readonly isTied?: boolean;
  /** Multiplies the logits. @default 1 */
  readonly scale?: number | undefined;
  readonly softcap?: number | undefined;
  /** Bias of the output matrix. @default "none" */
  readonly bias?: BiasRule | undefined;
}

/** An embedding matrix, `[vocabSize, hiddenSize]`. */
interface Embedding {
  /** Returns the matrix, which the first call loads. */
  readonly weight: () => Weight;
  readonly vocabSize: number;
  /** The tensor it is read from. */
  readonly name: TensorName;
}

/** Returns the bytes of the embedding and of the output matrix. */
export function endBytes(weights: WeightLoader): [number, number] {
  const [embedding, output] = [weights.bytesOf(EMBEDDING), weights.bytesOf(LM_HEAD)];
  return [embedding ?? output ?? 0, output ?? embedding ?? 0];
}

/**
 * Finds the embedding matrix. A tied folder may hold it as the output matrix alone; transformers
 * reads such folders too.
 */
export function findEmbedding(
  source: ModelSource,
  c: DecoderConfig,
  head: HeadParts = {},
): Embedding {
  const { config, weights } = source;
  const isSwapped = !weights.isGguf && !weights.has(EMBEDDING) && weights.has(LM_HEAD) &&
    isTied(source, head);
  const name = isSwapped ? LM_HEAD : EMBEDDING;
  // GGUF files may lack the setting; the matrix has a row for each token.
  const implied = weights.isGguf ? { fallback: weights.shape(EMBEDDING)[0] ?? 0 } : {};
  const vocabSize = config.int(["vocab_size", undefined], implied);
  let loaded: Weight | undefined;
  const weight = () => loaded ??= weights.embedding(name, vocabSize, c.hiddenSize);
  return { weight, vocabSize, name };
}

/** The loaded end of a decoder. */
interface Head {
  /**
   * True unless the checkpoint is a decoder alone, made to embed texts, without an output matrix.
   */
  readonly isPresent: boolean;
  /** Maps normalised hidden states to logits, `[outputs, vocabSize]`. */
  readonly logits: (pass: ForwardPass, hidden: Value) => Value;
}

/**
 * Loads the output matrix. A matrix in the file is used even if the config ties it to the
 * embedding, as in transformers; a copy of the embedding is not loaded twice.
 */
export function loadHead(
  source: ModelSource,
  c: DecoderConfig,
  embedding: Embedding,
  parts: HeadParts = {},
): Head {
  const { config, weights } = source;
  const hasMatrix = weights.has(LM_HEAD);
  const tied = isTied(source, parts);
  const isPresent = tied || hasMatrix || !isDecoderAlone(config);
  const isEmbedding = hasMatrix
    ? embedding.name === LM_HEAD ||
      (tied && !weights.isGguf && weights.holdSame(EMBEDDING, LM_HEAD))
    : tied || !isPresent;
  const lmHead = isEmbedding
    ? weights.tied(embedding.weight(), hasMatrix ? LM_HEAD : embedding.name, LM_HEAD)
    : weights.matrix(LM_HEAD, embedding.vocabSize, c.hiddenSize);
  const bias = loadBias(weights, LM_HEAD, embedding.vocabSize, parts.bias);
  return {
    isPresent,
    logits: ({ recorder }, hidden) => {
      const logits = recorder.matmul(hidden, lmHead, { bias, alpha: parts.scale });
      return parts.softcap === undefined ? logits : recorder.softcap(logits, parts.softcap);
    },
  };
}

/** True if a checkpoint without an output matrix uses the embedding. GGUF files always do. */
function isTied({ config, weights }: ModelSource, parts: HeadParts): boolean {
  return weights.isGguf ||
    (parts.isTied ?? config.boolean(["tie_word_embeddings", undefined], false));
}

/**
 * True if config.json names a class without an output matrix, such as `MistralModel` and
 * `Qwen3ForSequenceClassification`.
 */
function isDecoderAlone(config: ConfigReader): boolean {
  const names = config.raw(["architectures", undefined]);
  return Array.isArray(names) && names.length > 0 &&
    names.every((name) =>
      typeof name === "string" && /(?:Model|ForSequenceClassification)$/.test(name)
    );
}
