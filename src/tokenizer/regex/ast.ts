/** One member of a set of characters. */
export type SetItem =
  | { readonly kind: "range"; readonly low: number; readonly high: number }
  /** A JavaScript class escape, such as `\p{L}`. */
  | { readonly kind: "escape"; readonly source: string }
  | { readonly kind: "set"; readonly set: CharSet };

/** A set of code points: the union of `items`, intersected with `and` if present, then negated. */
export interface CharSet {
  readonly negated: boolean;
  readonly items: readonly SetItem[];
  readonly and?: CharSet;
}

/** Positions that assertions match. */
export type Anchor =
  | "line start"
  | "line end"
  | "text start"
  | "text end"
  | "last line end"
  | "word boundary"
  | "no word boundary";

/** A parsed regular expression. */
export type Node =
  | { readonly kind: "set"; readonly set: CharSet }
  | { readonly kind: "sequence"; readonly items: readonly Node[] }
  | { readonly kind: "choice"; readonly options: readonly Node[] }
  | {
    readonly kind: "repeat";
    readonly body: Node;
    readonly min: number;
    /** `Infinity` for no limit. */
    readonly max: number;
    readonly lazy: boolean;
  }
  /** Never backtracks once matched: `(?>...)` and possessive quantifiers. */
  | { readonly kind: "atomic"; readonly body: Node }
  | { readonly kind: "case"; readonly ignore: boolean; readonly body: Node }
  | {
    readonly kind: "look";
    readonly ahead: boolean;
    readonly negative: boolean;
    readonly body: Node;
  }
  | { readonly kind: "anchor"; readonly at: Anchor };

/** Returns the set of one code point. */
export function singleton(codePoint: number): CharSet {
  return { negated: false, items: [{ kind: "range", low: codePoint, high: codePoint }] };
}

/** Returns the union of JavaScript class escapes. */
function escapeSet(...sources: string[]): CharSet {
  return { negated: false, items: sources.map((source) => ({ kind: "escape", source })) };
}

/** Returns the set of all code points outside `set`. */
export function complement(set: CharSet): CharSet {
  return { ...set, negated: !set.negated };
}

/** `\s`, which in JavaScript lacks U+0085 and has U+FEFF. */
const SPACE = escapeSet("\\p{White_Space}");
/** `\d` */
const DIGIT = escapeSet("\\p{Nd}");
const WORD_ESCAPES = ["\\p{Alphabetic}", "\\p{M}", "\\p{Nd}", "\\p{Pc}"];
/** `[\w]` and `[[:word:]]`, as Unicode Technical Standard 18 defines them. */
const CLASS_WORD = escapeSet(...WORD_ESCAPES);
/** `\w` and `\b` outside a class: Oniguruma counts the numbers ²³¹¼½¾ of Latin-1 as well. */
export const WORD = escapeSet(...WORD_ESCAPES, "\\xb2\\xb3\\xb9\\xbc-\\xbe");
/** `\w` of Rust's regular expressions, which adds the joiners U+200C and U+200D. */
export const RUST_WORD = `[${WORD_ESCAPES.join("")}\\u200c\\u200d]`;
const PUNCTUATION = escapeSet("\\p{P}");
/** `\h` of Oniguruma. */
const HEX_DIGIT: CharSet = escapeSet("0-9", "a-f", "A-F");

/** Returns the set of a one-letter class escape such as `\s` or `\W`, or `undefined`. */
export function classEscape(letter: string, inClass: boolean): CharSet | undefined {
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
      return inClass ? CLASS_WORD : WORD;
    case "W":
      return complement(inClass ? CLASS_WORD : WORD);
    case "h":
      return HEX_DIGIT;
    case "H":
      return complement(HEX_DIGIT);
  }
  return undefined;
}

/** Names that POSIX brackets and properties share, except those that Unicode defines. */
const NAMED: ReadonlyMap<string, CharSet> = new Map([
  ["alpha", escapeSet("\\p{Alphabetic}")],
  ["alnum", escapeSet("\\p{Alphabetic}", "\\p{Nd}")],
  ["blank", escapeSet("\\p{Zs}", "\\t")],
  ["cntrl", escapeSet("\\p{Cc}")],
  ["digit", DIGIT],
  ["graph", complement(escapeSet("\\p{White_Space}", "\\p{Cc}", "\\p{Cn}"))],
  ["lower", escapeSet("\\p{Lowercase}")],
  ["print", complement(escapeSet("\\p{Cc}", "\\p{Cn}", "\\p{Zl}", "\\p{Zp}"))],
  ["punct", PUNCTUATION],
  ["space", SPACE],
  ["upper", escapeSet("\\p{Uppercase}")],
  ["word", CLASS_WORD],
  ["xdigit", HEX_DIGIT],
  ["any", escapeSet("\\p{Any}")],
  ["ascii", escapeSet("\\p{ASCII}")],
]);

/** Returns the set of a POSIX bracket such as `[:alpha:]`, or `undefined`. */
export function posixClass(name: string): CharSet | undefined {
  // Unlike `\p{punct}`, the bracket contains symbols such as `$` and `€`.
  return name === "punct" ? escapeSet("\\p{P}", "\\p{S}") : NAMED.get(name);
}

/**
 * Returns the set of a property such as `L`, `Lu`, `Letter`, `Han` or `alpha`, or `undefined`.
 * Case, spaces and underscores in the name do not matter.
 */
export function unicodeProperty(name: string, inClass: boolean): CharSet | undefined {
  const words = name.split(/[\s_-]+/).filter((word) => word !== "");
  if (words.length === 0 || !words.every((word) => /^[A-Za-z]+$/.test(word))) return undefined;
  const joined = words.join("_");
  const titled = words.map((word) => word[0]?.toUpperCase() + word.slice(1).toLowerCase());
  for (const spelling of [joined, titled.join("_")]) {
    for (const source of [`\\p{${spelling}}`, `\\p{Script=${spelling}}`]) {
      if (compiles(source)) return escapeSet(source);
    }
  }
  const lower = words.join("").toLowerCase();
  return lower === "word" && !inClass ? WORD : NAMED.get(lower);
}

function compiles(source: string): boolean {
  try {
    new RegExp(source, "u");
    return true;
  } catch {
    return false;
  }
}

/** Thrown for a pattern that is invalid or that JavaScript cannot express. */
export class PatternError extends Error {}
