import type {
  Device,
  KvCache,
  KvType,
  OutputRequest,
  Recorder,
  StateCache,
  Step,
  StepInputs,
  StepLimits,
  StepResult,
  Value,
} from "../backend.ts";
import { ForgeError } from "../errors.ts";
import type { CausalLm } from "../models/causal_lm.ts";
import { HiddenStep } from "./embedding/hidden_step.ts";
import { KvPages, PageTable } from "./cache/kv_pages.ts";
import { MAX_LOGPROBS } from "./limits.ts";
import { Pool } from "./cache/pool.ts";
import type { Profile } from "./profile.ts";

/** Tokens of a KV page: small enough to share prefixes finely, large enough to stream. */
export const PAGE_TOKENS = 64;

/**
 * Most tokens of one run on a processor, of all sequences together; longer prompts are computed in
 * chunks.
 */
export const MAX_CHUNK = 512;

/**
 * Most tokens of one run on a CUDA device. Each chunk reads the weights again, and all experts of a
 * mixture. By the data sheet of an H100, reading weights in BF16 takes half as long as multiplying
 * 512 tokens with them, and a sixteenth of 4,096. Decoding sequences wait for a chunk, so more
 * would be felt.
 */
const MAX_CUDA_CHUNK = 4096;

/** Share of a CUDA device's memory that the activations of a chunk may take, about. */
const CHUNK_MEMORY_SHARE = 1 / 32;

/** Bytes of activations per token and per element of the hidden state, about, in most models. */
const ACTIVATION_BYTES = 64;

/** Output request without sampling, for tasks that only use logits or hidden states. */
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

/** Options of a runner. */
export interface RunnerOptions {
  /** Most positions of a sequence. */
  readonly contextLength: number;
  readonly kvType: KvType;
  /** Most sequences of one run. @default 1 */
  readonly maxSequences?: number | undefined;
  /** Most branches of draft trees in one run. @default 0 */
  readonly maxBranches?: number | undefined;
  /** Positions of the KV cache, for all sequences together. @default the context length */
  readonly cacheTokens?: number | undefined;
  /** Slots of recurrent state, if the model has any. @default `maxSequences` + 1 */
  readonly nSlots?: number | undefined;
  /** Number of low-rank adapters that the model was loaded with. @default 0 */
  readonly nAdapters?: number | undefined;
}

/** Limits of one run. */
export interface RunLimits {
  readonly maxTokens: number;
  readonly maxOutputs: number;
  readonly maxSequences: number;
  /** Most branches of draft trees, in addition to the sequences. */
  readonly maxBranches: number;
  /** Most alternatives that one output can report. */
  readonly maxTop: number;
}

/** Next tokens of one sequence, and the outputs to compute of them. */
export interface Chunk {
  readonly table: PageTable;
  readonly tokens: ArrayLike<number>;
  /** Position of the first token. */
  readonly start: number;
  /** Token before the first one, if the chunk is a branch: a row of an earlier chunk of the run. */
  readonly parent?: { readonly chunk: number; readonly row: number } | undefined;
  /** Outputs, whose rows count from the first token of the chunk. */
  readonly outputs: readonly OutputRequest[];
  /** Scale of each adapter. @default no adapters */
  readonly adapterScales?: Float32Array | undefined;
}

/** Options of a run. */
export interface RunOptions {
  /** Stops the run when it is raised. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Number of steps, each on the tokens that the previous one chose. Above 1, chunks have one token
   * and one output each: see {@linkcode StepInputs}. @default 1
   */
  readonly nSteps?: number | undefined;
  /** Tokens after which a run of several steps ends early. @default none */
  readonly endTokens?: ArrayLike<number> | undefined;
}

/** Parts of a runner. */
interface Parts {
  readonly limits: RunLimits;
  /** Step that samples; `undefined` in a bidirectional model. */
  readonly sampling: { readonly step: Step; readonly logits: Value } | undefined;
  readonly hidden: HiddenStep;
  /** Step of the head that drafts tokens, if the model has one. */
  readonly drafting: Step | undefined;
  /** KV cache of each layer with keys and values. */
  readonly kv: readonly KvCache[];
  readonly pages: KvPages;
  /** State cache of each operation with recurrent state. */
  readonly states: readonly StateCache[];
  readonly slots: Pool | undefined;
}

