import { parseRegex } from "../automata/regex.ts";
import { matching } from "../automata/regex_automaton.ts";
import { compileEbnf } from "./ebnf.ts";
import {
  automaton,
  choice,
  type Expression,
  Grammar,
  optional,
  sequence,
  text,
} from "./grammar.ts";
import { compileSchema } from "../json_schema/compile.ts";
import { LeftEdge } from "./left_edge.ts";
import { beginSteps } from "../limits.ts";
import { prune, type PrunedGrammar } from "./prune.ts";
import type { ConstraintSpec } from "../spec.ts";

/** The grammar of a constraint's texts. */
export interface Translation extends PrunedGrammar {
  /** The rules that can be empty. */
  readonly nullable: ReadonlySet<number>;
}

/**
 * Compiles a constraint to a grammar.
 *
 * @param stripsLeadingSpace true if the decoder removes one space from the start of the text
 * @throws {ForgeError} `usage` or `unsupported`, naming what cannot be enforced
 */
export function translate(spec: ConstraintSpec, stripsLeadingSpace: boolean): Translation {
  beginSteps();
  const grammar = new Grammar();
  const inner = compile(grammar, spec);
  const edge = new LeftEdge(grammar);
  edge.rejectLeftRecursion();
  const pruned = prune(grammar, inner);
  return {
    ...pruned,
    root: stripsLeadingSpace ? spaced(pruned.root, edge) : pruned.root,
    nullable: edge.nullable,
  };
}

function compile(grammar: Grammar, spec: ConstraintSpec): Expression {
  switch (spec.kind) {
    case "json_schema":
      return compileSchema(grammar, spec.schema);
    case "regex":
      return automaton(matching(parseRegex(spec.pattern, "the regex")));
    case "grammar":
      return compileEbnf(grammar, spec.source);
    case "framed":
      return sequence(
        choice(...spec.prefixes.map(text)),
        compile(grammar, spec.inner),
        choice(...spec.suffixes.map(text)),
      );
  }
}

/** Matches the texts that equal a text of `root` once a leading space is removed. */
function spaced(root: Expression, edge: LeftEdge): Expression {
  const space = text(" ");
  return sequence(edge.canBeginWith(root, " ") ? space : optional(space), root);
}
