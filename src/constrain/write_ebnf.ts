import type { Expression } from "./grammar.ts";
import type { PrunedGrammar } from "./prune.ts";

/** A grammar in the engine's notation; the rule `root` comes first. */
export function writeEbnf({ root, rules }: PrunedGrammar): string {
  const lines = [`root ::= ${write(root, false)}`];
  for (const [rule, body] of rules) lines.push(`r${rule} ::= ${write(body, false)}`);
  return lines.join("\n") + "\n";
}

function write(expression: Expression, isInner: boolean): string {
  switch (expression.kind) {
    case "text":
      return `"${Array.from(expression.text, (c) => escape(c.codePointAt(0)!)).join("")}"`;
    case "bytes":
      return writeBytes(expression.ranges);
    case "rule":
      return `r${expression.rule}`;
    case "sequence":
      if (expression.items.length === 0) return `""`;
      return expression.items.map((item) => write(item, true)).join(" ");
    case "choice": {
      const options = expression.options.map((option) => write(option, true)).join(" | ");
      return isInner ? `(${options})` : options;
    }
  }
}

/**
 * The engine reads a class of numbers up to 255 as a class of bytes (and gets larger ones wrong, which
 * are never written); `openGrammarEngine` makes sure of it.
 */
function writeBytes(ranges: readonly number[]): string {
  let members = "";
  for (let i = 0; i < ranges.length; i += 2) {
    const low = ranges[i]!, high = ranges[i + 1]!;
    members += low === high ? escape(low) : `${escape(low)}-${escape(high)}`;
  }
  // A class of one member would be taken for a string, and its number for a character's.
  return ranges.length === 2 && ranges[0] === ranges[1] ? `[${members}${members}]` : `[${members}]`;
}

/** Letters and digits as they are, everything else by number. */
function escape(codePoint: number): string {
  const character = String.fromCodePoint(codePoint);
  if (/[A-Za-z0-9]/.test(character)) return character;
  return `\\U${codePoint.toString(16).padStart(8, "0")}`;
}