/** Runs a model: its recorded steps on its caches. */
export class Runner {
  readonly contextLength: number;
  readonly vocabSize: number;
  /** True if the model has an output matrix; without one, it can only embed texts. */
  readonly hasHead: boolean;
  /** Token of each logit of the head that drafts tokens; `undefined` if they are the model's. */
  readonly draftTokens: Int32Array | undefined;
  /** True if tokens see later ones: all tokens of a text are in one chunk. */
  readonly isBidirectional: boolean;
  readonly kvType: KvType;
  readonly limits: RunLimits;
  readonly pages: KvPages;
  /** Slots of recurrent state; `undefined` in a model without any. */
  readonly slots: Pool | undefined;
  /** Bytes of all slots. */
  readonly stateBytes: number;
  /** Bytes of all KV pages. */
  readonly kvBytes: number;
  readonly #sampling: Parts["sampling"];
  readonly #hidden: HiddenStep;
  readonly #drafting: Parts["drafting"];
  readonly #nAdapters: number;
  readonly #kv: readonly KvCache[];
  readonly #states: readonly StateCache[];
  readonly #tokens: Int32Array;
  readonly #positions: Int32Array;
  readonly #sequences: Int32Array;
  #profile: Profile | undefined;

  private constructor(lm: CausalLm, options: RunnerOptions, parts: Parts) {
    const { limits, sampling, hidden, drafting, kv, pages, states, slots } = parts;
    this.contextLength = options.contextLength;
    this.vocabSize = lm.vocabSize;
    this.hasHead = lm.hasHead;
    this.draftTokens = lm.draftTokens;
    this.isBidirectional = lm.isBidirectional ?? false;
    this.kvType = options.kvType;
    this.limits = limits;
    this.pages = pages;
    this.kvBytes = sum(kv.map(({ pageBytes }) => pageBytes)) * pages.nPages;
    this.slots = slots;
    this.stateBytes = sum(states.map(({ slotBytes }) => slotBytes)) * (slots?.size ?? 0);
    this.#sampling = sampling;
    this.#hidden = hidden;
    this.#drafting = drafting;
    this.#nAdapters = options.nAdapters ?? 0;
    this.#kv = kv;
    this.#states = states;
    this.#tokens = new Int32Array(limits.maxTokens);
    this.#positions = new Int32Array(limits.maxTokens);
    this.#sequences = new Int32Array(limits.maxTokens);
  }

  /** Allocates the caches and records the step. */
  static async open(backend: Device, lm: CausalLm, options: RunnerOptions): Promise<Runner> {
    const { contextLength, kvType, cacheTokens = contextLength } = options;
    const nPages = Math.ceil(cacheTokens / PAGE_TOKENS);
    const shape = { type: kvType, nPages, pageTokens: PAGE_TOKENS };
    const hiddenType = kvType === "F32" ? "F32" : "BF16";
    const kv = lm.kvLayers.map(({ keepsHidden, ...layer }) =>
      backend.createKv({ ...shape, ...layer, type: keepsHidden ? hiddenType : kvType })
    );
    const chunk = maxChunk(backend, lm.hiddenSize);
    const longest = lm.isBidirectional ? Math.max(chunk, contextLength) : chunk;
    const limits = runLimits(lm.vocabSize, options, longest);
    const { maxTokens, maxOutputs } = limits;
    const maxSequences = limits.maxSequences + limits.maxBranches;
    const { nSlots = limits.maxSequences + 1 } = options;
    const states = lm.stateLayers.map((layer) => backend.createState({ ...layer, nSlots }));
    const maxPages = Math.ceil(contextLength / PAGE_TOKENS);
    const { forward, draft } = lm;
    const sampled = { maxTokens, maxOutputs, maxSequences, maxPages };
    const sampling = forward === undefined || lm.isBidirectional
      ? undefined
      : await record(backend, sampled, limits.maxTop, (recorder) => forward(recorder, kv, states));
    const drafted = { ...sampled, maxTokens: maxSequences, maxOutputs: maxSequences };
    const drafting = draft &&
      (await record(
        backend,
        drafted,
        Math.min(limits.maxTop, lm.draftTokens?.length ?? lm.vocabSize),
        (recorder) => draft(recorder, kv),
      )).step;
    const hidden = new HiddenStep(lm.hiddenSize, () => {
      const recorder = backend.record({ maxTokens, maxOutputs: maxTokens, maxSequences, maxPages });
      return { recorder, value: lm.hidden(recorder, kv, states) };
    });
    const pages = new KvPages(nPages, PAGE_TOKENS);
    const slots = states.length > 0 ? new Pool(nSlots, "state slot") : undefined;
    return new Runner(lm, options, {
      limits,
      sampling,
      hidden,
      drafting,
      kv,
      pages,
      states,
      slots,
    });
  }

