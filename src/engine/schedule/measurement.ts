import type { OutputRequest, StepResult } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Scheduler } from "./scheduler.ts";
import type { Progress, StepKind, Task } from "./sequence.ts";
import { type SequenceAdapters, TokenList } from "../token_list.ts";

/** Task with one result, delivered as a promise. */
export abstract class Measurement<T, Output = StepResult> implements Task<Output> {
  readonly tokens: TokenList;
  abstract readonly kind: StepKind<Output>;
  abstract readonly scoresAll: boolean;
  abstract readonly mayReuse: boolean;
  readonly isPaused = false;
  isEnded = false;
  onChange: () => void = () => {};
  readonly #result = Promise.withResolvers<T>();

  constructor(tokens: ArrayLike<number>, adapters?: SequenceAdapters) {
    this.tokens = new TokenList(tokens, adapters);
  }

  begin(): void {}

  abstract outputs(start: number, end: number): readonly OutputRequest[];

  abstract accept(progress: Progress<Output>): void;

  fail(error: unknown): void {
    this.isEnded = true;
    this.#result.reject(error);
  }

  protected finish(value: T): void {
    this.isEnded = true;
    this.#result.resolve(value);
  }

  /**
   * Runs the task.
   *
   * @throws {ForgeError} `cancelled` when the signal is raised
   */
  async run(scheduler: Pick<Scheduler, "submit">, signal?: AbortSignal): Promise<T> {
    const cancel = () => {
      this.fail(new ForgeError("cancelled", "stopped on request"));
      this.onChange();
    };
    if (signal?.aborted) cancel();
    else scheduler.submit(this);
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      return await this.#result.promise;
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }
}
