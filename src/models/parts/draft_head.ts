/**
 * Multi-token prediction: a head of one layer that predicts the token after a given one from its
 * embedding and the model's hidden state of the token before it, zeros before the first. The head
 * takes its own hidden states in place of the model's, too, so that it drafts chains of tokens.
 * DeepSeek-AI, arXiv:2412.19437; Qwen Team, "Qwen3-Next", 2025.
 *
 * Hidden states are those after the last norm, of the model and of the head. They are kept by
 * position in a KV cache of their own, so that they are shared, saved and overwritten like keys and
 * values. A step of the model also appends the head's keys and values of its tokens: the head
 * never has to catch up.
 */
import type { Value, Weight } from "../../backend.ts";
import type { ForwardPass, LayerKvShape, ModelSource } from "../causal_lm.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";
import type { Block } from "./blocks.ts";

/** Names of the head's tensors. */
interface Layout {
  /** Prefixes of the tensors around the layer. */
  readonly frame: (nLayers: number) => readonly [huggingFace: string, gguf: string];
  /** Prefixes of the tensors of the layer. */
  readonly layer: (nLayers: number) => readonly [huggingFace: string, gguf: string];
  readonly embeddingNorm: TensorName;
  readonly hiddenNorm: TensorName;
  /** Maps `(embedding | hidden state)` to the input of the layer. */
  readonly projection: TensorName;
  /** @default the model's last norm */
  readonly finalNorm?: TensorName;
}

const LAYOUTS: readonly Layout[] = [
  // DeepSeek-V3, GLM-4.5 and all GGUF files: a layer after the model's own.
  {
    frame: (n) => [`model.layers.${n}.`, `blk.${n}.nextn.`],
    layer: (n) => [`model.layers.${n}.`, `blk.${n}.`],
    embeddingNorm: ["enorm", "enorm"],
    hiddenNorm: ["hnorm", "hnorm"],
    projection: ["eh_proj", "eh_proj"],
    finalNorm: ["shared_head.norm", "shared_head_norm"],
  },
  // Qwen3-Next and Qwen3.5.
  {
    frame: () => ["mtp.", "mtp."],
    layer: () => ["mtp.layers.0.", "mtp.layers.0."],
    embeddingNorm: ["pre_fc_norm_embedding", undefined],
    hiddenNorm: ["pre_fc_norm_hidden", undefined],
    projection: ["fc", undefined],
    finalNorm: ["norm", undefined],
  },
  // ERNIE 4.5 with experts.
  {
    frame: () => ["model.mtp_", "mtp_"],
    layer: () => ["model.mtp_block.0.", "mtp_block.0."],
    embeddingNorm: ["emb_norm.0", undefined],
    hiddenNorm: ["hidden_norm.0", undefined],
    projection: ["linear_proj.0", undefined],
  },
];

/** Parts of the model that the head is made of. */
interface DraftHeadParts {
  /** KV caches of the model. Those of the head follow them. */
  readonly kvLayers: readonly LayerKvShape[];
  readonly embed: (pass: ForwardPass) => Value;
  readonly loadNorm: (weights: WeightLoader, name: TensorName) => Block;
  readonly finalNorm: Block;
  readonly inputNorm: TensorName;
  readonly mlpNorm: TensorName;
  /** Load the blocks of layer `nLayers`. */
  readonly attention: (weights: WeightLoader, index: number) => Block;
  readonly mlp: (weights: WeightLoader, index: number) => Block;
}

