/**
 * Arranges blocks around the residual stream, and joins layers, embedding and output into a
 * decoder.
 */
import type { RopeLayout, Value } from "../../backend.ts";
import { type Block, kvShape, loadRmsNorm, type NormOptions } from "./blocks.ts";
import {
  type CausalLm,
  ForwardPass,
  type LayerKvShape,
  type ModelSource,
  type StateMatrix,
} from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import { loadProjection, loadScore } from "./classifier.ts";
import { type DraftHead, loadDraftHead } from "./draft_head.ts";
import { loadEagleHead } from "./eagle_head.ts";
import { endBytes, findEmbedding, type HeadParts, joinColumns, loadHead } from "./embedding.ts";
import { readRope, type Rope } from "./rope.ts";
import type { RopeLayers } from "../config/rope_parameters.ts";
import { divideKvHeads } from "../weights/division.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** The norm before attention. */
export const INPUT_NORM: TensorName = ["input_layernorm", "attn_norm"];
/** The norm between attention and MLP of a pre-norm layer. */
const MLP_NORM: TensorName = ["post_attention_layernorm", "ffn_norm"];
/**
 * The norm after attention. Some pre-norm families store the norm before the MLP under this name.
 */
export const POST_ATTENTION_NORM: TensorName = ["post_attention_layernorm", "post_attention_norm"];
/** The norm before the MLP in a layer that also has {@linkcode POST_ATTENTION_NORM}. */
export const PRE_MLP_NORM: TensorName = ["pre_feedforward_layernorm", "ffn_norm"];
export const POST_MLP_NORM: TensorName = ["post_feedforward_layernorm", "post_ffw_norm"];
const FINAL_NORM: TensorName = ["norm", "output_norm"];

/** Records one layer: hidden states in, hidden states out. */
export type Layer = (pass: ForwardPass, h: Value) => Value;

/** Loads one block of layer `index`. */
export type LoadBlock = (weights: WeightLoader, index: number) => Block;

/** Parts of a decoder around its layers. */
interface FrameParts {
  /** Multiplies the embeddings. @default 1 */
  readonly embeddingScale?: number | undefined;
  /** Records values that all layers share, given the embeddings. */
  readonly begin?: ((pass: ForwardPass, h: Value) => void) | undefined;
  /** Loads each norm over the hidden size. @default loadRmsNorm */
  readonly loadNorm?: typeof loadRmsNorm | undefined;
  /** Passed to `loadNorm`. */
  readonly norm?: NormOptions | undefined;
  /** Name of the norm before the output matrix. */
  readonly finalNorm?: TensorName | undefined;
  readonly head?: HeadParts | undefined;
  /** True if tokens see later ones, for embedding only. @default false */
  readonly isBidirectional?: boolean | undefined;
  /** @default one for each layer */
  readonly kvLayers?: readonly LayerKvShape[] | undefined;
  /** @default none */
  readonly stateLayers?: readonly StateMatrix[] | undefined;
}

/** Parts of a decoder whose layers are arranged in their own way. */
interface DecoderParts extends FrameParts {
  /** Loads layer `index`. */
  readonly layer: (weights: WeightLoader, index: number) => Layer;
  /** Parts of a layer for multi-token prediction, which the files may hold. @default none */
  readonly predictor?:
    | {
      readonly attention: LoadBlock;
      readonly mlp: LoadBlock;
      readonly inputNorm: TensorName;
      readonly mlpNorm: TensorName;
    }
    | undefined;
}

/** Parts of a decoder whose layers consist of attention and an MLP. */
interface LayeredParts extends FrameParts {
  readonly attention: LoadBlock;
  readonly mlp: LoadBlock;
}

/** Names of the norms before each block. */
interface PreNormNames {
  readonly inputNorm?: TensorName | undefined;
  readonly mlpNorm?: TensorName | undefined;
}

/**
 * Loads a decoder whose blocks read the normalised stream and add to it (GPT-2, Llama and most
 * since).
 */
