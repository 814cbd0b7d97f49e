/** The work of one benchmark test. */
export interface Workload {
  /** Tokens of the prompt, computed in chunks. */
  readonly nPrompt: number;
  /** Tokens decoded after it, one at a time. */
  readonly nGen: number;
  /** Tokens already in the KV cache; filling it is not timed. */
  readonly nDepth: number;
  /** Number of sequences computed at once. @default 1 */
  readonly nParallel?: number;
  /** Prompt tokens computed at once. @default the runner's maximum */
  readonly nBatch?: number | undefined;
}

/** Lists from which every combination of depth and test is measured. */
interface WorkloadLists {
  readonly prompts: readonly number[];
  readonly generations: readonly number[];
  readonly pairs: readonly (readonly [nPrompt: number, nGen: number])[];
  readonly depths: readonly number[];
  /** Prompt tokens computed at once; undefined for the runner's maximum. */
  readonly batches: readonly (number | undefined)[];
}

/**
 * Returns the tests of lists: at each depth prompts, generations, then pairs. Skips empty tests.
 */
export function workloads(lists: WorkloadLists): Workload[] {
  const pairs = [
    ...lists.prompts.map((nPrompt) => [nPrompt, 0] as const),
    ...lists.generations.map((nGen) => [0, nGen] as const),
    ...lists.pairs,
  ];
  return combinations(pairs, lists);
}

/**
 * Returns the tests of several sequences at once: each prompt length with each number of decoded
 * tokens, for each number of sequences.
 */
export function parallelWorkloads(lists: WorkloadLists, parallel: readonly number[]): Workload[] {
  const pairs = [
    ...lists.prompts.flatMap((nPrompt) =>
      lists.generations.map((nGen) => [nPrompt, nGen] as const)
    ),
    ...lists.pairs,
  ];
  return combinations(pairs, lists).flatMap((test) =>
    parallel.map((nParallel) => ({ ...test, nParallel }))
  );
}

function combinations(
  pairs: readonly (readonly [number, number])[],
  { depths, batches }: WorkloadLists,
): Workload[] {
  return depths.flatMap((nDepth) =>
    pairs.filter(([nPrompt, nGen]) => nPrompt + nGen > 0).flatMap(([nPrompt, nGen]) =>
      batches.map((nBatch) => ({
        nPrompt,
        nGen,
        nDepth,
        ...(nBatch === undefined ? {} : { nBatch }),
      }))
    )
  );
}

/**
 * Returns `pp512`, `tg128` or `pp512+tg128`, with ` x8` for 8 sequences and ` @ d1024` for a depth.
 */
export function workloadName({ nPrompt, nGen, nDepth, nParallel = 1 }: Workload): string {
  const parts = [nPrompt > 0 ? `pp${nPrompt}` : "", nGen > 0 ? `tg${nGen}` : ""];
  return parts.filter((part) => part !== "").join("+") + (nParallel > 1 ? ` x${nParallel}` : "") +
    (nDepth > 0 ? ` @ d${nDepth}` : "");
}

/** Number of positions of one sequence. */
export function workloadLength({ nPrompt, nGen, nDepth }: Workload): number {
  return nDepth + nPrompt + nGen;
}

/** Lists of whole numbers in benchmark options: `512,1024`, `1-4`, `0-1024+256`, `128-2048*2`. */

/** Bound on the length of a list, against typing errors. */
const MAX_VALUES = 4096;

const ITEM = /^(\d+)(?:-(\d+)(?:([+*])(\d+))?)?$/;

/**
 * Expands a list of numbers and ranges, separated by commas. A range `first-last` counts up by 1,
 * `first-last+step` by `step`, and `first-last*factor` multiplies. The last number is included if
 * the range meets it.
 *
 * @returns `undefined` for a syntax error or more than 4096 numbers
 */
export function expandNumbers(text: string): number[] | undefined {
  const numbers: number[] = [];
  for (const item of text.split(",")) {
    const [, firstText, lastText, operator = "+", stepText = "1"] = ITEM.exec(item) ?? [];
    const first = Number(firstText);
    const last = Number(lastText ?? firstText);
    const step = Number(stepText);
    if (last < first || !Number.isSafeInteger(last)) return undefined;
    // A step that does not grow, such as `*1`, ends at the bound.
    for (let value = first; value <= last; value = operator === "+" ? value + step : value * step) {
      if (numbers.length === MAX_VALUES) return undefined;
      numbers.push(value);
      if (value === last) break;
    }
  }
  return numbers;
}
