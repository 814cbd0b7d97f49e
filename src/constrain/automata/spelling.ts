/** How texts are written: as they are, or as JSON writes strings. */
import { type CharSet, charSet, charsOf, difference, intersection, pairs } from "./char_set.ts";

/** How characters appear in the text: some as themselves, others by a sequence of bytes. */
export interface Spelled {
  readonly plain: CharSet;
  /** Sequences of bytes, each byte of one of the ranges `[low, high, …]`. */
  readonly escaped: readonly (readonly (readonly number[])[])[];
}

/** A way to write characters. */
export interface Spelling {
  spell(set: CharSet): Spelled;
  /** What follows the text, in ASCII. */
  readonly end: string;
}

/** Names of the ways. */
export type SpellingName = "plain" | "json";

/** The ways by their names. */
export const SPELLINGS: Readonly<Record<SpellingName, Spelling>> = {
  plain: { spell: (plain) => ({ plain, escaped: [] }), end: "" },
  // The quote is with it, so that few places of a string are those where it may end.
  json: { spell: spellJson, end: '"' },
};

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
function spellJson(set: CharSet): Spelled {
  const escaped: (readonly number[])[][] = [];
  const letters = LETTERS.filter(([character]) => contains(set, character)).map(([, letter]) =>
    letter
  );
  if (letters.length > 0) escaped.push([charsOf("\\"), charsOf(letters.join(""))]);
  for (const high of [0x00, 0x10]) {
    const row = difference(intersection(set, charSet([[high, high + 15]])), LETTERED);
    const digits = pairs(row)
      .flatMap(([low, last]) => Array.from({ length: last - low + 1 }, (_, i) => low + i - high))
      .map((value) => value.toString(16));
    if (digits.length === 0) continue;
    const start = Array.from(high === 0 ? "\\u000" : "\\u001", charsOf);
    escaped.push([...start, charsOf(digits.join(""))]);
  }
  return { plain: intersection(set, PLAIN), escaped };
}

function contains(set: CharSet, character: string): boolean {
  return intersection(set, charsOf(character)).length > 0;
}
