/** Interface between families of models and the rest of forge. */
import type { Backend, KvCache, Recorder, StateCache, Value } from "../backend.ts";
import type { Adapter } from "../formats/adapter.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import { ConfigReader } from "./config/config_reader.ts";
import type { GgufRules, GgufSink } from "./gguf_rules.ts";
import type { Rope } from "./parts/rope.ts";
import { ModelAdapters } from "./weights/adapters.ts";
import type { ModelPart } from "./weights/division.ts";
import { WeightLoader } from "./weights/weight_loader.ts";

/** The shape of one layer's KV cache. */
export interface LayerKvShape {
  readonly nKvHeads: number;
  readonly kHeadDim: number;
  readonly vHeadDim: number;
  /** True if values are the first `vHeadDim` elements of the keys. @default false */
  readonly valuesInKeys?: boolean;
  /**
   * True if it keeps hidden states instead of keys and values, which are never quantised: in BF16,
   * or in F32 where all caches are. @default false
   */
  readonly keepsHidden?: boolean;
  /** Stage of a group of devices that holds it. @default 0 */
  readonly stage?: number | undefined;
}

/**
 * A matrix of floats that one operation keeps for each sequence. Its size does not depend on the
 * sequence's length.
 */
export interface StateMatrix {
  readonly rows: number;
  readonly cols: number;
  /** As in {@linkcode LayerKvShape}. */
  readonly stage?: number | undefined;
}

/** A loaded model: its weights are on the device, and `forward` records its forward pass. */
export interface CausalLm {
  readonly vocabSize: number;
  /** Columns of the hidden states. */
  readonly hiddenSize: number;
  /**
   * True if the files have an output matrix or tie it to the embedding. Without one, logits are
   * meaningless.
   */
  readonly hasHead: boolean;
  /**
   * True if tokens see later ones: a text is computed in one step, and nothing is generated.
   *
   * @default false
   */
  readonly isBidirectional?: boolean | undefined;
  /**
   * True if ids of the second text of a pair have `vocabSize` added (token types). @default false
   */
  readonly hasTokenTypes?: boolean | undefined;
  /** Layers between the pooling of an embedding model and its vectors. @default none */
  readonly projection?: readonly DenseLayer[] | undefined;
  /** The classification head of a cross-encoder. */
  readonly classifier?: Classifier | undefined;
  /** The longest sequence the model was made for. */
  readonly contextLength: number;
  /** KV caches of the attention layers. */
  readonly kvLayers: readonly LayerKvShape[];
  /** State caches of the recurrent layers; a layer may have several. */
  readonly stateLayers: readonly StateMatrix[];
  /**
   * Records the forward pass and returns the logits, `[outputs, vocabSize]`. Models without an
   * output matrix may lack it. A stage that does not end the model sends its hidden states to the
   * next one, and returns them.
   */
  forward?(recorder: Recorder, kv: readonly KvCache[], states: readonly StateCache[]): Value;
  /**
   * Records the forward pass up to the norm before the output matrix and returns the hidden states,
   * `[outputs, hiddenSize]`.
   */
  hidden(recorder: Recorder, kv: readonly KvCache[], states: readonly StateCache[]): Value;
  /**
   * Records a step of the head that drafts tokens, and returns its logits, `[outputs, vocabSize]`.
   * The step takes one token of each sequence, whose earlier tokens the model or this step has
   * computed. Models without such a head lack it.
   */
  draft?: ((recorder: Recorder, kv: readonly KvCache[]) => Value) | undefined;
  /** Token of each column of the logits of {@linkcode draft}. @default those of the model */
  readonly draftTokens?: Int32Array | undefined;
}

/** Pooling of hidden states: the last token's, the mean of all, or the first token's. */
export type Pooling = "last" | "mean" | "cls";

