import { ANYTHING, type Automaton, intersect } from "../automata/automaton.ts";
import { containing, matching, ofLength } from "../automata/regex_automaton.ts";
import { parseRegex } from "../automata/parse_regex.ts";
import { checkLimit, LIMITS } from "../limits.ts";
import { FORMATS } from "./formats.ts";

/** What a string must obey, all at once. */
export interface StringRules {
  readonly minLength: number;
  /** `Infinity` where there is none. */
  readonly maxLength: number;
  readonly patterns: readonly { readonly source: string; readonly what: string }[];
  /** Names of {@linkcode FORMATS}. */
  readonly formats: readonly string[];
}

/** The texts a string may have. */
export function stringTexts(rules: StringRules): Automaton {
  const parts = [
    ...rules.patterns.map(({ source, what }) => patternTexts(source, what)),
    ...rules.formats.map((name) => matching(parseRegex(FORMATS[name]!, `the format ${name}`))),
  ];
  const { minLength, maxLength } = rules;
  checkLimit("minLength", minLength, LIMITS.length);
  if (maxLength < Infinity) checkLimit("maxLength", maxLength, LIMITS.length);
  if (minLength > 0 || maxLength < Infinity) parts.push(ofLength(minLength, maxLength));
  const [first = ANYTHING, ...rest] = parts;
  return intersect(first, ...rest);
}

/** The texts in which a pattern matches somewhere. */
export function patternTexts(source: string, what: string): Automaton {
  return containing(parseRegex(source, what));
}
