import { ANYTHING, type Automaton, intersect } from "../automata/automaton.ts";
import {
  type CharSet,
  charSet,
  charsOf,
  difference,
  intersection,
  pairs,
} from "../automata/char_set.ts";
import { containing, matching, ofLength } from "../automata/regex_automaton.ts";
import { parseRegex } from "../automata/parse_regex.ts";
import { choice, type Expression, type Grammar, sequence, type Spelled, text } from "../grammar.ts";
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
  if (rules.minLength > 0 || rules.maxLength < Infinity) {
    parts.push(ofLength(rules.minLength, rules.maxLength));
  }
  return intersect(ANYTHING, ...parts);
}

/** The texts in which a pattern matches somewhere. */
export function patternTexts(source: string, what: string): Automaton {
  return containing(parseRegex(source, what));
}

const CONTROLS = charSet([[0, 0x1f]]);
/** What JSON writes with a backslash and one letter. */
const LETTERS: readonly (readonly [string, string])[] = [
  ['"', '"'],
  ["\\", "\\"],
  ["\b", "b"],
  ["\f", "f"],
  ["\n", "n"],
  ["\r", "r"],
  ["\t", "t"],
];
const LETTERED = charsOf(LETTERS.map(([character]) => character).join(""));
const PLAIN = difference(difference(charSet([[0, 0x10ffff]]), CONTROLS), LETTERED);

/**
 * How JSON writes characters. Each has one spelling here, so that what is counted and matched as text
 * is what a reader of the JSON gets.
 */
export function spellJson(set: CharSet): Spelled {
  const escaped: Expression[] = [];
  const backslash = text("\\");
  const letters = LETTERS.filter(([character]) => contains(set, character)).map(([, letter]) =>
    letter
  );
  if (letters.length > 0) escaped.push(sequence(backslash, oneByte(letters)));
  for (const high of [0x00, 0x10]) {
    const row = difference(intersection(set, charSet([[high, high + 15]])), LETTERED);
    const digits = pairs(row)
      .flatMap(([low, last]) => Array.from({ length: last - low + 1 }, (_, i) => low + i - high))
      .map((value) => value.toString(16));
    if (digits.length === 0) continue;
    escaped.push(sequence(text(high === 0 ? "\\u000" : "\\u001"), oneByte(digits)));
  }
  return { plain: intersection(set, PLAIN), escaped };
}

function oneByte(characters: readonly string[]): Expression {
  return { kind: "bytes", ranges: charsOf(characters.join("")) };
}

function contains(set: CharSet, character: string): boolean {
  return intersection(set, charsOf(character)).length > 0;
}

/** A JSON string whose text an automaton accepts. */
export function jsonString(grammar: Grammar, texts: Automaton): Expression {
  if (texts.start === 0) return choice();
  return sequence(text('"'), grammar.automaton(texts, spellJson, text('"')));
}
