/** One member of a set of characters. */
export type SetItem =
  | { readonly kind: "range"; readonly low: number; readonly high: number }
  /** A JavaScript class escape, such as `\p{L}`. */
  | { readonly kind: "escape"; readonly source: string }
  | { readonly kind: "set"; readonly set: CharSet };

/** A set of code points: the union of `items`, cut with `and` if there is one, then negated. */
export interface CharSet {
  readonly negated: boolean;
  readonly items: readonly SetItem[];
  readonly and?: CharSet;
}

/** Where a position must be for an assertion to hold. */
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
    /** `Infinity` where there is no limit. */
    readonly max: number;
    readonly lazy: boolean;
  }
  /** Once matched, never tried in another way: `(?>...)` and possessive quantifiers. */
  | { readonly kind: "atomic"; readonly body: Node }
  | { readonly kind: "case"; readonly ignore: boolean; readonly body: Node }
  | {
    readonly kind: "look";
    readonly ahead: boolean;
    readonly negative: boolean;
    readonly body: Node;
  }
  | { readonly kind: "anchor"; readonly at: Anchor };

/** A set of one code point. */
export function singleton(codePoint: number): CharSet {
  return { negated: false, items: [{ kind: "range", low: codePoint, high: codePoint }] };
}

/** A set that a JavaScript class escape names. */
export function escapeSet(...sources: string[]): CharSet {
  return { negated: false, items: sources.map((source) => ({ kind: "escape", source })) };
}

/** The code points that are not in `set`. */
export function complement(set: CharSet): CharSet {
  return { ...set, negated: !set.negated };
}
