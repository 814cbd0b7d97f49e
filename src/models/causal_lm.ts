/** What a family of models is to the rest of forge. */
import type { Backend, KvCache, Recorder, Value } from "../backend.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import { ConfigReader } from "./config_reader.ts";
import type { Rope } from "./rope.ts";
import { WeightLoader } from "./weight_loader.ts";

/** The shape of one layer's KV cache. */
export interface LayerKvShape {
  readonly nKvHeads: number;
  readonly kHeadDim: number;
  readonly vHeadDim: number;
}

/** A loaded model: the weights are on the device, and `forward` records what is done with them. */
export interface CausalLm {
  readonly vocabSize: number;
  /** The longest sequence the model was made for. */
  readonly contextLength: number;
  readonly kvLayers: readonly LayerKvShape[];
  /**
   * Whether what was computed for a token can be computed anew for another one in its place. Keys and
   * values can; a recurrent state cannot, and no tokens are guessed for such a model.
   */
  readonly canRollBack: boolean;
  /** Records the forward pass and returns the logits, `[outputs, vocabSize]`. */
  forward(recorder: Recorder, kv: readonly KvCache[]): Value;
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
  readonly #tables = new Map<Rope, Value>();
  readonly #weights: WeightLoader;

  constructor(recorder: Recorder, kv: readonly KvCache[], weights: WeightLoader) {
    this.recorder = recorder;
    this.kv = kv;
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
