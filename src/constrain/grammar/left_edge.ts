import { ForgeError } from "../../errors.ts";
import { quoteList } from "../../formats/quote.ts";
import { ByteAutomaton } from "../automata/byte_automaton.ts";
import {
  type Expression,
  type Grammar,
  isNullable,
  isNullableLeaf,
  rulesWhere,
} from "./grammar.ts";
import { SPELLINGS } from "../automata/spelling.ts";

/** Analyses the beginnings of a grammar's texts. */
export class LeftEdge {
  readonly #grammar: Grammar;
  /** The rules that can be empty. */
  readonly nullable: ReadonlySet<number>;

  constructor(grammar: Grammar) {
    this.#grammar = grammar;
    this.nullable = rulesWhere(grammar, isNullableLeaf);
  }

  /**
   * Rejects rules that begin with themselves, because reading their beginning would never end.
   *
   * @throws {ForgeError} `unsupported`, naming the rules
   */
  rejectLeftRecursion(): void {
    const state = new Map<number, "open" | "done">();
    for (const first of this.#grammar.bodies.keys()) {
      if (state.has(first)) continue;
      // An iterative walk, because grammars may chain thousands of rules.
      const path: { readonly rule: number; readonly next: Iterator<number> }[] = [];
      const enter = (rule: number) => {
        state.set(rule, "open");
        path.push({ rule, next: this.#leftRules(this.#grammar.bodies[rule]!)[Symbol.iterator]() });
      };
      enter(first);
      for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
        const { done, value } = top.next.next();
        if (done) {
          state.set(top.rule, "done");
          path.pop();
        } else if (state.get(value) === "open") {
          this.#reject(path.slice(path.findIndex(({ rule }) => rule === value)));
        } else if (!state.has(value)) enter(value);
      }
    }
  }

  #reject(cycle: readonly { readonly rule: number }[]): never {
    const names = cycle.flatMap(({ rule }) => this.#grammar.names.get(rule) ?? []);
    const subject = names.length === 0
      ? "a repeat of a part that can be empty"
      : `the rule ${quoteList(names)}`;
    throw new ForgeError(
      "unsupported",
      `the grammar is left-recursive: ${subject} can begin with itself; repeat with * or + instead`,
    );
  }

  /** True if a text can begin with an ASCII character. */
  canBeginWith(expression: Expression, character: string): boolean {
    const seen = new Set<number>();
    const waiting = [expression];
    for (const part of waiting) {
      for (const first of this.#first(part)) {
        if (first.kind === "text" && first.text.startsWith(character)) return true;
        if (first.kind === "automaton" && begins(first, character)) return true;
        if (first.kind !== "rule" || seen.has(first.rule)) continue;
        seen.add(first.rule);
        waiting.push(this.#grammar.bodies[first.rule]!);
      }
    }
    return false;
  }

  #leftRules(expression: Expression): Set<number> {
    return new Set(
      this.#first(expression).flatMap((first) => first.kind === "rule" ? [first.rule] : []),
    );
  }

  /** Returns the parts that a text of an expression can begin with. */
  #first(expression: Expression): Expression[] {
    if (expression.kind === "choice") return expression.options.flatMap((o) => this.#first(o));
    if (expression.kind !== "sequence") return [expression];
    const end = expression.items.findIndex((item) => !isNullable(item, this.nullable));
    return expression.items.slice(0, end < 0 ? undefined : end + 1)
      .flatMap((item) => this.#first(item));
  }
}

function begins(
  { texts, spelling }: Expression & { readonly kind: "automaton" },
  character: string,
): boolean {
  const bytes = new ByteAutomaton(texts, SPELLINGS[spelling], () => 0);
  return bytes.start.step(character.charCodeAt(0)) !== undefined;
}
