/** Durations of the parts of a generation. Steps shared with other sequences count in full. */
export interface Timings {
  /** Milliseconds until its first step began. */
  readonly queueMs: number;
  /** Milliseconds of the steps that computed the prompt and chose the first token. */
  readonly prefillMs: number;
  /** Milliseconds of the steps that computed the other tokens. */
  readonly decodeMs: number;
  /** Computed tokens of the prompt per second. */
  readonly prefillTokensPerSecond: number;
  /** Tokens after the first per second. */
  readonly decodeTokensPerSecond: number;
  /** Draft tokens computed. */
  readonly drafted: number;
  /** Draft tokens accepted. */
  readonly accepted: number;
}

/** Measures the steps that a generation takes part in, not those in between. */
export class Clock {
  readonly #start = performance.now();
  #begun: number | undefined;
  #prefill = 0;
  #decode = 0;
  #hasOutput = false;
  #drafted = 0;
  #accepted = 0;

  /** Marks the start of the first step. */
  begin(): void {
    this.#begun ??= performance.now();
  }

  /**
   * Adds a run, from the time that the generation joined it.
   *
   * @param steps number of its steps with an output; 0 before the end of the prompt
   */
  tick(began: number, ended: number, steps: number): void {
    const milliseconds = ended - Math.max(began, this.#begun ?? began);
    const prefill = this.#hasOutput ? 0 : milliseconds / Math.max(1, steps);
    this.#prefill += prefill;
    this.#decode += milliseconds - prefill;
    this.#hasOutput ||= steps > 0;
  }

  /** Counts draft tokens, and those of them that were accepted. */
  addDraft(drafted: number, accepted: number): void {
    this.#drafted += drafted;
    this.#accepted += accepted;
  }

  /**
   * Returns the timings so far. @param nPrompt number of computed tokens of the prompt
   * @param nTokens number of generated tokens
   */
  timings(nPrompt: number, nTokens: number): Timings {
    return {
      queueMs: rounded((this.#begun ?? performance.now()) - this.#start),
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
  return milliseconds > 0 ? rounded(count / milliseconds * 1000) : 0;
}

/** Rounds to three decimals, the resolution of the clock. */
function rounded(value: number): number {
  return Math.round(value * 1000) / 1000;
}
