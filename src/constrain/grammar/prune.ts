import { ForgeError } from "../../errors.ts";
import { type Expression, type Grammar, rulesOf, rulesWhere } from "./grammar.ts";

/** A grammar without useless rules. */
export interface PrunedGrammar {
  readonly root: Expression;
  readonly rules: ReadonlyMap<number, Expression>;
}

/**
 * Removes alternatives that never end and rules that cannot be reached.
 *
 * @throws {ForgeError} `usage` if no text is left
 */
export function prune(grammar: Grammar, root: Expression): PrunedGrammar {
  const finite = rulesWhere(grammar, () => true);
  const kept = withoutEndless(root, finite);
  if (kept === undefined) {
    throw new ForgeError(
      "usage",
      "the constraint allows no text at all: its parts contradict each other",
    );
  }
  const rules = new Map<number, Expression>();
  const waiting = [kept];
  for (const expression of waiting) {
    for (const rule of rulesOf(expression)) {
      if (rules.has(rule)) continue;
      const body = withoutEndless(grammar.bodies[rule]!, finite)!;
      rules.set(rule, body);
      waiting.push(body);
    }
  }
  return { root: kept, rules };
}

/** True if some text of an expression uses only the rules in `known`. */
function isFinite(expression: Expression, known: ReadonlySet<number>): boolean {
  switch (expression.kind) {
    case "text":
    case "automaton":
      return true;
    case "rule":
      return known.has(expression.rule);
    case "sequence":
      return expression.items.every((item) => isFinite(item, known));
    case "choice":
      return expression.options.some((option) => isFinite(option, known));
  }
}

/** Returns an expression without choices that never end, or `undefined` if nothing is left. */
function withoutEndless(
  expression: Expression,
  finite: ReadonlySet<number>,
): Expression | undefined {
  if (!isFinite(expression, finite)) return undefined;
  switch (expression.kind) {
    case "sequence":
      return {
        kind: "sequence",
        items: expression.items.map((item) => withoutEndless(item, finite)!),
      };
    case "choice":
      return {
        kind: "choice",
        options: expression.options.flatMap((option) => withoutEndless(option, finite) ?? []),
      };
    default:
      return expression;
  }
}