  /** Returns a page table for a new sequence. */
  newSequence(): PageTable {
    return new PageTable(this.pages, this.slots);
  }

  /**
   * Computes a chunk of each of several sequences in one step. Only one run may be in progress.
   *
   * @returns results of each chunk's outputs, step by step if there are several steps
   * @throws {ForgeError} `bad_input` for a chunk past the context or a full cache; `cancelled`
   * after the signal or {@linkcode cancel}; as {@linkcode Step.run} otherwise.
   */
  async run(chunks: readonly Chunk[], options: RunOptions = {}): Promise<StepResult[][]> {
    const { signal, nSteps = 1, endTokens } = options;
    const start = this.#profile === undefined ? 0 : performance.now();
    if (signal?.aborted) throw new ForgeError("cancelled", "stopped on request");
    const cancel = () => this.cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      const { step } = this.#sampled;
      const inputs = this.#pack(chunks, nSteps);
      const results = await step.run(
        nSteps === 1 ? inputs : { ...inputs, nSteps, endTokens },
      );
      this.#profile?.add(chunks, start, step.operationTimes());
      return byChunk(chunks, nSteps, results);
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** True if the model has a head that drafts tokens. */
  get hasDraftHead(): boolean {
    return this.#drafting !== undefined;
  }

  /**
   * Drafts tokens by the model's own head: `nSteps` in a row for each sequence, of which the
   * earlier tokens are computed. As {@linkcode run}, of chunks of one token with one output.
   */
  async draft(chunks: readonly Chunk[], nSteps: number): Promise<StepResult[][]> {
    const { slots: _, ...inputs } = this.#pack(chunks, nSteps);
    const results = await this.#drafting!.run(nSteps === 1 ? inputs : { ...inputs, nSteps });
    return byChunk(chunks, nSteps, results);
  }

  /** Stops the run in progress early, if any. */
  cancel(): void {
    this.#sampling?.step.cancel();
    this.#drafting?.cancel();
    this.#hidden.cancel();
  }

  /**
   * Computes a chunk of each of several sequences, as {@linkcode run}, with hidden states instead
   * of tokens. Every token may be an output.
   *
   * @returns hidden states of each chunk's outputs
   * @throws {ForgeError} as {@linkcode run}
   */
  async embed(chunks: readonly Chunk[]): Promise<Float32Array[][]> {
    const states = await this.#hidden.run(this.#pack(chunks, 1));
    let at = 0;
    return chunks.map(({ outputs }) => states.slice(at, at += outputs.length));
  }

  /** Size of a hidden state. */
  get hiddenSize(): number {
    return this.#hidden.size;
  }

  /** Bytes of the steps' activations. */
  get scratchBytes(): number {
    const steps = [this.#sampling?.step, this.#hidden, this.#drafting];
    return sum(steps.map((step) => step?.scratchBytes ?? 0));
  }

  /** Adds the times of later runs to a profile, or to none. Not allowed during a run. */
  setProfile(profile: Profile | undefined): void {
    this.#sampled.step.profile(profile !== undefined);
    this.#profile = profile;
  }

  /** Bytes of the keys and values of each token. */
  get kvBytesPerToken(): number {
    return sum(this.pageBytes) / PAGE_TOKENS;
  }

  /** Returns the nanoseconds that the last successful run took in the native library. */
  nativeTime(): number {
    return this.#sampled.step.nativeTime();
  }

  /**
   * Returns the logits of one output of the last run, `[vocabSize]`; outputs count over all chunks.
   */
  readLogits(output: number): Float32Array {
    const { step, logits } = this.#sampled;
    return step.read(logits, this.vocabSize, output, 1);
  }

  get #sampled() {
    if (this.#sampling === undefined) {
      throw new ForgeError("unsupported", "the model is bidirectional: it has no logits");
    }
    return this.#sampling;
  }

  /** Copies a page onto another, in every layer. Not allowed during a run. */
  copyPage(from: number, to: number): void {
    for (const kv of this.#kv) kv.copyPage(from, to);
  }

  /** Bytes of a page in each layer. */
  get pageBytes(): number[] {
    return this.#kv.map(({ pageBytes }) => pageBytes);
  }

  /** Returns the content of a page in each layer. Not allowed during a run. */
  readPage(page: number): Uint8Array[] {
    return this.#kv.map((kv) => kv.readPage(page));
  }

  /** Writes the content that {@linkcode readPage} returned. Not allowed during a run. */
  writePage(page: number, layers: readonly Uint8Array<ArrayBuffer>[]): void {
    this.#kv.forEach((kv, i) => kv.writePage(page, layers[i]!));
  }

  /**
   * Copies the recurrent state of a slot onto another, in every layer. Not allowed during a run.
   */
  copySlot(from: number, to: number): void {
    for (const state of this.#states) state.copySlot(from, to);
  }

  /** Bytes of a slot in each state cache. */
  get slotBytes(): number[] {
    return this.#states.map(({ slotBytes }) => slotBytes);
  }

  /**
   * Returns the content of a slot in each state cache; empty without a slot. Not allowed during a
   * run.
   */
  readSlot(slot: number | undefined): Uint8Array[] {
    return slot === undefined ? [] : this.#states.map((state) => state.readSlot(slot));
  }

  /** Writes the content that {@linkcode readSlot} returned. Not allowed during a run. */
  writeSlot(slot: number, layers: readonly Uint8Array<ArrayBuffer>[]): void {
    this.#states.forEach((state, i) => state.writeSlot(slot, layers[i]!));
  }

  /** Concatenates the chunks. */
  #pack(chunks: readonly Chunk[], nSteps: number): StepInputs {
    const outputs: OutputRequest[] = [];
    let at = 0;
    for (const [sequence, chunk] of chunks.entries()) {
      const { table, tokens, start } = chunk;
      this.#makeRoom(table, start, start + tokens.length + nSteps - 1);
      this.#tokens.set(tokens, at);
      for (let i = 0; i < tokens.length; i++) this.#positions[at + i] = start + i;
      this.#sequences.fill(sequence, at, at + tokens.length);
      for (const output of chunk.outputs) {
        outputs.push(at === 0 ? output : { ...output, row: at + output.row });
      }
      at += tokens.length;
    }
    const parents = parentsOf(chunks);
    return {
      tokens: this.#tokens.subarray(0, at),
      positions: this.#positions.subarray(0, at),
      sequences: this.#sequences.subarray(0, at),
      ...(parents === undefined ? {} : { parents }),
      pageTables: chunks.map(({ table }) => table.pages),
      ...(this.slots === undefined ? {} : { slots: chunks.map(({ table }) => table.slot!) }),
      ...(this.#nAdapters === 0 ? {} : { adapterScales: this.#adapterScales(chunks) }),
      outputs,
    };
  }

  /** Returns the scale of each adapter for each chunk. */
  #adapterScales(chunks: readonly Chunk[]): Float32Array {
    const scales = new Float32Array(chunks.length * this.#nAdapters);
    for (const [i, { adapterScales = [] }] of chunks.entries()) {
      scales.set(adapterScales, i * this.#nAdapters);
    }
    return scales;
  }

  #makeRoom(table: PageTable, start: number, end: number): void {
    if (end > this.contextLength) {
      throw new ForgeError(
        "bad_input",
        `${end} tokens do not fit the context of ${this.contextLength}`,
      );
    }
    if (!table.reserve(end)) {
      if (this.slots?.free === 0 && table.slot === undefined) {
        throw new ForgeError(
          "bad_input",
          `the recurrent states of ${this.slots.size} sequences are in use; open the model for more`,
        );
      }
      const total = this.pages.nPages * PAGE_TOKENS;
      throw new ForgeError(
        "bad_input",
        `the KV cache of ${total} tokens is full; open the model with a larger context`,
      );
    }
    for (let i = Math.floor(start / PAGE_TOKENS); i * PAGE_TOKENS < end; i++) {
      const page = table.pages[i]!;
      if (this.pages.isShared(page)) {
        throw new RangeError(`KV page ${page} is shared and would be written`);
      }
    }
  }
}

/** Records a step that samples from the logits of a forward pass. */
async function record(
  backend: Device,
  limits: StepLimits,
  maxTop: number,
  forward: (recorder: Recorder) => Value,
): Promise<{ readonly step: Step; readonly logits: Value }> {
  const recorder = backend.record(limits);
  const logits = forward(recorder);
  recorder.keep(logits);
  recorder.sample(logits, maxTop);
  return { step: await recorder.finish(), logits };
}

/**
 * Returns the row before each token, -1 for the first token of a sequence; `undefined` if no chunk
 * is a branch.
 */
function parentsOf(chunks: readonly Chunk[]): number[] | undefined {
  if (chunks.every(({ parent }) => parent === undefined)) return undefined;
  const firstRows: number[] = [], parents: number[] = [];
  for (const { tokens, parent } of chunks) {
    firstRows.push(parents.length);
    parents.push(parent === undefined ? -1 : firstRows[parent.chunk]! + parent.row);
    for (let i = 1; i < tokens.length; i++) parents.push(parents.length - 1);
  }
  return parents;
}

/** Divides the results of a run among its chunks, step by step if there are several steps. */
function byChunk(
  chunks: readonly Chunk[],
  nSteps: number,
  results: readonly StepResult[],
): StepResult[][] {
  if (nSteps > 1) {
    return chunks.map((_, i) => results.filter((_, result) => result % chunks.length === i));
  }
  let at = 0;
  return chunks.map(({ outputs }) => results.slice(at, at += outputs.length));
}

/** Returns the most tokens of one run: a power of two whose activations fit a CUDA device well. */
function maxChunk(backend: Device, hiddenSize: number): number {
  if (backend.kind !== "cuda") return MAX_CHUNK;
  const fitting = CHUNK_MEMORY_SHARE * backend.memory().total / (ACTIVATION_BYTES * hiddenSize);
  const rounded = 2 ** Math.floor(Math.log2(Math.max(1, fitting)));
  return Math.min(Math.max(MAX_CHUNK, rounded), MAX_CUDA_CHUNK);
}

/** Returns the limits of runs; outputs are bounded by the memory of their logits. */
function runLimits(vocabSize: number, options: RunnerOptions, chunk: number): RunLimits {
  const { contextLength, maxSequences = 1, maxBranches = 0 } = options;
  const maxTokens = Math.min(chunk, contextLength * maxSequences);
  const outputs = Math.min(maxTokens, maxOutputs(vocabSize));
  const sequences = Math.min(maxSequences, outputs);
  return {
    maxTokens,
    maxOutputs: outputs,
    maxSequences: sequences,
    maxBranches: Math.min(maxBranches, maxTokens - sequences),
    maxTop: Math.min(MAX_LOGPROBS, vocabSize),
  };
}

/** Returns the most rows of logits of a run, which take at most 64 MiB. */
export function maxOutputs(vocabSize: number): number {
  return Math.max(1, Math.floor(2 ** 24 / vocabSize));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
