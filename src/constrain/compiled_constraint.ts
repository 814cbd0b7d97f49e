import type { Constraint, ConstraintState } from "../engine/constraint.ts";
import { ForgeError } from "../errors.ts";
import type { EngineGrammar, EngineVocabulary, NativeMatcher } from "./grammar_engine.ts";

/** What the constraints of one model have cost so far. */
export interface ConstraintCost {
  /** Constraints compiled, and the milliseconds that took; the first starts the engine. */
  compiled: number;
  compileMs: number;
  /** Masks computed, and the milliseconds that took. */
  masks: number;
  maskMs: number;
}

/** A constraint in the engine's memory, which it leaves when it is dropped and no state uses it. */
export class CompiledConstraint implements Constraint {
  readonly #vocabulary: EngineVocabulary;
  readonly #ebnf: string;
  readonly endTokens: ReadonlySet<number>;
  readonly cost: ConstraintCost;
  #grammar: EngineGrammar | undefined;
  #users = 0;
  #isDropped = false;

  constructor(
    vocabulary: EngineVocabulary,
    ebnf: string,
    endTokens: readonly number[],
    cost: ConstraintCost,
  ) {
    this.#vocabulary = vocabulary;
    this.#ebnf = ebnf;
    this.endTokens = new Set(endTokens);
    this.cost = cost;
    this.#grammar = vocabulary.compile(ebnf);
  }

  /** Whether the engine still works. */
  get isUsable(): boolean {
    return this.#vocabulary.isUsable;
  }

  start(): ConstraintState {
    // One that was dropped while it waited for its turn is compiled again.
    this.#grammar ??= this.#vocabulary.compile(this.#ebnf);
    this.#users++;
    return new MatcherState(this, this.#grammar);
  }

  /** To be called by a state that is of no use any more. */
  leave(): void {
    this.#users--;
    this.#freeUnused();
  }

  /** Frees it as soon as no state uses it. */
  drop(): void {
    this.#isDropped = true;
    this.#freeUnused();
  }

  #freeUnused(): void {
    if (!this.#isDropped || this.#users > 0) return;
    this.#grammar?.dispose();
    this.#grammar = undefined;
  }
}

/** How far one sequence has come. */
class MatcherState implements ConstraintState {
  readonly #constraint: CompiledConstraint;
  readonly #grammar: EngineGrammar;
  readonly #matcher: NativeMatcher;
  /** The tokens accepted so far, which a fork repeats. */
  readonly #tokens: number[] = [];
  /** The mask of this place, once it is known. */
  readonly #mask: Uint32Array;
  #hasMask = false;
  #isDisposed = false;

  constructor(constraint: CompiledConstraint, grammar: EngineGrammar) {
    this.#constraint = constraint;
    this.#grammar = grammar;
    this.#matcher = grammar.match();
    this.#mask = new Uint32Array(Math.ceil(grammar.vocabSize / 32));
  }

  fillMask(mask: Uint32Array): boolean {
    this.#computeMask();
    mask.set(this.#mask);
    return true;
  }

  accept(token: number): void {
    this.#requireLive();
    const isEnd = this.#constraint.endTokens.has(token);
    if (isEnd || !this.#grammar.accept(this.#matcher, token)) {
      throw new ForgeError("bad_input", `token ${token} is not allowed by the constraint here`);
    }
    this.#tokens.push(token);
    this.#hasMask = false;
  }

  get isTerminated(): boolean {
    this.#requireLive();
    // Where the text may end, something may still follow: a number can have another digit.
    if (!this.#grammar.mayEnd(this.#matcher)) return false;
    this.#computeMask();
    const { endTokens } = this.#constraint;
    return this.#mask.every((word, i) => {
      for (let rest = word; rest !== 0; rest &= rest - 1) {
        if (!endTokens.has(32 * i + 31 - Math.clz32(rest & -rest))) return false;
      }
      return true;
    });
  }

  fork(): ConstraintState {
    this.#requireLive();
    const copy = this.#constraint.start();
    for (const token of this.#tokens) copy.accept(token);
    return copy;
  }

  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.#matcher.delete();
    this.#constraint.leave();
  }

  #computeMask(): void {
    this.#requireLive();
    if (this.#hasMask) return;
    const since = performance.now();
    this.#grammar.fill(this.#matcher, this.#mask);
    const { cost } = this.#constraint;
    cost.masks++;
    cost.maskMs += performance.now() - since;
    this.#hasMask = true;
    if (this.#mask.some((word) => word !== 0) || this.#grammar.mayEnd(this.#matcher)) return;
    throw new ForgeError(
      "bad_input",
      "the constraint cannot be met: the model's vocabulary has no token that could come next",
    );
  }

  #requireLive(): void {
    if (this.#isDisposed) throw new ForgeError("device", "the state of a constraint was freed");
  }
}
