import type { Constraint } from "../engine/constraint.ts";
import { ForgeError } from "../errors.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { CompiledConstraint, type ConstraintCost } from "./compiled_constraint.ts";
import { EngineVocabulary, openGrammarEngine } from "./grammar_engine.ts";
import type { ConstraintSpec } from "./spec.ts";
import { translate } from "./translate.ts";

/** Compiled constraints that are kept although nothing uses them. */
const MOST_KEPT = 32;

/** Compiles constraints for one model, each once. */
export class Constraints {
  readonly cost: ConstraintCost = { compiled: 0, compileMs: 0, masks: 0, maskMs: 0 };
  readonly #tokenizer: Tokenizer;
  readonly #vocabSize: number;
  readonly #endTokens: readonly number[];
  readonly #kept = new Map<string, CompiledConstraint>();
  #vocabulary: EngineVocabulary | undefined;
  #isDisposed = false;

  /**
   * @param vocabSize of the model, which may be padded beyond the tokenizer's; padding is never allowed
   * @param endTokens are allowed where the text may end
   */
  constructor(tokenizer: Tokenizer, vocabSize: number, endTokens: Iterable<number>) {
    this.#tokenizer = tokenizer;
    this.#vocabSize = vocabSize;
    this.#endTokens = [...endTokens].filter((id) => id < vocabSize);
  }

  /**
   * The constraint of a specification, compiled now if it was not before.
   *
   * @param stripsLeadingSpace whether one space is taken off the start of the text
   * @throws {ForgeError} `usage` or `unsupported`, naming what cannot be enforced
   */
  async compile(spec: ConstraintSpec, stripsLeadingSpace: boolean): Promise<Constraint> {
    const key = JSON.stringify([spec, stripsLeadingSpace]);
    const known = this.#kept.get(key);
    this.#kept.delete(key);
    if (known?.isUsable) {
      this.#kept.set(key, known);
      return known;
    }
    const since = performance.now();
    const ebnf = translate(spec, { stripsLeadingSpace, vocabSize: this.#vocabSize });
    const engine = await openGrammarEngine();
    if (this.#isDisposed) throw new ForgeError("device", "the model is closed");
    if (!this.#vocabulary?.isUsable) {
      const tokens = tokenBytes(this.#tokenizer, this.#vocabSize);
      this.#vocabulary = new EngineVocabulary(engine, tokens, this.#vocabSize, this.#endTokens);
    }
    const made = new CompiledConstraint(this.#vocabulary, ebnf, this.#endTokens, this.cost);
    this.cost.compiled++;
    this.cost.compileMs += performance.now() - since;
    this.#kept.set(key, made);
    for (const [oldest, constraint] of this.#kept) {
      if (this.#kept.size <= MOST_KEPT) break;
      this.#kept.delete(oldest);
      constraint.drop();
    }
    return made;
  }

  /** Frees everything that no sequence uses; what one uses is freed with it. */
  dispose(): void {
    this.#isDisposed = true;
    for (const constraint of this.#kept.values()) constraint.drop();
    this.#kept.clear();
    this.#vocabulary?.dispose();
    this.#vocabulary = undefined;
  }
}

const NO_BYTES = new Uint8Array(0);

/** What each id adds to the text; control tokens and ids without a piece add nothing. */
function tokenBytes(tokenizer: Tokenizer, vocabSize: number): Uint8Array[] {
  const size = Math.min(tokenizer.vocabSize, vocabSize);
  return Array.from(
    { length: size },
    (_, id) => tokenizer.isSpecial(id) ? NO_BYTES : tokenizer.tokenBytes(id),
  );
}
