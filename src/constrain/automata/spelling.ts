/** Spellings of texts: verbatim, or as JSON strings. */
import { type CharSet, charSet, charsOf, difference, intersection, pairs } from "./char_set.ts";

/** Spelling of a set of characters: some verbatim, others by byte sequences. */
export interface Spelled {
  readonly plain: CharSet;
  /** Byte sequences; each byte is in one of its ranges `[low, high, …]`. */
  readonly escaped: readonly (readonly (readonly number[])[])[];
}

/** A way to spell characters. */
export interface Spelling {
  spell(set: CharSet): Spelled;
  /** The terminator of the text, in ASCII. */
  readonly end: string;
}

export type SpellingName = "plain" | "json";

/** Spellings by name. */
export const SPELLINGS: Readonly<Record<SpellingName, Spelling>> = {
  plain: { spell: (plain) => ({ plain, escaped: [] }), end: "" },
  // The closing quote is part of the spelling, so that few positions of a string are possible
  // ends.
  json: { spell: spellJson, end: '"' },
};

const CONTROLS = charSet([[0, 0x1f]]);
/** Characters that JSON escapes with a backslash and a letter. */
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
 * Spells characters as in JSON strings. Each has one spelling, so that lengths and patterns apply
 * to the text that a JSON parser returns.
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
