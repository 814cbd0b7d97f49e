import type {
  Backend,
  KvCache,
  KvType,
  OutputRequest,
  Step,
  StepOutput,
  Value,
} from "../backend.ts";
import { ForgeError } from "../errors.ts";
import type { CausalLm } from "../models/causal_lm.ts";
import { KvPages, PageTable } from "./kv_pages.ts";

/** Tokens a KV page holds: small enough to share prefixes finely, large enough to stream. */
export const PAGE_TOKENS = 64;

/** The most tokens one run takes; longer prompts go in chunks of this size. */
export const MAX_CHUNK = 512;

/** The most of the likeliest tokens a run can report. */
export const MAX_TOP = 20;

/** How a request that wants logits, not a token, has its token chosen. */
export const UNSAMPLED = {
  sampling: {
    repeatPenalty: 1,
    presencePenalty: 0,
    frequencyPenalty: 0,
    temperature: 0,
    topK: 0,
    topP: 1,
    minP: 0,
    seed: 0n,
  },
  forcedToken: 0,
  history: [],
  stream: 0,
  position: 0,
  nTop: 0,
} as const satisfies Omit<OutputRequest, "row">;

export interface RunnerOptions {
  /** Positions a sequence can have. */
  readonly contextLength: number;
  readonly kvType: KvType;
}

/** The largest run. */
export interface RunLimits {
  readonly maxTokens: number;
  readonly maxOutputs: number;
  /** The most of the likeliest tokens that one output can report. */
  readonly maxTop: number;
}

/** Runs a model: its recorded step, its KV caches and their pages. */
export class Runner {
  readonly contextLength: number;
  readonly vocabSize: number;
  readonly limits: RunLimits;
  /** Bytes of all KV pages together; memory is taken as they are first written. */
  readonly kvBytes: number;
  readonly scratchBytes: number;
  readonly #step: Step;
  readonly #logits: Value;
  readonly #pages: KvPages;
  /** Runs of one step must not overlap: each waits for the one before. */
  #last: Promise<unknown> = Promise.resolve();

  private constructor(
    lm: CausalLm,
    options: RunnerOptions,
    limits: RunLimits,
    step: Step,
    logits: Value,
    kv: readonly KvCache[],
    pages: KvPages,
  ) {
    this.contextLength = options.contextLength;
    this.vocabSize = lm.vocabSize;
    this.limits = limits;
    this.kvBytes = kv.reduce((sum, cache) => sum + cache.pageBytes, 0) * pages.nPages;
    this.scratchBytes = step.scratchBytes;
    this.#step = step;
    this.#logits = logits;
    this.#pages = pages;
  }

  /** Allocates the caches and records the step. */
  static async open(backend: Backend, lm: CausalLm, options: RunnerOptions): Promise<Runner> {
    const nPages = Math.ceil(options.contextLength / PAGE_TOKENS);
    const shape = { type: options.kvType, nPages, pageTokens: PAGE_TOKENS };
    const kv = lm.kvLayers.map((layer) => backend.createKv({ ...shape, ...layer }));
    const maxTokens = Math.min(MAX_CHUNK, options.contextLength);
    const limits = {
      maxTokens,
      maxOutputs: Math.min(maxTokens, maxOutputs(lm.vocabSize)),
      maxTop: Math.min(MAX_TOP, lm.vocabSize),
    };
    const recorder = backend.record({
      maxTokens,
      maxOutputs: limits.maxOutputs,
      maxSequences: 1,
      maxPages: nPages,
    });
    const logits = lm.forward(recorder, kv);
    recorder.keep(logits);
    recorder.sample(logits, limits.maxTop);
    const step = await recorder.finish();
    const pages = new KvPages(nPages, PAGE_TOKENS);
    return new Runner(lm, options, limits, step, logits, kv, pages);
  }

  /** A page table for a new sequence. */
  newSequence(): PageTable {
    return new PageTable(this.#pages);
  }

  /**
   * Computes the next tokens of a sequence, from position `start`, and what is asked about them.
   *
   * @throws {ForgeError} `bad_input` when the cache is full; `cancelled` when the signal is raised; as
   * {@linkcode Step.run} otherwise.
   */
  run(
    table: PageTable,
    tokens: ArrayLike<number>,
    start: number,
    outputs: readonly OutputRequest[],
    signal?: AbortSignal,
  ): Promise<StepOutput[]> {
    return this.#exclusively(async () => {
      if (signal?.aborted) throw new ForgeError("cancelled", "stopped on request");
      const cancel = () => this.#step.cancel();
      signal?.addEventListener("abort", cancel, { once: true });
      try {
        return await this.#run(table, tokens, start, outputs);
      } finally {
        signal?.removeEventListener("abort", cancel);
      }
    });
  }

  /** As {@linkcode run}, for the logits after the last token, `[vocabSize]`. */
  logits(table: PageTable, tokens: ArrayLike<number>, start: number): Promise<Float32Array> {
    return this.#exclusively(async () => {
      await this.#run(table, tokens, start, [{ ...UNSAMPLED, row: tokens.length - 1 }]);
      return this.#step.read(this.#logits, this.vocabSize, 0, 1);
    });
  }

  /** Pages that no sequence holds. */
  get freePages(): number {
    return this.#pages.freePages;
  }

  #run(
    table: PageTable,
    tokens: ArrayLike<number>,
    start: number,
    outputs: readonly OutputRequest[],
  ): Promise<StepOutput[]> {
    if (start + tokens.length > this.contextLength) {
      throw new ForgeError(
        "bad_input",
        `${start + tokens.length} tokens do not fit the context of ${this.contextLength}`,
      );
    }
    table.reserve(start + tokens.length);
    return this.#step.run({
      tokens,
      positions: Array.from(tokens, (_, i) => start + i),
      sequences: new Int32Array(tokens.length),
      pageTables: [table.pages],
      outputs,
    });
  }

  async #exclusively<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    await before;
    try {
      return await work();
    } finally {
      resolve();
    }
  }
}

/** How many rows of logits a run may compute: their memory is bounded to 64 MiB. */
export function maxOutputs(vocabSize: number): number {
  return Math.max(1, Math.floor(2 ** 24 / vocabSize));
}
