import { ForgeError } from "../../errors.ts";
import type { Fields } from "./fields.ts";
import { WORD } from "../regex/ast.ts";
import { emitSet } from "../regex/emit.ts";
import { translateRegex } from "../regex/translate.ts";

/** Reports every match in a text, in order and without overlap. */
export type Finder = (text: string, onMatch: (start: number, end: number) => void) => void;

/** Treatments of the matches at which text is cut, by their names in tokenizer.json. */
export const SPLIT_BEHAVIORS = [
  "Isolated",
  "Removed",
  "MergedWithPrevious",
  "MergedWithNext",
  "Contiguous",
] as const;

/** One of `SPLIT_BEHAVIORS`. */
export type SplitBehavior = typeof SPLIT_BEHAVIORS[number];

/**
 * Creates the finder of a `pattern` field: `{"String": "..."}` or `{"Regex": "..."}`.
 *
 * @throws ForgeError `bad_model` or `unsupported`
 */
export function compilePattern(json: Fields, key: string): Finder {
  const pattern = json.object(key);
  if (pattern === undefined) throw json.wrong(key, "an object");
  if (pattern.get("String") !== undefined) return stringFinder(pattern.string("String"));
  if (pattern.get("Regex") !== undefined) {
    return regexFinder(pattern.string("Regex"), pattern.path("Regex"));
  }
  throw new ForgeError("bad_model", `${pattern.where} has neither "String" nor "Regex"`);
}

/**
 * Creates a finder for a regular expression in Oniguruma's syntax.
 *
 * @throws ForgeError `unsupported` if it cannot be translated safely
 */
export function regexFinder(pattern: string, where: string): Finder {
  const linear = DIGIT_GROUP_FINDERS.get(pattern);
  if (linear) return linear;
  const regex = translateRegex(pattern, where);
  return (text, onMatch) => {
    regex.lastIndex = 0;
    for (let match = nextMatch(regex, text, where); match; match = nextMatch(regex, text, where)) {
      const end = match.index + match[0].length;
      if (end === match.index) {
        // After an empty match, continue with the next character.
        regex.lastIndex = end + ((text.codePointAt(end) ?? 0) > 0xffff ? 2 : 1);
      }
      onMatch(match.index, end);
      if (regex.lastIndex > text.length) break;
    }
  };
}

function nextMatch(regex: RegExp, text: string, where: string): RegExpExecArray | null {
  try {
    return regex.exec(text);
  } catch (error) {
    // V8 compiles at first use, and its stack for backtracking is limited.
    throw new ForgeError(
      "unsupported",
      `${where}: the regular expression cannot be run on a text of ${text.length} characters: ` +
        (error instanceof Error ? error.message : String(error)),
      { cause: error },
    );
  }
}

/** Creates a finder for a non-empty string. */
function stringFinder(wanted: string): Finder {
  return (text, onMatch) => {
    if (wanted === "") return;
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
      onMatch(at, at + wanted.length);
    }
  };
}

/** Cuts `text` at the matches of `find` and reports the non-empty ranges of pieces in order. */
export function splitText(
  text: string,
  find: Finder,
  behavior: SplitBehavior,
  invert: boolean,
  onPiece: (start: number, end: number) => void,
): void {
  const emit = (start: number, end: number) => {
    if (end > start) onPiece(start, end);
  };
  const merge = mergerOf(behavior, emit);
  let done = 0;
  find(text, (start, end) => {
    if (start > done) merge.add(done, start, invert);
    merge.add(start, end, !invert);
    done = end;
  });
  if (done < text.length) merge.add(done, text.length, invert);
  merge.finish();
}

/** Receives matches and the text between them in order, and joins them to pieces. */
interface Merger {
  add(start: number, end: number, isMatch: boolean): void;
  finish(): void;
}

function mergerOf(behavior: SplitBehavior, emit: (start: number, end: number) => void): Merger {
  if (behavior === "Isolated") return { add: emit, finish() {} };
  if (behavior === "Removed") {
    return {
      add(start, end, isMatch) {
        if (!isMatch) emit(start, end);
      },
      finish() {},
    };
  }
  let pieceStart = 0, pieceEnd = 0, lastWasMatch = false, hasPiece = false;
  const joins = (isMatch: boolean) => {
    if (behavior === "Contiguous") return isMatch === lastWasMatch;
    if (behavior === "MergedWithPrevious") return isMatch && !lastWasMatch;
    return !isMatch && lastWasMatch;
  };
  return {
    add(start, end, isMatch) {
      if (hasPiece && joins(isMatch)) {
        pieceEnd = end;
      } else {
        if (hasPiece) emit(pieceStart, pieceEnd);
        [pieceStart, pieceEnd, hasPiece] = [start, end, true];
      }
      lastWasMatch = isMatch;
    },
    finish() {
      if (hasPiece) emit(pieceStart, pieceEnd);
    },
  };
}

/*
 * Some pre-tokenizers group digits in threes from the right, as in 1|234|567, with a lookahead to
 * the end of the number. At each digit this takes quadratic time: an hour for a megabyte of digits.
 * These finders report the same matches in linear time.
 */

const DIGIT_GROUP_FINDERS: ReadonlyMap<string, Finder> = new Map<string, Finder>([
  ["(?=(\\d{3})+(?!\\d))", (text, onMatch) => {
    forEachGroup(text, /\p{Nd}+/gu, (start, _end, isWhole) => {
      if (isWhole) onMatch(start, start);
    });
  }],
  ["\\d{1,3}(?=(?:\\d{3})*\\b)", (text, onMatch) => {
    // Digits without a word boundary after them, as in "1234km", do not match.
    forEachGroup(text, /\p{Nd}+/gu, onMatch, new RegExp(emitSet(WORD), "uy"));
  }],
  ["\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", (text, onMatch) => {
    forEachGroup(text, /\p{N}+/gu, onMatch);
  }],
]);

/**
 * Reports the groups of each run of digits; the first group may have fewer than three digits.
 *
 * @param unlessBefore a sticky pattern that must not match after a run
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