/** A loaded head. */
export interface DraftHead {
  /** Its KV caches: those of its attention, then that of hidden states. */
  readonly kvLayers: readonly LayerKvShape[];
  /**
   * Layers of the model whose inputs it reads; the number of layers stands for the last output.
   *
   * @default the output of the model's last norm
   */
  readonly captures?: readonly number[] | undefined;
  /** Records what a step of the model keeps for the head. @param states of all tokens */
  readonly keep: (pass: ForwardPass, states: readonly Value[]) => void;
  /** Records a step of the head, and returns its hidden states, `[tokens, hiddenSize]`. */
  readonly draft: (pass: ForwardPass) => Value;
  /** Maps hidden states to logits. @default the model's output matrix */
  readonly logits?: ((pass: ForwardPass, hidden: Value) => Value) | undefined;
  /** Ids in the model's vocabulary of the tokens that have logits. @default the same ids */
  readonly tokens?: Int32Array | undefined;
}

/**
 * Loads the head of a model, if its files have one and the source asks for it. Files may hold
 * several layers, for a draft token each; the first one is used for all.
 */
export function loadDraftHead(
  { config, weights, drafts }: ModelSource,
  c: DecoderConfig,
  parts: DraftHeadParts,
): DraftHead | undefined {
  const layout = LAYOUTS.find(({ frame, embeddingNorm, hiddenNorm, projection }) =>
    drafts &&
    [embeddingNorm, hiddenNorm, projection].every((name) =>
      weights.under(frame(c.nLayers)).has(name)
    )
  );
  if (layout === undefined) return undefined;
  const frame = weights.under(layout.frame(c.nLayers));
  const embeddingNorm = parts.loadNorm(frame, layout.embeddingNorm);
  const hiddenNorm = parts.loadNorm(frame, layout.hiddenNorm);
  const finalNorm = layout.finalNorm ? parts.loadNorm(frame, layout.finalNorm) : parts.finalNorm;
  const { hiddenSize } = c;
  const projection: Weight = frame.matrix(layout.projection, hiddenSize, 2 * hiddenSize);
  const layer = weights.under(layout.layer(c.nLayers));
  const inputNorm = parts.loadNorm(layer, parts.inputNorm);
  const attention = parts.attention(layer, c.nLayers);
  const { append } = attention;
  if (append === undefined) return undefined;
  const mlpNorm = parts.loadNorm(layer, parts.mlpNorm);
  const mlp = parts.mlp(layer, c.nLayers);
  config.sink?.setting("block_count", ["u32", c.nLayers + 1]);
  config.sink?.setting("nextn_predict_layers", ["u32", 1]);
  const kept = parts.kvLayers.length + 1;

  /** Records the input of the layer, given the hidden states of the tokens before. */
  const begin = (pass: ForwardPass, before: Value): Value => {
    const pieces = [embeddingNorm(pass, parts.embed(pass)), hiddenNorm(pass, before)];
    const both = pass.recorder.gatherColumns(
      pieces.map((value) => ({ value, width: hiddenSize })),
      1,
    );
    return pass.recorder.matmul(both, projection);
  };
  return {
    kvLayers: [parts.kvLayers.at(-1)!, hiddenShape(hiddenSize)],
    keep: (pass, [hidden]) => {
      const h = begin(pass, pass.recorder.previousRows(hidden, pass.kv[kept]!));
      append(pass, inputNorm(pass, h));
    },
    draft: (pass) => {
      let h = begin(pass, pass.recorder.previousRows(undefined, pass.kv[kept]!));
      h = attention(pass, inputNorm(pass, h), h);
      h = finalNorm(pass, mlp(pass, mlpNorm(pass, h), h));
      pass.recorder.previousRows(h, pass.kv[kept]!);
      return h;
    },
  };
}

/** Most elements of a head in a KV cache. */
const MOST_DIMS = 4096;

/** Returns a cache of hidden states: keys of as few heads as hold them, without values. */
export function hiddenShape(hiddenSize: number): LayerKvShape {
  let nKvHeads = Math.ceil(hiddenSize / MOST_DIMS);
  while (hiddenSize % nKvHeads !== 0) nKvHeads++;
  const dim = hiddenSize / nKvHeads;
  return { nKvHeads, kHeadDim: dim, vHeadDim: dim, valuesInKeys: true, keepsHidden: true };
}
