import type { OutputRequest, StepResult } from "../../backend.ts";
import type { SequenceCache } from "../cache/sequence_cache.ts";
import type { Chunk, RunLimits, Runner, RunOptions } from "../runner.ts";
import type { TokenList } from "../token_list.ts";

/** Kind of step, by what it computes for each output. A step serves tasks of one kind. */
export interface StepKind<Output> {
  /** True if an error fails only the tasks of the step; otherwise it fails all tasks. */
  readonly failsAlone: boolean;
  /** Returns the most outputs of one step. */
  maxOutputs(limits: Pick<RunLimits, "maxTokens" | "maxOutputs">): number;
  /** Computes the outputs of each chunk. */
  run(
    runner: Pick<Runner, "run" | "embed">,
    chunks: readonly Chunk[],
    options: RunOptions,
  ): Promise<Output[][]>;
}

/** Steps that sample a token for each output. */
export const SAMPLING: StepKind<StepResult> = {
  failsAlone: false,
  maxOutputs: ({ maxOutputs }) => maxOutputs,
  run: (runner, chunks, options) => runner.run(chunks, options),
};

/** Result of one computed chunk of a task. */
export interface Progress<Output> {
  /** Number of the task's tokens computed so far, without those computed ahead. */
  readonly computed: number;
  /** Results of the chunk's outputs. */
  readonly results: readonly Output[];
  /**
   * Tokens computed ahead after those: draft tokens, of a tree the accepted ones, or the choices of
   * earlier steps of the same run. Each result but the first follows one more of them.
   */
  readonly ahead: ArrayLike<number>;
  /** Number of draft tokens computed, of all branches. */
  readonly drafted: number;
  /** Pages that hold the tokens. */
  readonly pages: readonly number[];
  /** When the step began and ended, in milliseconds of `performance.now()`. */
  readonly began: number;
  readonly ended: number;
  /** Returns the logits of one result, `[vocabSize]`. */
  readLogits(result: number): Float32Array;
  /** Returns the recurrent state after the tokens, for each of the model's state caches. */
  readState(): Uint8Array[];
}

/** Work for the scheduler: tokens to compute in order, and outputs to compute of them. */
export interface Task<Output = unknown> {
  /** Tokens to compute. The task appends tokens as results arrive. */
  readonly tokens: TokenList;
  /** Steps that compute the outputs. */
  readonly kind: StepKind<Output>;
  /** True if every token has an output, not only the last one. */
  readonly scoresAll: boolean;
  /** True if all tokens are computed in one step, because they see each other. @default false */
  readonly isWhole?: boolean | undefined;
  /** True if cached keys and values may be reused, for all tokens but the last. */
  readonly mayReuse: boolean;
  /** True if nothing more has to be computed, for any reason. */
  readonly isEnded: boolean;
  /** True if nothing has to be computed for now. */
  readonly isPaused: boolean;
  /** Called by the task when `isEnded` or `isPaused` changes outside of the scheduler's calls. */
  onChange: () => void;
  /**
   * Called when the task joins.
   *
   * @param cached number of tokens found in the cache
   */
  begin(cached: number): void;
  /**
   * Returns the outputs to compute of the tokens from `start` to `end`, and of draft tokens that
   * follow.
   */
  outputs(start: number, end: number): readonly OutputRequest[];
  /** Receives results. An exception fails this task alone. */
  accept(progress: Progress<Output>): void;
  /** Fails the task with an error. */
  fail(error: unknown): void;
}

/** Task in the scheduler, with what is cached of it. */
export class Sequence {
  readonly task: Task;
  readonly cache: SequenceCache;
  /** Order of arrival. Earlier sequences are admitted first; later ones are preempted first. */
  readonly arrival: number;
  /** Tokens that the cache had when the sequence arrived, as far as known. */
  readonly cached: number;
  /** Sequence that is computing a prefix this one shares, and the number of tokens to wait for. */
  leader: Sequence | undefined = undefined;
  awaited = 0;

  constructor(task: Task, cache: SequenceCache, arrival: number, cached = 0) {
    this.task = task;
    this.cache = cache;
    this.arrival = arrival;
    this.cached = cached;
  }

  get length(): number {
    return this.task.tokens.length;
  }

  /** Number of tokens whose keys and values are cached. */
  get computed(): number {
    return this.cache.computed;
  }

  /** Number of tokens still to compute. */
  get pending(): number {
    return this.length - this.computed;
  }

  /** True if tokens can be computed now. */
  get isReady(): boolean {
    return !this.task.isEnded && !this.task.isPaused && this.pending > 0;
  }

  /** Reserves pages for all tokens. Returns false if too few are free. */
  enter(freePages: number): boolean {
    if (!this.cache.enter(freePages)) return false;
    this.leader = undefined;
    this.task.begin(this.computed);
    return true;
  }
}
