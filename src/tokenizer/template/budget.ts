import { ForgeError } from "../../errors.ts";

/** Prices of a template's operations, roughly in nanoseconds. */
export const PRICES = {
  /** Evaluating one node of the syntax tree. */
  node: 300,
  /** One iteration of a loop or one call, in addition to its nodes. */
  turn: 2000,
  /** Creating one character of text. More than its time, to bound memory as well. */
  character: 4,
  /** Reading one character of text. */
  scan: 1,
  /** Creating one value. Also bounds memory. */
  value: 400,
  /** Visiting one value, or copying it to another list. */
  visit: 50,
} as const;

const BASE_WORK = 4e8;
const WORK_PER_INPUT_CHARACTER = 2000;
const MAX_WORK = 1e10;
/** Maximum depth of evaluations; each takes a few hundred bytes to a kilobyte of the stack. */
const MAX_DEPTH = 400;

/**
 * Limits the work of a template. Templates come with the model and are not trusted: they can loop,
 * recurse and double text. Every operation is paid for before it runs, so that a hostile template
 * ends after about a second and about a hundred megabytes. The limit grows with the size of the
 * messages, as does the work of an ordinary template.
 */
export class TemplateBudget {
  readonly #limit: number;
  #spent = 0;
  #depth = 0;

  /** @param inputCharacters size of the messages and other variables */
  constructor(inputCharacters: number) {
    this.#limit = Math.min(BASE_WORK + inputCharacters * WORK_PER_INPUT_CHARACTER, MAX_WORK);
  }

  /**
   * Pays for the next operation.
   *
   * @throws {ForgeError} `bad_model` if it exceeds the limit
   */
  pay(price: number): void {
    this.#spent += price;
    // Negated, so that NaN from a template's arithmetic is rejected too.
    if (!(this.#spent <= this.#limit)) {
      throw new ForgeError(
        "bad_model",
        "the chat template exceeds the work allowed for its messages: " +
          "it loops or builds text without bound",
      );
    }
  }

  /** Pays for creating text. */
  payText(characters: number): void {
    this.pay(characters * PRICES.character);
  }

  /**
   * Pays for one evaluation and counts it as open until `leave`.
   *
   * @throws {ForgeError} `bad_model` if it exceeds the limit or too many are open
   */
  enter(): void {
    this.pay(PRICES.node);
    if (this.#depth >= MAX_DEPTH) {
      const limit = `more than ${MAX_DEPTH} levels deep`;
      throw new ForgeError("bad_model", `the chat template nests or recurses ${limit}`);
    }
    this.#depth++;
  }

  /** Ends the evaluation that the last `enter` began. */
  leave(): void {
    this.#depth--;
  }

  /** Runs one evaluation between `enter` and `leave`. */
  nested<Result>(evaluate: () => Result): Result {
    this.enter();
    try {
      return evaluate();
    } finally {
      this.leave();
    }
  }
}
