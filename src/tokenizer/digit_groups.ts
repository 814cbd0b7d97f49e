import type { Finder } from "./split.ts";

/*
 * Some pre-tokenizers group digits in threes from the right, as in 1|234|567, with a lookahead
 * that counts to the end of the number. Tried at each digit that is quadratic: a megabyte of
 * digits would take an hour. These finders report the same matches in linear time.
 */

const FINDERS: ReadonlyMap<string, Finder> = new Map<string, Finder>([
  ["(?=(\\d{3})+(?!\\d))", (text, onMatch) => {
    forEachGroup(text, /\p{Nd}+/gu, (start, _end, isWhole) => {
      if (isWhole) onMatch(start, start);
    });
  }],
  ["\\d{1,3}(?=(?:\\d{3})*\\b)", (text, onMatch) => {
    // Without a word boundary behind the digits, as in "1234km", they are left as they are.
    const letter = /[\p{Alphabetic}\p{M}\p{Pc}]/uy;
    forEachGroup(text, /\p{Nd}+/gu, onMatch, letter);
  }],
  ["\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", (text, onMatch) => {
    forEachGroup(text, /\p{N}+/gu, onMatch);
  }],
]);

/** A linear finder for a pattern that would be quadratic as a regular expression. */
export function linearFinder(pattern: string): Finder | undefined {
  return FINDERS.get(pattern);
}

/**
 * Reports the groups of each run of digits; the first of a run may have fewer than three.
 *
 * @param unlessBefore a sticky pattern of what must not follow a run
 */
function forEachGroup(
  text: string,
  run: RegExp,
  onGroup: (start: number, end: number, isWhole: boolean) => void,
  unlessBefore?: RegExp,
): void {
  for (const match of text.matchAll(run)) {
    if (unlessBefore) {
      unlessBefore.lastIndex = match.index + match[0].length;
      if (unlessBefore.test(text)) continue;
    }
    // Digits beyond the basic plane are two units long.
    const digits = Array.from(match[0]);
    let start = match.index;
    for (let i = 0; i < digits.length;) {
      const count = i === 0 ? digits.length % 3 || 3 : 3;
      const group = digits.slice(i, i + count).join("");
      onGroup(start, start + group.length, count === 3);
      start += group.length;
      i += count;
    }
  }
}