/** A product of a pooled vector on the host, `norm(activation(weight x + bias))`. */
export interface DenseLayer {
  readonly rows: number;
  readonly cols: number;
  /** `[rows, cols]`, read when it is used first. */
  readonly weight: () => Float32Array;
  readonly bias?: Float32Array | undefined;
  readonly activation: "identity" | "tanh" | "gelu" | "relu" | "silu";
  /** LayerNorm of the result. */
  readonly norm?: {
    readonly weight: Float32Array;
    readonly bias?: Float32Array | undefined;
    readonly eps: number;
  } | undefined;
}

/** Layers after pooling that score a text, or a pair of texts. */
export interface Classifier {
  readonly pooling: Pooling;
  readonly layers: readonly DenseLayer[];
}

/** Uses that a model is loaded for. */
export interface ModelOptions {
  /** The longest sequence to prepare for. @default the model's limit, which also caps it */
  readonly sessionLength?: number | undefined;
  /** True to load the head for multi-token prediction, if the files have one. @default false */
  readonly drafts?: boolean | undefined;
  /** Head in files of its own that drafts tokens, in place of the model's. @default none */
  readonly draftHead?: Checkpoint | undefined;
  /** Receives what is read from a folder, under the names of GGUF files. @default none */
  readonly sink?: GgufSink | undefined;
  /** Low-rank adapters to load with the weights. @default none */
  readonly adapters?: readonly Adapter[] | undefined;
  /** Part of the model that the device holds. @default all of it */
  readonly part?: ModelPart | undefined;
}

/** Input of a family's loader. */
export class ModelSource {
  readonly config: ConfigReader;
  readonly weights: WeightLoader;
  /**
   * The longest sequence to prepare for, or `undefined` for the model's own limit, which also caps
   * it.
   */
  readonly sessionLength: number | undefined;
  /** True to load the head for multi-token prediction, if the files have one. */
  readonly drafts: boolean;
  /** Head in files of its own that drafts tokens, if any. */
  readonly draftHead: Checkpoint | undefined;
  readonly adapters: ModelAdapters | undefined;

  constructor(
    backend: Backend,
    checkpoint: Checkpoint,
    { sessionLength, drafts = false, draftHead, sink, adapters = [], part }: ModelOptions = {},
  ) {
    this.config = new ConfigReader(checkpoint, undefined, sink);
    this.adapters = adapters.length === 0 ? undefined : new ModelAdapters(adapters, checkpoint);
    this.weights = WeightLoader.for(backend, checkpoint, sink, this.adapters, part);
    this.sessionLength = sessionLength;
    this.drafts = drafts;
    this.draftHead = draftHead;
  }
}

/** A family of models. */
export interface Family {
  /** Values of `model_type` in config.json. */
  readonly huggingFace: readonly string[];
  /** Values of `general.architecture` in GGUF. */
  readonly gguf: readonly string[];
  /** Rules for writing folders as GGUF files, by `model_type`. @default none can be written */
  readonly writes?: Readonly<Record<string, GgufRules>>;
  load(source: ModelSource): CausalLm;
}

/** One recording of a model's forward pass. */
export class ForwardPass {
  readonly recorder: Recorder;
  readonly kv: readonly KvCache[];
  readonly states: readonly StateCache[];
  /** Values that layers keep for later layers, by a name that the family chooses. */
  readonly kept = new Map<string, Value>();
  readonly #tables = new Map<Rope, Value>();
  readonly #weights: WeightLoader;

  constructor(
    recorder: Recorder,
    kv: readonly KvCache[],
    states: readonly StateCache[],
    weights: WeightLoader,
  ) {
    this.recorder = recorder;
    this.kv = kv;
    this.states = states;
    this.#weights = weights;
  }

  /** Returns the cosines and sines of a rotation, recorded at its first use. */
  ropeTable(rope: Rope): Value {
    let table = this.#tables.get(rope);
    if (table === undefined) {
      table = this.recorder.ropeTable(this.#weights.uploadVector(rope.invFreq), rope.scale);
      this.#tables.set(rope, table);
    }
    return table;
  }
}
