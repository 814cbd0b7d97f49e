/** The two ends of a decoder: token ids to hidden states, hidden states to logits. */
import type { Recorder, Value, Weight } from "../../backend.ts";
import type { ForwardPass, ModelSource } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import { divideEvenly, type Span } from "../weights/division.ts";
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
  /** Returns the columns of the matrix that belong to this rank. The first call loads them. */
  readonly part: () => readonly [weight: Weight, columns: Span];
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
  let loaded: ReturnType<Embedding["part"]> | undefined;
  const part = () => loaded ??= weights.embeddingPart(name, vocabSize, c.hiddenSize);
  return { part, vocabSize, name };
}

/** Records the columns of all ranks next to each other, of which `x` are those of this one. */
export function joinColumns(
  recorder: Recorder,
  x: Value,
  [first, count]: Span,
  cols: number,
): Value {
  if (count === cols) return x;
  // The sum over the ranks, of which each has zeros in the columns of the others, is exact.
  const zeros = recorder.gatherColumns(
    [{ value: x, width: count, scale: 0 }],
    Math.ceil(cols / count),
  );
  const pieces = [
    { value: zeros, width: first },
    { value: x, width: count },
    { value: zeros, width: cols - first - count },
  ];
  return recorder.allReduce(recorder.gatherColumns(pieces.filter(({ width }) => width > 0), 1));
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
 * Loads the output matrix, of which each rank has some rows. A matrix in the file is used even if
 * the config ties it to the embedding, as in transformers; a copy of the embedding is not loaded
 * twice.
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
  const { vocabSize } = embedding;
  const stored = hasMatrix || !isEmbedding ? LM_HEAD : embedding.name;
  const own = divideEvenly(vocabSize, weights.rank);
  const lmHead = !isEmbedding
    ? weights.matrix(stored, vocabSize, c.hiddenSize, [own])
    : weights.rank.count === 1
    ? weights.tied(embedding.part()[0], stored, LM_HEAD)
    : weights.tiedRows(stored, LM_HEAD, [vocabSize, c.hiddenSize], own);
  const bias = loadBias(weights, LM_HEAD, vocabSize, parts.bias, [own]);
  return {
    isPresent,
    logits: ({ recorder }, hidden) => {
      const logits = recorder.matmul(hidden, lmHead, { bias, alpha: parts.scale });
      const capped = parts.softcap === undefined ? logits : recorder.softcap(logits, parts.softcap);
      return joinColumns(recorder, capped, own, vocabSize);
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
