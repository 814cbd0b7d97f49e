/** What a family of models is to the rest of forge. */
import type { Backend, KvCache, Recorder, StateCache, Value } from "../backend.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import { ConfigReader } from "./config/config_reader.ts";
import type { Rope } from "./parts/rope.ts";
import { WeightLoader } from "./weights/weight_loader.ts";

/** The shape of one layer's KV cache. */
export interface LayerKvShape {
  readonly nKvHeads: number;
  readonly kHeadDim: number;
  readonly vHeadDim: number;
  /** Whether values are the first `vHeadDim` elements of the keys. @default false */
  readonly valuesInKeys?: boolean;
}

/** The matrix of floats that one operation keeps of a sequence, whatever its length. */
export interface StateMatrix {
  readonly rows: number;
  readonly cols: number;
}

/** A loaded model: the weights are on the device, and `forward` records what is done with them. */
export interface CausalLm {
  readonly vocabSize: number;
  /** Columns of its hidden states. */
  readonly hiddenSize: number;
  /**
   * Whether the files have an output matrix, or say that the embedding is it; without, logits mean
   * nothing.
   */
  readonly hasHead: boolean;
  /** The longest sequence the model was made for. */
  readonly contextLength: number;
  /** The KV caches of its layers of attention. */
  readonly kvLayers: readonly LayerKvShape[];
  /**
   * The state caches of its recurrent layers, of which a layer may have several; empty without any.
   * A state cannot take back what it has seen: no tokens are guessed for a model that has one.
   */
  readonly stateLayers: readonly StateMatrix[];
  /** Records the forward pass and returns the logits, `[outputs, vocabSize]`. */
  forward(recorder: Recorder, kv: readonly KvCache[], states: readonly StateCache[]): Value;
  /**
   * The same up to the norm before the output matrix: the hidden states, `[outputs, hiddenSize]`.
   */
  hidden(recorder: Recorder, kv: readonly KvCache[], states: readonly StateCache[]): Value;
}

/** What a family loads a model from. */
export class ModelSource {
  readonly config: ConfigReader;
  readonly weights: WeightLoader;
  /** The longest sequence asked for; the model's own limit where that is lower, or without it. */
  readonly sessionLength: number | undefined;

  constructor(backend: Backend, checkpoint: Checkpoint, sessionLength?: number) {
    this.config = new ConfigReader(checkpoint);
    this.weights = WeightLoader.for(backend, checkpoint);
    this.sessionLength = sessionLength;
  }
}

/** A family of models. */
export interface Family {
  /** Values of `model_type` in config.json. */
  readonly huggingFace: readonly string[];
  /** Values of `general.architecture` in GGUF. */
  readonly gguf: readonly string[];
  load(source: ModelSource): CausalLm;
}

/** One recording of a model's forward pass. */
export class ForwardPass {
  readonly recorder: Recorder;
  readonly kv: readonly KvCache[];
  readonly states: readonly StateCache[];
  /** Values that layers leave for later ones, by what their family calls them. */
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

  /** The cosines and sines of a rotation, recorded at the first use. */
  ropeTable(rope: Rope): Value {
    let table = this.#tables.get(rope);
    if (table === undefined) {
      table = this.recorder.ropeTable(this.#weights.uploadVector(rope.invFreq), rope.scale);
      this.#tables.set(rope, table);
    }
    return table;
  }
}
