import { HttpError } from "./http/http_error.ts";

/** How many answers are under way, and how many may be. */
export class Admission {
  readonly #most: number;
  #taken = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Answers that are computed or wait for their turn. */
  get taken(): number {
    return this.#taken;
  }

  /**
   * Lets answers begin.
   *
   * @returns to be called when they have ended; once is enough
   * @throws {HttpError} 503 when there are too many
   */
  enter(answers: number): () => void {
    if (this.#taken > 0 && this.#taken + answers > this.#most) {
      throw new HttpError(
        503,
        `${this.#taken} answers are under way and ${answers} more are asked for; the server takes ` +
          `${this.#most} at a time, try again later`,
        { code: "queue_full", headers: { "retry-after": "1" } },
      );
    }
    this.#taken += answers;
    let left = answers;
    return () => {
      this.#taken -= left;
      left = 0;
    };
  }
}
