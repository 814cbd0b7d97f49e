/** Suggestions for misspelled names. */

/** Maximum edit distance of a misspelling. */
function tolerance(name: string): number {
  return name.length < 4 ? 1 : 2;
}

/**
 * Returns the known name that is nearest to `name`, or `undefined` if none is near.
 *
 * @param aliases names of other programs, and their names here
 */
export function nearestName(
  name: string,
  known: readonly string[],
  aliases: Readonly<Record<string, string>> = {},
): string | undefined {
  const plain = plainName(name);
  const names = [...known.map((other) => [other, other] as const), ...Object.entries(aliases)];
  const [best] = names
    .map(([other, meant]) => ({ meant, distance: distance(plain, plainName(other)) }))
    .sort((a, b) => a.distance - b.distance);
  return best !== undefined && best.distance <= tolerance(plain) ? best.meant : undefined;
}

/** Removes differences of style: `maxTokens`, `max-tokens` and `max_tokens` are equal. */
function plainName(name: string): string {
  return name.slice(0, 64).toLowerCase().replace(/[-_.]/g, "");
}

/** Edit distance: changed, added and removed characters, and swaps of neighbours. */
function distance(a: string, b: string): number {
  let [beforeLast, last]: [number[], number[]] = [
    [],
    Array.from({ length: b.length + 1 }, (_, i) => i),
  ];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1];
      const isSwapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row.push(Math.min(
        row[j - 1]! + 1,
        last[j]! + 1,
        last[j - 1]! + (isSame ? 0 : 1),
        isSwapped ? beforeLast[j - 2]! + 1 : Infinity,
      ));
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length]!;
}
