import type { Checkpoint } from "../formats/checkpoint.ts";
import type { TensorInfo } from "../formats/tensor_info.ts";
import { ConfigReader, type Key } from "../models/config/config_reader.ts";

/** Properties of a benchmarked model. */
export interface ModelSummary {
  /** Architecture, size and weight types: `llama 1.24B Q4_0+Q6_K`. */
  readonly type: string;
  /** Bytes of its tensors. */
  readonly bytes: number;
  readonly parameters: number;
  /** Bytes of weights read per decoded token. */
  readonly decodeBytes: number;
  /** Weights that a token of a prompt is multiplied with, without those of attention's scores. */
  readonly promptWeights: number;
}

/** Minimum share of the bytes for a weight type to be named. */
const NAMED_SHARE = 0.05;

/**
 * Summarizes a model.
 *
 * @param mapped the tensors used in the computation
 */
export function summarizeModel(
  checkpoint: Checkpoint,
  mapped: readonly TensorInfo[],
): ModelSummary {
  const parameters = sum(mapped.map(elements));
  return {
    type: `${checkpoint.modelType} ${shortCount(parameters)} ${typeNames(mapped)}`,
    bytes: sum(mapped.map(({ bytes }) => bytes)),
    parameters,
    decodeBytes: decodeBytes(checkpoint, mapped),
    promptWeights: promptWeights(checkpoint, mapped),
  };
}

/**
 * Counts all weights, except that only the routed experts of a mixture count, and only one row of
 * an embedding that is not also the output matrix.
 */
function decodeBytes(checkpoint: Checkpoint, mapped: readonly TensorInfo[]): number {
  const used = expertShare(checkpoint);
  const isUntied = mapped.some(({ name }) => OUTPUT.test(name));
  return sum(mapped.map(({ name, bytes, shape }) => {
    if (isUntied && EMBEDDING.test(name)) return bytes / shape[0]!;
    return EXPERTS.test(name) ? bytes * used : bytes;
  }));
}

const OUTPUT = /^(lm_head|output)\.weight$/;
const EMBEDDING = /(^|\.)(embed_tokens|token_embd)\.weight$/;
const EXPERTS = /\.experts\.|_exps\.weight$/;

/** Counts all matrices but the embedding and the output matrix; of experts the routed ones. */
function promptWeights(checkpoint: Checkpoint, mapped: readonly TensorInfo[]): number {
  const used = expertShare(checkpoint);
  const matrices = mapped.filter(({ name, shape }) =>
    shape.length > 1 && !OUTPUT.test(name) && !EMBEDDING.test(name)
  );
  return sum(matrices.map((each) => elements(each) * (EXPERTS.test(each.name) ? used : 1)));
}

/** Returns the share of the experts that a token is routed to. */
function expertShare(checkpoint: Checkpoint): number {
  const config = new ConfigReader(checkpoint);
  const number = (...keys: Key[]) =>
    Number(keys.map((key) => config.raw(key)).find((value) => value !== undefined) ?? 1);
  const experts = number(["num_local_experts", "expert_count"], ["num_experts", undefined]);
  return number(["num_experts_per_tok", "expert_used_count"]) / experts;
}

/** Returns the types of the weights, largest total size first. */
function typeNames(tensors: readonly TensorInfo[]): string {
  const bytesOf = new Map<string, number>();
  for (const { type, bytes } of tensors) bytesOf.set(type, (bytesOf.get(type) ?? 0) + bytes);
  const total = sum([...bytesOf.values()]);
  return [...bytesOf].filter(([, bytes]) => bytes >= NAMED_SHARE * total)
    .sort(([, a], [, b]) => b - a).map(([type]) => type).join("+");
}

/** Formats a parameter count: `135M`, `1.24B`. */
function shortCount(count: number): string {
  const [scale, unit] = count >= 1e9 ? [1e9, "B"] : count >= 1e6 ? [1e6, "M"] : [1e3, "K"];
  return `${Number((count / scale).toPrecision(3))}${unit}`;
}

function elements(tensor: TensorInfo): number {
  return tensor.shape.reduce((product, size) => product * size, 1);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
