import type { Constraint, ConstraintState } from "../engine/request/constraint.ts";
import { ForgeError } from "../errors.ts";
import { Masks } from "./masks.ts";
import { Places } from "./places.ts";
import { GrammarReader, type Reading } from "./reading.ts";
import type { Translation } from "./translate.ts";
import type { TokenBytes, TokenTree } from "./vocabulary.ts";

/** What the constraints of one model have cost so far. */
export interface ConstraintCost {
  /** Constraints compiled. */
  compiled: number;
  /** The milliseconds that took; the first reads the vocabulary. */
  compileMs: number;
  /** Masks computed. */
  masks: number;
  /** The milliseconds that took. */
  maskMs: number;
}

/** What constraints know of a model's tokens. */
export interface ConstraintTokens {
  /** Of the model, which may be padded beyond the tokenizer's; padding is never allowed. */
  readonly vocabSize: number;
  /** What tokens add to the text. Those without bytes, as those that end it, are no part of any. */
  readonly text: TokenBytes;
  readonly trees: readonly TokenTree[];
  /** Tokens that are allowed where the text may end. */
  readonly ends: readonly number[];
}

/** A grammar, and what has been found out about its masks, which all states share. */
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

  /** Goes on by some bytes; `undefined` where they are not allowed. */
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

/** How far one sequence has come. */
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
    // Where the text may end, something may still follow: a number can have another digit.
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
