import type { Constraint, ConstraintState } from "../engine/constraint.ts";
import { ForgeError } from "../errors.ts";
import { Masks } from "./masks.ts";
import { Places } from "./places.ts";
import { GrammarReader, type Reading } from "./reading.ts";
import type { Translation } from "./translate.ts";
import type { TokenBytes, TokenTree } from "./vocabulary.ts";

/** What the constraints of one model have cost so far. */
export interface ConstraintCost {
  /** Constraints compiled, and the milliseconds that took; the first reads the vocabulary. */
  compiled: number;
  compileMs: number;
  /** Masks computed, and the milliseconds that took. */
  masks: number;
  maskMs: number;
}

/** What constraints know of a model's tokens. */
export interface ConstraintTokens {
  /** Of the model, which may be padded beyond the tokenizer's; padding is never allowed. */
  readonly vocabSize: number;
  /** Tokens without bytes are never allowed. */
  readonly text: TokenBytes;
  readonly trees: readonly TokenTree[];
  /** Tokens that are allowed where the text may end. */
  readonly ends: ReadonlySet<number>;
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
    this.masks = new Masks(this.#reader, tokens.trees, tokens.vocabSize, [...tokens.ends]);
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
  /** The mask of this place, once it is known. */
  readonly #mask: Uint32Array;
  #hasMask = false;
  #isDisposed = false;

  constructor(constraint: CompiledConstraint, reading: Reading) {
    this.#constraint = constraint;
    this.#reading = reading;
    this.#mask = new Uint32Array(Math.ceil(constraint.tokens.vocabSize / 32));
  }

  fillMask(mask: Uint32Array): boolean {
    this.#computeMask();
    mask.set(this.#mask);
    return true;
  }

  accept(token: number): void {
    this.#requireLive();
    const { text: { bytes, starts }, ends } = this.#constraint.tokens;
    const start = starts[token] ?? 0, end = starts[token + 1] ?? 0;
    const isText = start < end && !ends.has(token);
    const reading = isText
      ? this.#constraint.read(this.#reading, bytes.subarray(start, end))
      : undefined;
    if (reading === undefined) {
      throw new ForgeError("bad_input", `token ${token} is not allowed by the constraint here`);
    }
    this.#reading = reading;
    this.#hasMask = false;
  }

  get isTerminated(): boolean {
    this.#requireLive();
    // Where the text may end, something may still follow: a number can have another digit.
    if (!this.#reading.isEnd) return false;
    if (this.#reading.items.length === 0) return true;
    this.#computeMask();
    const { ends } = this.#constraint.tokens;
    return this.#mask.every((word, i) => {
      for (let rest = word; rest !== 0; rest &= rest - 1) {
        if (!ends.has(32 * i + 31 - Math.clz32(rest & -rest))) return false;
      }
      return true;
    });
  }

  fork(): ConstraintState {
    this.#requireLive();
    return new ReadingState(this.#constraint, this.#reading);
  }

  dispose(): void {
    this.#isDisposed = true;
  }

  #computeMask(): void {
    this.#requireLive();
    if (this.#hasMask) return;
    const since = performance.now();
    const { cost, masks } = this.#constraint;
    masks.fill(this.#reading, this.#mask);
    cost.masks++;
    cost.maskMs += performance.now() - since;
    this.#hasMask = true;
    if (this.#reading.isEnd || this.#mask.some((word) => word !== 0)) return;
    throw new ForgeError(
      "bad_input",
      "the constraint cannot be met: the model's vocabulary has no token that could come next",
    );
  }

  #requireLive(): void {
    if (this.#isDisposed) throw new ForgeError("device", "the state of a constraint was freed");
  }
}
