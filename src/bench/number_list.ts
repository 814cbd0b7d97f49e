/** Lists of whole numbers as benchmarks take them: `512,1024`, `1-4`, `0-1024+256`, `128-2048*2`. */

/** More values than anyone waits for; keeps a slip of the finger from filling the memory. */
const MAX_VALUES = 4096;

const ITEM = /^(\d+)(?:-(\d+)(?:([+*])(\d+))?)?$/;

/**
 * The numbers of a list: numbers and ranges, separated by commas. A range `first-last` counts up by 1,
 * `first-last+step` by `step`, and `first-last*factor` multiplies. The last number is included where
 * a range meets it.
 *
 * @returns `undefined` where the text is no such list, or lists more than 4096 numbers
 */
export function expandNumbers(text: string): number[] | undefined {
  const numbers: number[] = [];
  for (const item of text.split(",")) {
    const [matched, firstText, lastText, operator = "+", stepText = "1"] = ITEM.exec(item) ?? [];
    if (matched === undefined) return undefined;
    const first = Number(firstText);
    const last = Number(lastText ?? firstText);
    const step = Number(stepText);
    const grows = operator === "+" ? step >= 1 : step >= 2 && (first >= 1 || last === 0);
    if (!grows || last < first || !Number.isSafeInteger(last)) return undefined;
    for (let value = first; value <= last; value = operator === "+" ? value + step : value * step) {
      if (numbers.length === MAX_VALUES) return undefined;
      numbers.push(value);
      if (value === last) break;
    }
  }
  return numbers;
}
