/** Rotary position embedding and attention in float64. */
import type { AttentionOptions, RopeLayout } from "../../src/backend.ts";
import { dot } from "./plain_matmul.ts";

/** The preparation of the queries or the keys of one token. */
export interface Preparation {
  readonly headDim: number;
  readonly position: number;
  /** RMSNorm weights: of one head, or of all of them. */
  readonly norm: Float32Array | undefined;
  readonly eps: number;
  readonly weightOffset: number;
  /** Frequencies of the pairs that are rotated; the rest of a head stays. */
  readonly invFreq: Float32Array | undefined;
  readonly ropeLayout: RopeLayout;
  /** True if the last pairs of a head are rotated instead of the first. */
  readonly rotatesEnd?: boolean | undefined;
}

/** Queries or keys of all heads, normalised and rotated. */
export function normalizeAndRotate(heads: ArrayLike<number>, options: Preparation): Float64Array {
  const { headDim, position, norm, eps, weightOffset, invFreq, ropeLayout, rotatesEnd } = options;
  const out = Float64Array.from(heads);
  if (norm !== undefined) {
    for (let begin = 0; begin < out.length; begin += norm.length) {
      const group = out.subarray(begin, begin + norm.length);
      const scale = 1 / Math.sqrt(dot(group, group) / norm.length + Math.fround(eps));
      group.forEach((value, i) => group[i] = value * scale * (norm[i]! + weightOffset));
    }
  }
  const pairs = invFreq?.length ?? 0;
  for (let head = rotatesEnd ? headDim - 2 * pairs : 0; head < out.length; head += headDim) {
    for (let i = 0; i < pairs; i++) {
      const angle = Math.fround(position * invFreq![i]!);
      const first = head + (ropeLayout === "half" ? i : 2 * i);
      const second = head + (ropeLayout === "half" ? i + pairs : 2 * i + 1);
      const a = out[first]!, b = out[second]!;
      out[first] = a * Math.cos(angle) - b * Math.sin(angle);
      out[second] = b * Math.cos(angle) + a * Math.sin(angle);
    }
  }
  return out;
}

/** Attention of one query head at a position. */
export interface HeadOptions extends Pick<AttentionOptions, "scale" | "softcap"> {
  /** A logit without a value. */
  readonly sink: number | undefined;
  /** Added to the scores. */
  readonly biases: readonly number[];
}

/**
 * The weighted mean of the values of one KV head, `dim` wide; `keys` and `values` have one row for
 * each visible position. Zeros if all scores are `-Infinity`.
 */
export function attend(
  query: ArrayLike<number>,
  keys: readonly ArrayLike<number>[],
  values: readonly ArrayLike<number>[],
  dim: number,
  { scale, softcap, sink, biases }: HeadOptions,
): Float64Array {
  const out = new Float64Array(dim);
  const scores = keys.map((key, i) => {
    const score = scale * dot(query, key);
    return (softcap === undefined ? score : softcap * Math.tanh(score / softcap)) + biases[i]!;
  });
  const largest = Math.max(sink ?? -Infinity, ...scores);
  if (largest === -Infinity) return out;
  const weights = scores.map((score) => Math.exp(score - largest));
  const total = weights.reduce((sum, weight) => sum + weight, 0) +
    (sink === undefined ? 0 : Math.exp(sink - largest));
  weights.forEach((weight, i) => {
    const value = values[i]!;
    for (let d = 0; d < out.length; d++) out[d]! += weight / total * value[d]!;
  });
  return out;
}
