import { ForgeError } from "../../errors.ts";
import { show } from "../../formats/quote.ts";
import type { Completion } from "./completion.ts";
import {
  BOOLEAN,
  checkArgument,
  checkOptions,
  type OptionChecks,
  SIGNAL,
} from "../../formats/arguments.ts";
import { GENERATE_OPTIONS, type GenerateOptions } from "../request/options.ts";
import type { Prompt } from "../request/prompt.ts";

/** Names a request in its result. */
export type BatchId = string | number;

/** One request of a batch: a prompt and the options of its answers. */
export interface BatchRequest extends GenerateOptions {
  /** Identifies the result. */
  readonly id?: BatchId | undefined;
  /** Prompt to answer. */
  readonly prompt: Prompt;
  /** Number of completions of the prompt. @default 1 */
  readonly n?: number | undefined;
}

/** Request that could not be parsed; it becomes a failed result at its index. */
export interface BadRequest {
  /** Identifies the result. */
  readonly id?: BatchId | undefined;
  /** Reason of the failure. */
  readonly error: ForgeError;
}

/** Result of one request: its completions, or an error that concerns it alone. */
export type BatchResult =
  & {
    readonly id: BatchId | undefined;
    /** Index of the request in the input, from 0. */
    readonly index: number;
  }
  & (
    | {
      /** The first of the completions. */
      readonly completion: Completion;
      readonly completions: readonly Completion[];
      readonly error: undefined;
    }
    | {
      readonly completion: undefined;
      readonly completions: undefined;
      readonly error: ForgeError;
    }
  );

/** Answers one request with the number of completions it asks for. */
type Complete = (
  request: BatchRequest,
  signal: AbortSignal,
) => Promise<readonly Completion[]>;

/** Options of a batch. */
export interface BatchOptions {
  /** Yield results in the order of the requests, not as they finish. @default false */
  readonly ordered?: boolean | undefined;
  /** Ends the batch and drops requests in progress. */
  readonly signal?: AbortSignal | undefined;
}

const BATCH_OPTIONS: OptionChecks<BatchOptions> = { ordered: BOOLEAN, signal: SIGNAL };

const REQUESTS = {
  accepts: (value: unknown) =>
    typeof value === "object" && value !== null &&
    (Symbol.iterator in value || Symbol.asyncIterator in value),
  valid: "an array or another iterable of requests",
};

const REQUEST_OPTIONS: OptionChecks<BatchRequest> = {
  ...GENERATE_OPTIONS,
  id: undefined,
  prompt: undefined,
  n: undefined,
};

/** Requests in a list, or as they arrive. */
export type BatchInput =
  | Iterable<BatchRequest | BadRequest>
  | AsyncIterable<BatchRequest | BadRequest>;

/**
 * Answers requests as they arrive. At most `window` of them are in progress or waiting to be taken,
 * so that memory does not grow with the input.
 *
 * @param complete answers one request
 * @throws {ForgeError} `cancelled` if the signal is raised; `device` if the device fails, after
 * which no request can be answered. Errors of the input are thrown, too.
 */
export async function* runBatch(
  input: BatchInput,
  options: BatchOptions,
  window: number,
  complete: Complete,
): AsyncGenerator<BatchResult, void, undefined> {
  checkOptions("batch", options, BATCH_OPTIONS);
  checkArgument("requests", input, REQUESTS);
  const { ordered = false, signal } = options;
  const work = new Work(input, window, complete);
  const stop = () => work.stop(new ForgeError("cancelled", "the batch was stopped on request"));
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop);
  try {
    work.start();
    for (let next = 0;; next++) {
      const result = await work.take(ordered ? next : undefined);
      if (result === undefined) return;
      yield result;
    }
  } finally {
    signal?.removeEventListener("abort", stop);
    await work.end();
  }
}

/** Requests in progress and results waiting to be taken. */
class Work {
  readonly #source: Iterator<BatchRequest | BadRequest> | AsyncIterator<BatchRequest | BadRequest>;
  readonly #window: number;
  readonly #complete: Complete;
  readonly #controller = new AbortController();
  readonly #inProgress = new Set<Promise<void>>();
  /** Results by index, in the order in which they finished. */
  readonly #finished = new Map<number, BatchResult>();
  #failure: { readonly error: unknown } | undefined;
  #inputEnded = false;
  #changed = Promise.withResolvers<void>();

  constructor(
    input: BatchInput,
    window: number,
    complete: Complete,
  ) {
    this.#source = Symbol.asyncIterator in input
      ? input[Symbol.asyncIterator]()
      : input[Symbol.iterator]();
    this.#window = window;
    this.#complete = complete;
  }

  /** Reads the input while the window has room. */
  async start(): Promise<void> {
    try {
      for (let index = 0; this.#failure === undefined; index++) {
        while (this.#isFull) await this.#changed.promise;
        const { done, value } = await this.#source.next();
        if (done || this.#failure !== undefined) break;
        this.#begin(index, value);
      }
    } catch (error) {
      this.stop(error);
    }
    this.#inputEnded = true;
    this.#notify();
  }

  get #isFull(): boolean {
    return this.#inProgress.size + this.#finished.size >= this.#window;
  }

  /** Returns the result at an index, or any finished one; `undefined` after the last one. */
  async take(index: number | undefined): Promise<BatchResult | undefined> {
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure.error;
      const [key = -1] = index === undefined ? this.#finished.keys() : [index];
      const result = this.#finished.get(key);
      if (result !== undefined) {
        this.#finished.delete(key);
        this.#notify();
        return result;
      }
      if (this.#inputEnded && this.#inProgress.size === 0) return undefined;
      await this.#changed.promise;
    }
  }

  /** Makes {@linkcode take} fail, and cancels requests in progress. */
  stop(error: unknown): void {
    this.#failure ??= { error };
    this.#controller.abort();
    this.#notify();
  }

  /** Stops everything and waits for requests in progress. */
  async end(): Promise<void> {
    this.stop(new ForgeError("cancelled", "the batch has ended"));
    // Not awaited: a pending read of the input, such as of a terminal, may never return.
    if (!this.#inputEnded) this.#closeInput().catch(() => {});
    await Promise.all(this.#inProgress);
  }

  async #closeInput(): Promise<void> {
    await this.#source.return?.();
  }

  #begin(index: number, request: BatchRequest | BadRequest): void {
    const answering = this.#answer(index, request).then((result) => {
      this.#finished.set(index, result);
    }, (error) => this.stop(error)).finally(() => {
      this.#inProgress.delete(answering);
      this.#notify();
    });
    this.#inProgress.add(answering);
  }

  async #answer(index: number, request: BatchRequest | BadRequest): Promise<BatchResult> {
    if (typeof request !== "object" || request === null) {
      const valid = "valid is an object with a prompt";
      const what = `request ${index} of the batch is ${show(request)}`;
      return failed(undefined, index, new ForgeError("usage", `${what}; ${valid}`));
    }
    const { id } = request;
    if ("error" in request) return failed(id, index, request.error);
    const { signal } = this.#controller;
    try {
      checkOptions("a request of a batch", request, REQUEST_OPTIONS);
      const completions = await this.#complete(
        request,
        request.signal === undefined ? signal : AbortSignal.any([signal, request.signal]),
      );
      return { id, index, completion: completions[0]!, completions, error: undefined };
    } catch (error) {
      if (!(error instanceof ForgeError) || error.code === "device") throw error;
      return failed(id, index, error);
    }
  }

  #notify(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}

function failed(id: BatchId | undefined, index: number, error: ForgeError): BatchResult {
  return { id, index, completion: undefined, completions: undefined, error };
}
