import type { Completion } from "../../mod.ts";
import { formatClock, formatDuration, plural } from "../output/format.ts";
import type { Progress } from "../output/progress.ts";

/** Counts the results of a batch, for its progress line and its final report. */
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
   * @param total approximate number of lines, if known
   * @param errors number of errors that an earlier run left
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

  /** Number of requests that were answered or failed. */
  get done(): number {
    return this.#answered + this.#errors;
  }

  /**
   * Counts a result.
   *
   * @param completions `undefined` if the request failed
   * @param skipped number of lines that an earlier run had done
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
    // An estimate, because the total includes blank lines.
    const left = Math.max(0, this.#total - done) * seconds / this.#results;
    this.#progress.update(
      "",
      Math.min(done, this.#total),
      this.#total,
      `${speed}, ${formatClock(left)} left`,
    );
  }

  /** Returns a one-line report. */
  describe(skipped: number): string {
    const milliseconds = performance.now() - this.#start;
    const rate = Math.round(this.#tokens / milliseconds * 1000);
    return [
      `${plural(this.#answered, "request")} answered`,
      ...(skipped > 0 ? [`${skipped} done earlier`] : []),
      ...(this.#errors > 0 ? [`${this.#errors} failed`] : []),
      `${plural(this.#promptTokens, "prompt token")}`,
      `${plural(this.#tokens, "token")} in ${formatDuration(milliseconds)} (${rate} per second)`,
    ].join(", ") + "\n";
  }
}
