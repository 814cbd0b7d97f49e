import type { Completion } from "../../mod.ts";
import { formatClock, formatDuration, plural } from "../output/format.ts";
import type { Progress } from "../output/progress.ts";

/** Counts what a batch has done, for its progress line and for the report at its end. */
export class BatchMeter {
  readonly #progress: Progress;
  readonly #total: number | undefined;
  readonly #start = performance.now();
  #results = 0;
  #answered = 0;
  #errors: number;
  #tokens = 0;
  #promptTokens = 0;

  /**
   * @param total about how many lines there are, where that is known
   * @param errors that an earlier run has left
   */
  constructor(progress: Progress, total: number | undefined, errors: number) {
    this.#progress = progress;
    this.#total = total;
    this.#errors = errors;
    progress.update("answering");
  }

  get errors(): number {
    return this.#errors;
  }

  /** Requests that were answered or failed. */
  get done(): number {
    return this.#answered + this.#errors;
  }

  /**
   * Counts a result.
   *
   * @param completions `undefined` when the request failed
   * @param skipped lines that an earlier run had done
   */
  count(completions: readonly Completion[] | undefined, skipped: number): void {
    this.#results++;
    if (completions === undefined) {
      this.#errors++;
    } else {
      this.#answered++;
      this.#promptTokens += completions[0]?.promptTokens ?? 0;
      for (const { completionTokens } of completions) this.#tokens += completionTokens;
    }
    const seconds = (performance.now() - this.#start) / 1000;
    const errors = this.#errors > 0 ? `, ${plural(this.#errors, "error")}` : "";
    const speed = `${Math.round(this.#tokens / seconds)} tokens/s${errors}`;
    const done = this.done + skipped;
    if (this.#total === undefined) {
      this.#progress.update(`${plural(done, "request")} done, ${speed}`);
      return;
    }
    // An estimate: lines of white space are among the total.
    const left = Math.max(0, this.#total - done) * seconds / this.#results;
    this.#progress.update(
      "",
      Math.min(done, this.#total),
      this.#total,
      `${speed}, ${formatClock(left)} left`,
    );
  }

  /** What was done, in a line. */
  describe(skipped: number): string {
    const milliseconds = performance.now() - this.#start;
    const rate = Math.round(this.#tokens / milliseconds * 1000);
    return [
      `${plural(this.#answered, "request")} answered`,
      ...(skipped > 0 ? [`${skipped} were done before`] : []),
      ...(this.#errors > 0 ? [`${this.#errors} failed`] : []),
      `${plural(this.#promptTokens, "prompt token")}`,
      `${plural(this.#tokens, "token")} in ${formatDuration(milliseconds)} (${rate} a second)`,
    ].join(", ") + "\n";
  }
}