export function preNormDecoder(
  source: ModelSource,
  c: DecoderConfig,
  parts: LayeredParts & PreNormNames,
): CausalLm {
  const { inputNorm = INPUT_NORM, mlpNorm = MLP_NORM } = parts;
  const loadNorm = normLoader(c, parts);
  const { attention, mlp } = parts;
  return loadDecoder(source, c, {
    ...parts,
    predictor: { attention, mlp, inputNorm, mlpNorm },
    layer: (weights, i) => {
      const normBeforeAttention = loadNorm(weights, inputNorm);
      const attention = parts.attention(weights, i);
      const normBeforeMlp = loadNorm(weights, mlpNorm);
      const mlp = parts.mlp(weights, i);
      return (pass, h) => {
        h = attention(pass, normBeforeAttention(pass, h), h);
        return mlp(pass, normBeforeMlp(pass, h), h);
      };
    },
  });
}

/**
 * Loads a decoder that normalises the output of each block before adding it to the stream (OLMo 2).
 */
export function postNormDecoder(
  source: ModelSource,
  c: DecoderConfig,
  parts: LayeredParts,
): CausalLm {
  const loadNorm = normLoader(c, parts);
  return loadDecoder(source, c, {
    ...parts,
    layer: (weights, i) => {
      const attention = parts.attention(weights, i);
      const normAfterAttention = loadNorm(weights, POST_ATTENTION_NORM);
      const mlp = parts.mlp(weights, i);
      const normAfterMlp = loadNorm(weights, POST_MLP_NORM);
      return (pass, h) => {
        h = normAfterAttention(pass, attention(pass, h), h);
        return normAfterMlp(pass, mlp(pass, h), h);
      };
    },
  });
}

/** Names of the norms after attention and around the MLP. */
interface SandwichNormNames {
  readonly postAttentionNorm?: TensorName | undefined;
  readonly preMlpNorm?: TensorName | undefined;
  readonly postMlpNorm?: TensorName | undefined;
}

/**
 * Loads a decoder that normalises the input and the output of each block (Gemma 2 and 3, GLM-4).
 */
export function sandwichNormDecoder(
  source: ModelSource,
  c: DecoderConfig,
  parts: LayeredParts & SandwichNormNames,
): CausalLm {
  const {
    postAttentionNorm = POST_ATTENTION_NORM,
    preMlpNorm = PRE_MLP_NORM,
    postMlpNorm = POST_MLP_NORM,
  } = parts;
  const loadNorm = normLoader(c, parts);
  return loadDecoder(source, c, {
    ...parts,
    layer: (weights, i) => {
      const normBeforeAttention = loadNorm(weights, INPUT_NORM);
      const attention = parts.attention(weights, i);
      const normAfterAttention = loadNorm(weights, postAttentionNorm);
      const normBeforeMlp = loadNorm(weights, preMlpNorm);
      const mlp = parts.mlp(weights, i);
      const normAfterMlp = loadNorm(weights, postMlpNorm);
      return (pass, h) => {
        const attended = attention(pass, normBeforeAttention(pass, h));
        h = normAfterAttention(pass, attended, h);
        const fed = mlp(pass, normBeforeMlp(pass, h));
        return normAfterMlp(pass, fed, h);
      };
    },
  });
}

/** Loads a decoder whose attention and MLP read the same normalised stream (GPT-J, Command R). */
export function parallelDecoder(
  source: ModelSource,
  c: DecoderConfig,
  parts: LayeredParts,
): CausalLm {
  const loadNorm = normLoader(c, parts);
  return loadDecoder(source, c, {
    ...parts,
    layer: (weights, i) => {
      const norm = loadNorm(weights, INPUT_NORM);
      const attention = parts.attention(weights, i);
      const mlp = parts.mlp(weights, i);
      return (pass, h) => {
        const normed = norm(pass, h);
        return mlp(pass, normed, attention(pass, normed, h));
      };
    },
  });
}

function normLoader(c: DecoderConfig, { loadNorm = loadRmsNorm, norm }: FrameParts) {
  return (weights: WeightLoader, name: TensorName): Block => loadNorm(weights, c, name, norm);
}

/**
 * Loads embedding, layers and output matrix, and joins them. Of a model divided into stages, the
 * first one has the embedding, the last one the output matrix, and each some of the layers.
 */
