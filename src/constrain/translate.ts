import { parseRegex } from "./automata/parse_regex.ts";
import { matching } from "./automata/regex_automaton.ts";
import { compileEbnf } from "./ebnf.ts";
import { type Expression, Grammar, optional, sequence, text } from "./grammar.ts";
import { compileSchema } from "./json_schema/compile.ts";
import { LeftEdge } from "./left_edge.ts";
import { MOST_WORK, tooLarge } from "./limits.ts";
import { prune, type PrunedGrammar } from "./prune.ts";
import type { ConstraintSpec } from "./spec.ts";
import { writeEbnf } from "./write_ebnf.ts";

/** How the text that a constraint speaks of is read off the tokens. */
export interface Reading {
  /** Whether one space is taken off the start of the text. */
  readonly stripsLeadingSpace: boolean;
  /** Tokens of the vocabulary, which the engine's work grows with. */
  readonly vocabSize: number;
}

/**
 * A constraint in the engine's notation.
 *
 * @throws {ForgeError} `usage` or `unsupported`, naming what cannot be enforced
 */
export function translate(spec: ConstraintSpec, reading: Reading): string {
  const grammar = new Grammar();
  const inner = compile(grammar, spec);
  const edge = new LeftEdge(grammar);
  edge.refuseLeftRecursion();
  const pruned = prune(grammar, inner);
  refuseWork(pruned, reading.vocabSize);
  return writeEbnf({
    ...pruned,
    root: reading.stripsLeadingSpace ? spaced(pruned.root, edge) : pruned.root,
  });
}

function compile(grammar: Grammar, spec: ConstraintSpec): Expression {
  switch (spec.kind) {
    case "json_schema":
      return compileSchema(grammar, spec.schema);
    case "regex":
      return grammar.automaton(matching(parseRegex(spec.pattern, "the regex")));
    case "grammar":
      return compileEbnf(grammar, spec.source);
  }
}

/** The texts that are those of `root` once a leading space is taken off. */
function spaced(root: Expression, edge: LeftEdge): Expression {
  const space = text(" ");
  return sequence(edge.canBeginWith(root, " ") ? space : optional(space), root);
}

/** The bytes that texts in most languages begin their characters with; a class of all has about as many. */
const USUAL_BYTES = 128;

/** Refuses what the engine's compiler would take too long for: much of a vocabulary in many places. */
function refuseWork({ root, rules }: PrunedGrammar, vocabSize: number): void {
  const bytes = [root, ...rules.values()].reduce((sum, body) => sum + firstBytes(body), 0);
  const places = Math.ceil(bytes / USUAL_BYTES), most = Math.floor(MOST_WORK / vocabSize);
  if (places <= most) return;
  throw tooLarge(
    `it tells ${places} places apart where almost any character may come; with this vocabulary of ` +
      `${vocabSize} tokens at most ${most} are compiled; lower maxLength or a repeat count`,
  );
}

/** How many bytes an expression lists to begin with, rules not looked into. */
function firstBytes(expression: Expression): number {
  switch (expression.kind) {
    case "bytes": {
      let total = 0;
      for (let i = 0; i < expression.ranges.length; i += 2) {
        total += expression.ranges[i + 1]! - expression.ranges[i]! + 1;
      }
      return total;
    }
    case "sequence":
      return expression.items.length === 0 ? 0 : firstBytes(expression.items[0]!);
    case "choice":
      return expression.options.reduce((sum, option) => sum + firstBytes(option), 0);
    default:
      return 0;
  }
}
