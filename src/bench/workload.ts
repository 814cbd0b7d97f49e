/** What one test of a benchmark computes. */
export interface Workload {
  /** Tokens of the prompt, computed in chunks. */
  readonly nPrompt: number;
  /** Tokens decoded after it, one at a time. */
  readonly nGen: number;
  /** Tokens that are in the KV cache beforehand; they are not timed. */
  readonly nDepth: number;
  /** Sequences that all of this is done for at once. @default 1 */
  readonly nParallel?: number;
  /** Tokens of prompts that are computed at once. @default as many as a run takes */
  readonly nBatch?: number | undefined;
}

/** What a user asks for; every combination of depth and test is measured. */
export interface WorkloadLists {
  readonly prompts: readonly number[];
  readonly generations: readonly number[];
  readonly pairs: readonly (readonly [nPrompt: number, nGen: number])[];
  readonly depths: readonly number[];
  /** @default `undefined`: as many as a run takes */
  readonly batches?: readonly (number | undefined)[];
}

/** The tests that lists stand for: at each depth prompts, generations, then pairs. Tests of 0 tokens are left out. */
export function workloads(lists: WorkloadLists): Workload[] {
  const pairs = [
    ...lists.prompts.map((nPrompt) => [nPrompt, 0] as const),
    ...lists.generations.map((nGen) => [0, nGen] as const),
    ...lists.pairs,
  ];
  return combinations(pairs, lists);
}

/**
 * The tests of several sequences at once: each prompt length with each number of tokens to decode after
 * it, for each number of sequences.
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
  { depths, batches = [undefined] }: WorkloadLists,
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

/** `pp512`, `tg128`, `pp512+tg128`, each with ` @ d1024` where the cache is not empty, ` x8` for 8 sequences. */
export function workloadName({ nPrompt, nGen, nDepth, nParallel = 1 }: Workload): string {
  const parts = [nPrompt > 0 ? `pp${nPrompt}` : "", nGen > 0 ? `tg${nGen}` : ""];
  return parts.filter((part) => part !== "").join("+") + (nParallel > 1 ? ` x${nParallel}` : "") +
    (nDepth > 0 ? ` @ d${nDepth}` : "");
}

/** Positions that each sequence of a workload takes. */
export function workloadLength({ nPrompt, nGen, nDepth }: Workload): number {
  return nDepth + nPrompt + nGen;
}
