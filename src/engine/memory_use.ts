/** What a loaded model takes in memory, in bytes; with its draft model, if it has one. */
export interface MemoryUse {
  /** Weights, mapped or packed. */
  readonly weights: number;
  /** The whole KV cache; taken from the system as it fills. */
  readonly kvCache: number;
  /** Recurrent states, 0 in a model without any; taken from the system as they are first written. */
  readonly states: number;
  /** What the steps need in between. */
  readonly activations: number;
}
