/**
 * A set of Unicode scalar values: sorted ranges `[low, high, low, high, …]`, both ends inclusive,
 * that neither overlap nor touch. No set contains surrogates, because UTF-8 cannot encode them.
 */
export type CharSet = readonly number[];

/** The last code point of Unicode. */
export const MAX_CODE_POINT = 0x10ffff;

/** Every scalar value. */
export const ALL: CharSet = [0, 0xd7ff, 0xe000, MAX_CODE_POINT];

/** Returns the union of `ranges`, which may overlap and come in any order. */
export function charSet(ranges: readonly (readonly [number, number])[]): CharSet {
  const sorted = ranges.toSorted(([a], [b]) => a - b);
  const set: number[] = [];
  for (const [low, high] of sorted) {
    const last = set.length - 1;
    if (set.length > 0 && low <= set[last]! + 1) set[last] = Math.max(set[last]!, high);
    else set.push(low, high);
  }
  return intersection(set, ALL);
}

/** Returns the set of the characters of a text. */
export function charsOf(text: string): CharSet {
  return charSet(
    Array.from(text, (c): [number, number] => [c.codePointAt(0)!, c.codePointAt(0)!]),
  );
}

/** Returns the members of either set. */
export function union(a: CharSet, b: CharSet): CharSet {
  return charSet([...pairs(a), ...pairs(b)]);
}

/** Returns the scalar values that are not in a set. */
export function complement(set: CharSet): CharSet {
  // The gaps between ranges. Those at the ends may be empty, with their bounds in reverse.
  const gaps = [0, ...pairs(set).flatMap(([low, high]) => [low - 1, high + 1]), MAX_CODE_POINT];
  return intersection(gaps, ALL);
}

/** Returns the members of both sets. */
export function intersection(a: CharSet, b: CharSet): CharSet {
  const set: number[] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    const low = Math.max(a[i]!, b[j]!), high = Math.min(a[i + 1]!, b[j + 1]!);
    if (low <= high) set.push(low, high);
    if (a[i + 1]! < b[j + 1]!) i += 2;
    else j += 2;
  }
  return set;
}

/** Returns the members of `a` that are not in `b`. */
export function difference(a: CharSet, b: CharSet): CharSet {
  return intersection(a, complement(b));
}

/** Returns the ranges of a set. */
export function pairs(set: CharSet): [number, number][] {
  return Array.from({ length: set.length / 2 }, (_, i) => [set[2 * i]!, set[2 * i + 1]!]);
}
