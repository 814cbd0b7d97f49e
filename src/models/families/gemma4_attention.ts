/** Attention of Gemma 4: values are normalised, and later layers take keys and values of earlier ones. */
import type { ColumnPiece, Weight } from "../../backend.ts";
import type { Block } from "../parts/blocks.ts";
import type { ForwardPass } from "../causal_lm.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import type { Rope } from "../parts/rope.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** Whose keys and values a layer attends to. */
export interface KeyValueSource {
  /** The layer whose cache holds them: this one, or one before. */
  readonly layer: number;
  /** The weight by which keys are normalised. */
  readonly kNorm: Weight;
}

export interface Gemma4AttentionParts {
  readonly rope: Rope;
  readonly window: number | undefined;
  /** The earlier layer whose keys and values are used; `undefined` for a layer with its own. */
  readonly source: KeyValueSource | undefined;
  /** Whether values are the keys before these are normalised. */
  readonly valuesAreKeys: boolean;
}

const Q: TensorName = ["self_attn.q_proj", "attn_q"];
const K: TensorName = ["self_attn.k_proj", "attn_k"];
const V: TensorName = ["self_attn.v_proj", "attn_v"];
const K_NORM: TensorName = ["self_attn.k_norm", "attn_k_norm"];

/**
 * Loads the attention of layer `index`. Layers with keys and values of their own come first, so that a cache
 * has the number of its layer.
 */
export function loadGemma4Attention(
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
  parts: Gemma4AttentionParts,
): { readonly attention: Block; readonly source: KeyValueSource } {
  const { nHeads, headDim, hiddenSize } = c;
  const qSize = nHeads * headDim;
  const qNorm = weights.vector(["self_attn.q_norm", "attn_q_norm"], headDim);
  const out = weights.matrix(["self_attn.o_proj", "attn_output"], hiddenSize, qSize);
  const source = parts.source ?? { layer: index, kNorm: weights.vector(K_NORM, headDim) };
  const qkv = parts.source === undefined
    ? loadOwn(weights, c, index, parts.valuesAreKeys)
    : loadBorrowed(weights, c, parts.source.layer);

  const attention: Block = (pass, x, residual) => {
    const { recorder } = pass;
    const cache = pass.kv[source.layer]!;
    const q = recorder.ropeAppend(qkv(pass, x), cache, {
      nHeads,
      qNorm,
      kNorm: source.kNorm,
      eps: c.normEps,
      rope: pass.ropeTable(parts.rope),
      ropeLayout: parts.rope.layout,
    });
    const mixed = recorder.attention(q, cache, { nHeads, scale: 1, window: parts.window });
    return recorder.matmul(mixed, out, { residual });
  };
  return { attention, source };
}

/** Queries, keys and values, of which the last are normalised; keeps them for later layers. */
function loadOwn(weights: WeightLoader, c: DecoderConfig, index: number, valuesAreKeys: boolean) {
  const { nHeads, nKvHeads, headDim, hiddenSize, normEps: eps } = c;
  const qSize = nHeads * headDim;
  const kvSize = nKvHeads * headDim;
  const stored = [[Q, qSize], [K, kvSize], [V, kvSize]] as const;
  const weight = weights.concat(valuesAreKeys ? stored.slice(0, 2) : stored, hiddenSize);
  const ones = weights.uploadVector(new Float32Array(headDim).fill(1));
  const before = valuesAreKeys ? qSize : qSize + kvSize;
  return ({ recorder, kept }: ForwardPass, x: Parameters<Block>[1]) => {
    const all = recorder.matmul(x, weight);
    const values = recorder.gatherColumns([{ value: all, first: before, width: kvSize }], 1);
    const normed = recorder.rmsNorm(values, ones, { eps });
    const pieces: ColumnPiece[] = [
      { value: all, width: qSize + kvSize },
      { value: normed, width: kvSize },
    ];
    const qkv = recorder.gatherColumns(pieces, 1);
    kept.set(keptName(index), qkv);
    return qkv;
  };
}

/**
 * Queries of this layer beside the keys and values of an earlier one. They are appended to its cache once
 * more: the same numbers to the same places.
 */
function loadBorrowed(weights: WeightLoader, c: DecoderConfig, source: number) {
  const qSize = c.nHeads * c.headDim;
  const kvSize = c.nKvHeads * c.headDim;
  const weight = weights.matrix(Q, qSize, c.hiddenSize);
  // Some files have them nevertheless.
  for (const unused of [K, V, K_NORM]) weights.has(unused);
  return ({ recorder, kept }: ForwardPass, x: Parameters<Block>[1]) =>
    recorder.gatherColumns([
      { value: recorder.matmul(x, weight), width: qSize },
      { value: kept.get(keptName(source))!, first: qSize, width: 2 * kvSize },
    ], 1);
}

function keptName(layer: number): string {
  return `qkv ${layer}`;
}
