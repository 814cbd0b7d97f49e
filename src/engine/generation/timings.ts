/** How long the parts of a generation took. Steps that it shares with others count in full. */
export interface Timings {
  /** Milliseconds until its first step began. */
  readonly queueMs: number;
  /** Milliseconds of the steps that computed the prompt and chose the first token. */
  readonly prefillMs: number;
  /** Milliseconds of the steps that computed the other tokens. */
  readonly decodeMs: number;
  /** Tokens of the prompt that were computed, per second. */
  readonly prefillTokensPerSecond: number;
  /** Tokens after the first per second. */
  readonly decodeTokensPerSecond: number;
  /** Tokens that were guessed and computed before they were certain. */
  readonly drafted: number;
  /** How many of those came true. */
  readonly accepted: number;
}

/** Times a generation: the steps it takes part in, not those in between. */
export class Clock {
  readonly #start = performance.now();
  #queue: number | undefined;
  #prefill = 0;
  #decode = 0;
  #hasOutput = false;
  #drafted = 0;
  #accepted = 0;

  /** The first step begins. */
  begin(): void {
    this.#queue ??= performance.now() - this.#start;
  }

  /**
   * A call of the device has ended.
   *
   * @param steps how many steps with an output it made, one after the other; none before the end of the
   * prompt
   */
  tick(milliseconds: number, steps: number): void {
    const prefill = this.#hasOutput ? 0 : milliseconds / Math.max(1, steps);
    this.#prefill += prefill;
    this.#decode += milliseconds - prefill;
    this.#hasOutput ||= steps > 0;
  }

  /** Tokens were computed that had been guessed; some of the guesses came true. */
  guessed(drafted: number, accepted: number): void {
    this.#drafted += drafted;
    this.#accepted += accepted;
  }

  /**
   * @param nPrompt tokens of the prompt that were computed
   * @param nTokens tokens that were generated
   */
  timings(nPrompt: number, nTokens: number): Timings {
    return {
      queueMs: rounded(this.#queue ?? performance.now() - this.#start),
      prefillMs: rounded(this.#prefill),
      decodeMs: rounded(this.#decode),
      prefillTokensPerSecond: this.#hasOutput ? rate(nPrompt, this.#prefill) : 0,
      decodeTokensPerSecond: rate(nTokens - 1, this.#decode),
      drafted: this.#drafted,
      accepted: this.#accepted,
    };
  }
}

function rate(count: number, milliseconds: number): number {
  return count > 0 && milliseconds > 0 ? rounded(count / milliseconds * 1000) : 0;
}

/** To three decimals: the clock knows no more. */
function rounded(value: number): number {
  return Math.round(value * 1000) / 1000;
}
