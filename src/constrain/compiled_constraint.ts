import type { Constraint, ConstraintState } from "../engine/request/constraint.ts";
import { ForgeError } from "../errors.ts";
import { Masks } from "./masks/masks.ts";
import { Places } from "./masks/places.ts";
import { GrammarReader, type Reading } from "./masks/reading.ts";
import type { Translation } from "./grammar/translate.ts";
import type { TokenBytes, TokenTree } from "./masks/vocabulary.ts";

/** Accumulated cost of the constraints of one model. */
export interface ConstraintCost {
  /** Number of compiled constraints. */
  compiled: number;
  /** Milliseconds spent compiling, including reading the vocabulary once. */
  compileMs: number;
  /** Number of computed masks. */
  masks: number;
  /** Milliseconds spent on masks. */
  maskMs: number;
}

/** A model's tokens as constraints use them. */
export interface ConstraintTokens {
  /**
   * Of the model, which may be padded beyond the tokenizer's vocabulary; padding is never
   * allowed.
   */
  readonly vocabSize: number;
  /** Bytes that tokens add to the text; empty for control tokens and end tokens. */
  readonly text: TokenBytes;
  readonly trees: readonly TokenTree[];
  /** Tokens allowed where the text may end. */
  readonly ends: readonly number[];
}

/** A compiled grammar with its masks, shared by all states. */
export class CompiledConstraint implements Constraint {
  readonly tokens: ConstraintTokens;
  readonly masks: Masks;
  readonly cost: ConstraintCost;
  readonly #reader: GrammarReader;

  constructor(
    { root, rules, nullable }: Translation,
    tokens: ConstraintTokens,
    cost: ConstraintCost,
  ) {
    this.tokens = tokens;
    this.cost = cost;
    this.#reader = new GrammarReader(new Places(rules, nullable).begin(root));
    this.masks = new Masks(this.#reader, tokens.trees, tokens.vocabSize, tokens.ends);
  }

  /** Advances by some bytes; returns `undefined` if they are not allowed. */
  read(from: Reading, bytes: Uint8Array): Reading | undefined {
    this.#reader.beginWork();
    let reading: Reading | undefined = from;
    for (let i = 0; reading !== undefined && i < bytes.length; i++) {
      reading = reading.step(bytes[i]!);
    }
    return reading;
  }

  start(): ConstraintState {
    return new ReadingState(this, this.#reader.start);
  }
}

/** The position of one sequence in the constraint's grammar. */
class ReadingState implements ConstraintState {
  readonly #constraint: CompiledConstraint;
  #reading: Reading;
  #isDisposed = false;

  constructor(constraint: CompiledConstraint, reading: Reading) {
    this.#constraint = constraint;
    this.#reading = reading;
  }

  fillMask(mask: Uint32Array): boolean {
    this.#requireLive();
    const { cost, masks } = this.#constraint;
    this.#timed(() => masks.fill(this.#reading, mask));
    cost.masks++;
    if (this.#reading.isEnd || mask.some((word) => word !== 0)) return true;
    throw new ForgeError(
      "bad_input",
      "the constraint cannot be met: the model's vocabulary has no token that could come next",
    );
  }

  accept(token: number): void {
    this.#requireLive();
    const { bytes, starts } = this.#constraint.tokens.text;
    const start = starts[token] ?? 0, end = starts[token + 1] ?? 0;
    const reading = start >= end
      ? undefined
      : this.#constraint.read(this.#reading, bytes.subarray(start, end));
    if (reading === undefined) {
      throw new ForgeError("bad_input", `token ${token} is not allowed by the constraint here`);
    }
    this.#reading = reading;
  }

  get isTerminated(): boolean {
    this.#requireLive();
    const reading = this.#reading;
    // More may follow where the text may end: a number can have another digit.
    if (!reading.isEnd) return false;
    if (reading.items.length === 0) return true;
    return !this.#timed(() => this.#constraint.masks.allowsMore(reading));
  }

  fork(): ConstraintState {
    this.#requireLive();
    return new ReadingState(this.#constraint, this.#reading);
  }

  dispose(): void {
    this.#isDisposed = true;
  }

  #timed<T>(work: () => T): T {
    const since = performance.now();
    const result = work();
    this.#constraint.cost.maskMs += performance.now() - since;
    return result;
  }

  #requireLive(): void {
    if (this.#isDisposed) throw new ForgeError("device", "the state of a constraint was freed");
  }
}