export function loadDecoder(source: ModelSource, c: DecoderConfig, parts: DecoderParts): CausalLm {
  const { weights } = source;
  if (parts.begin !== undefined) weights.assertOneStage("input of every layer");
  const embedding = findEmbedding(source, c, parts.head);
  const { vocabSize } = embedding;
  if (weights.isFirstStage) embedding.part();
  const [first, nOwn] = weights.ownLayers(c.nLayers, endBytes(weights));
  const layers = Array.from(
    { length: nOwn },
    (_, i) => parts.layer(weights.layer(first + i), first + i),
  );
  const kvShapes = parts.kvLayers ?? Array.from({ length: c.nLayers }, () => kvShape(c));
  const kvLayers = kvShapes.map((layer) => ({
    ...layer,
    nKvHeads: divideKvHeads(layer.nKvHeads, weights.rank)[1],
  }));
  const embed = ({ recorder }: ForwardPass) => {
    const [table, own] = embedding.part();
    return joinColumns(recorder, recorder.embed(table, parts.embeddingScale), own, c.hiddenSize);
  };
  /** Returns the inputs of the layers, then the output of the last one. */
  const states = (pass: ForwardPass): Value[] => {
    let h = weights.isFirstStage ? embed(pass) : pass.recorder.receive(c.hiddenSize);
    parts.begin?.(pass, h);
    return [h, ...layers.map((layer) => h = layer(pass, h))];
  };
  const frame = {
    vocabSize,
    hiddenSize: c.hiddenSize,
    isBidirectional: parts.isBidirectional,
    contextLength: c.contextLength,
    kvLayers,
    stateLayers: parts.stateLayers ?? [],
  };
  if (!weights.isLastStage) {
    const forward: CausalLm["hidden"] = (recorder, ...caches) => {
      const h = states(new ForwardPass(recorder, ...caches, weights)).at(-1)!;
      recorder.send(h);
      return h;
    };
    return { ...frame, hasHead: false, forward, hidden: forward };
  }

  const loadNorm = normLoader(c, parts);
  const finalNorm = loadNorm(weights, parts.finalNorm ?? FINAL_NORM);
  const head = loadHead(source, c, embedding, parts.head);
  const classifier = loadScore(weights, c.hiddenSize);
  const draftHead = source.draftHead !== undefined
    ? loadEagleHead(source, source.draftHead, {
      config: c,
      vocabSize,
      kvLayers,
      embed,
      logits: head.logits,
    })
    : parts.predictor &&
      loadDraftHead(source, c, { ...parts.predictor, kvLayers, embed, loadNorm, finalNorm });
  const hidden = (pass: ForwardPass, head?: DraftHead): Value => {
    const inputs = states(pass);
    const h = inputs.at(-1)!;
    head?.keep(pass, head.captures?.map((layer) => inputs[layer]!) ?? [finalNorm(pass, h)]);
    return finalNorm(pass, pass.recorder.gatherOutputs(h));
  };

  return {
    ...frame,
    hasHead: head.isPresent && !parts.isBidirectional && classifier === undefined,
    classifier,
    projection: parts.isBidirectional ? loadProjection(weights) : undefined,
    kvLayers: [...kvLayers, ...draftHead?.kvLayers ?? []],
    forward(recorder, kv, states) {
      const pass = new ForwardPass(recorder, kv, states, weights);
      return head.logits(pass, hidden(pass, draftHead));
    },
    hidden: (recorder, kv, states) => hidden(new ForwardPass(recorder, kv, states, weights)),
    draft: draftHead && ((recorder, kv) => {
      const pass = new ForwardPass(recorder, kv, [], weights);
      const logits = draftHead.logits ?? head.logits;
      return logits(pass, recorder.gatherOutputs(draftHead.draft(pass)));
    }),
    draftTokens: draftHead?.tokens,
  };
}

/**
 * Layout of rotated pairs in models that GGUF stores under Llama's rules: llama.cpp's converter
 * reorders the rows of q and k so that the two elements of a pair are neighbours.
 */
export function llamaRopeLayout(config: ConfigReader): RopeLayout {
  return config.isGguf ? "interleaved" : "half";
}

/** Returns the rotation of a model's layers. */
export function loadRope(
  source: ModelSource,
  c: DecoderConfig,
  request: RopeLayers & { readonly layout: RopeLayout; readonly hasDivisors?: boolean },
): Rope {
  const { config, weights, sessionLength } = source;
  return readRope(config, {
    ...request,
    headDim: c.headDim,
    contextLength: c.contextLength,
    sessionLength: Math.min(sessionLength ?? c.contextLength, c.contextLength),
    divisors: request.hasDivisors === false ? {} : {
      always: weights.optionalNumbers([undefined, "rope_freqs"]),
      short: weights.optionalNumbers([undefined, "rope_factors_short"]),
      long: weights.optionalNumbers([undefined, "rope_factors_long"]),
    },
  });
}
