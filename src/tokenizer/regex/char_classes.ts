import { type CharSet, complement, escapeSet } from "./ast.ts";

/** `\s`: JavaScript's own lacks U+0085 and has U+FEFF. */
const SPACE = escapeSet("\\p{White_Space}");
/** `\d` */
export const DIGIT = escapeSet("\\p{Nd}");
/** `\w`, as Unicode Technical Standard 18 and Oniguruma define it. */
export const WORD = escapeSet("\\p{Alphabetic}", "\\p{M}", "\\p{Nd}", "\\p{Pc}");
/** `\h` of Oniguruma. */
const HEX_DIGIT: CharSet = escapeSet("0-9", "a-f", "A-F");

/** The set of a one-letter class escape such as `\s` or `\W`, or `undefined`. */
export function classEscape(letter: string): CharSet | undefined {
  switch (letter) {
    case "s":
      return SPACE;
    case "S":
      return complement(SPACE);
    case "d":
      return DIGIT;
    case "D":
      return complement(DIGIT);
    case "w":
      return WORD;
    case "W":
      return complement(WORD);
    case "h":
      return HEX_DIGIT;
    case "H":
      return complement(HEX_DIGIT);
  }
  return undefined;
}

/** Names that POSIX brackets and properties share, apart from those Unicode defines. */
const NAMED: ReadonlyMap<string, CharSet> = new Map([
  ["alpha", escapeSet("\\p{Alphabetic}")],
  ["alnum", escapeSet("\\p{Alphabetic}", "\\p{Nd}")],
  ["blank", escapeSet("\\p{Zs}", "\\t")],
  ["cntrl", escapeSet("\\p{Cc}")],
  ["digit", DIGIT],
  ["lower", escapeSet("\\p{Lowercase}")],
  ["punct", escapeSet("\\p{P}", "$", "+", "<", "=", ">", "\\^", "`", "|", "~")],
  ["space", SPACE],
  ["upper", escapeSet("\\p{Uppercase}")],
  ["word", WORD],
  ["xdigit", HEX_DIGIT],
  ["any", escapeSet("\\p{Any}")],
  ["ascii", escapeSet("\\p{ASCII}")],
]);

/** The set of a POSIX bracket such as `[:alpha:]`, or `undefined`. */
export function posixClass(name: string): CharSet | undefined {
  return NAMED.get(name);
}

/**
 * The set of a property such as `L`, `Lu`, `Letter`, `Han` or `alpha`, or `undefined`. Case, spaces
 * and underscores in the name do not matter.
 */
export function unicodeProperty(name: string): CharSet | undefined {
  const words = name.split(/[\s_-]+/).filter((word) => word !== "");
  if (words.length === 0 || !words.every((word) => /^[A-Za-z]+$/.test(word))) return undefined;
  const joined = words.join("_");
  const titled = words.map((word) => word[0]?.toUpperCase() + word.slice(1).toLowerCase());
  for (const spelling of [joined, titled.join("_")]) {
    for (const source of [`\\p{${spelling}}`, `\\p{Script=${spelling}}`]) {
      if (compiles(source)) return escapeSet(source);
    }
  }
  return NAMED.get(words.join("").toLowerCase());
}

function compiles(source: string): boolean {
  try {
    new RegExp(source, "u");
    return true;
  } catch {
    return false;
  }
}
