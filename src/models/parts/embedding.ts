/** The two ends of a decoder: token ids to hidden states, hidden states to logits. */
import type { Value, Weight } from "../../backend.ts";
import { type BiasRule, loadBias } from "./blocks.ts";
import type { ForwardPass, ModelSource } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import type { TensorName } from "../weights/weight_loader.ts";

const EMBEDDING: TensorName = ["embed_tokens", "token_embd"];
const LM_HEAD: TensorName = ["lm_head", "output"];

/** A loaded embedding matrix, `[vocabSize, hiddenSize]`. */
export interface Embedding {
  readonly weight: Weight;
  readonly vocabSize: number;
}

/** The embedding matrix; its height is the size of the vocabulary. */
export function loadEmbedding(source: ModelSource, c: DecoderConfig): Embedding {
  const { config, weights } = source;
  // GGUF files need not name the size; the matrix itself has it.
  const implied = weights.isGguf ? { fallback: weights.shape(EMBEDDING)[0] ?? 0 } : {};
  const vocabSize = config.int(["vocab_size", undefined], implied);
  return { weight: weights.matrix(EMBEDDING, vocabSize, c.hiddenSize), vocabSize };
}

/** What the end of a decoder does besides its product. */
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
  /** Whether the product has a bias. @default "none" */
  readonly bias?: BiasRule | undefined;
}

/** Whether config.json names a class without an output matrix, such as `MistralModel`. */
function isDecoderAlone(config: ConfigReader): boolean {
  const names = config.raw(["architectures", undefined]);
  return Array.isArray(names) && names.length > 0 &&
    names.every((name) => typeof name === "string" && name.endsWith("Model"));
}

/** The end of a decoder. */
export interface Head {
  /** Whether the checkpoint has it; one of a decoder alone, made to embed texts, has none. */
  readonly isPresent: boolean;
  /** From normalised hidden states to logits, `[outputs, vocabSize]`. */
  readonly logits: (pass: ForwardPass, hidden: Value) => Value;
}

/**
 * The output matrix, and what follows it. A matrix in the file is used even where the config ties
 * it to the embedding, as in transformers.
 */
export function loadHead(
  source: ModelSource,
  c: DecoderConfig,
  embedding: Embedding,
  parts: HeadParts = {},
): Head {
  const { config, weights } = source;
  const hasMatrix = weights.has(LM_HEAD);
  const isTied = weights.isGguf ||
    (parts.isTied ?? config.boolean(["tie_word_embeddings", undefined], false));
  const isPresent = isTied || hasMatrix || !isDecoderAlone(config);
  const isEmbedding = hasMatrix
    ? isTied && !weights.isGguf && weights.holdSame(EMBEDDING, LM_HEAD)
    : isTied || !isPresent;
  const lmHead = isEmbedding
    ? embedding.weight
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
