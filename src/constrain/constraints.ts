import type { Constraint } from "../engine/request/constraint.ts";
import { ForgeError } from "../errors.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import {
  CompiledConstraint,
  type ConstraintCost,
  type ConstraintTokens,
} from "./compiled_constraint.ts";
import type { ConstraintSpec } from "./spec.ts";
import { translate } from "./grammar/translate.ts";
import { tokenBytes, tokenTrees } from "./masks/vocabulary.ts";

/** Number of compiled constraints to keep although no sequence uses them. */
const MOST_KEPT = 32;

/** Compiles constraints for one model, each once. */
export class Constraints {
  readonly cost: ConstraintCost = { compiled: 0, compileMs: 0, masks: 0, maskMs: 0 };
  readonly #tokenizer: Tokenizer;
  readonly #vocabSize: number;
  readonly #endTokens: readonly number[];
  readonly #kept = new Map<string, CompiledConstraint>();
  #tokens: ConstraintTokens | undefined;
  #isDisposed = false;

  /**
   * @param vocabSize of the model, which may be padded beyond the tokenizer's; padding is never
   * allowed
   * @param endTokens tokens allowed where the text may end
   */
  constructor(tokenizer: Tokenizer, vocabSize: number, endTokens: Iterable<number>) {
    this.#tokenizer = tokenizer;
    this.#vocabSize = vocabSize;
    this.#endTokens = [...endTokens].filter((id) => id < vocabSize);
  }

  /**
   * Returns the compiled constraint of a specification, from the cache if possible.
   *
   * @param stripsLeadingSpace true if the decoder removes one space from the start of the text
   * @throws {ForgeError} `usage` or `unsupported`, naming what cannot be enforced
   */
  async compile(spec: ConstraintSpec, stripsLeadingSpace: boolean): Promise<Constraint> {
    const key = JSON.stringify([spec, stripsLeadingSpace]);
    // Yield, so that steps of running sequences proceed between compilations.
    if (!this.#kept.has(key)) await new Promise((resolve) => setTimeout(resolve, 0));
    if (this.#isDisposed) throw new ForgeError("device", "the model is closed");
    const constraint = this.#kept.get(key) ?? this.#compile(spec, stripsLeadingSpace);
    this.#kept.delete(key);
    this.#kept.set(key, constraint);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MOST_KEPT) this.#kept.delete(oldest!);
    return constraint;
  }

  /** Releases all constraints. Those in use stay alive until their sequences end. */
  dispose(): void {
    this.#isDisposed = true;
    this.#kept.clear();
    this.#tokens = undefined;
  }

  #compile(spec: ConstraintSpec, stripsLeadingSpace: boolean): CompiledConstraint {
    const since = performance.now();
    const grammar = translate(spec, stripsLeadingSpace);
    this.#tokens ??= this.#readTokens();
    const made = new CompiledConstraint(grammar, this.#tokens, this.cost);
    this.cost.compiled++;
    this.cost.compileMs += performance.now() - since;
    return made;
  }

  #readTokens(): ConstraintTokens {
    const tokenizer = this.#tokenizer;
    const ends = new Set(this.#endTokens);
    const text = tokenBytes(
      Math.min(tokenizer.vocabSize, this.#vocabSize),
      // Control tokens add no text, and end tokens are never part of it.
      (id) => tokenizer.isSpecial(id) || ends.has(id) ? NO_BYTES : tokenizer.tokenBytes(id),
    );
    const trees = tokenTrees(text);
    return { vocabSize: this.#vocabSize, text, trees, ends: this.#endTokens };
  }
}

const NO_BYTES = new Uint8Array(0);
