/** What one test of a benchmark computes. */
export interface Workload {
  /** Tokens of the prompt, computed in chunks. */
  readonly nPrompt: number;
  /** Tokens decoded after it, one at a time. */
  readonly nGen: number;
  /** Tokens that are in the KV cache beforehand; they are not timed. */
  readonly nDepth: number;
}

/** What a user asks for; every combination of depth and test is measured. */
export interface WorkloadLists {
  readonly prompts: readonly number[];
  readonly generations: readonly number[];
  readonly pairs: readonly (readonly [nPrompt: number, nGen: number])[];
  readonly depths: readonly number[];
}

/** The tests that lists stand for: at each depth prompts, generations, then pairs. Tests of 0 tokens are left out. */
export function workloads(lists: WorkloadLists): Workload[] {
  const pairs = [
    ...lists.prompts.map((nPrompt) => [nPrompt, 0] as const),
    ...lists.generations.map((nGen) => [0, nGen] as const),
    ...lists.pairs,
  ].filter(([nPrompt, nGen]) => nPrompt + nGen > 0);
  return lists.depths.flatMap((nDepth) =>
    pairs.map(([nPrompt, nGen]) => ({ nPrompt, nGen, nDepth }))
  );
}

/** `pp512`, `tg128`, `pp512+tg128`, each with ` @ d1024` where the cache is not empty. */
export function workloadName({ nPrompt, nGen, nDepth }: Workload): string {
  const parts = [nPrompt > 0 ? `pp${nPrompt}` : "", nGen > 0 ? `tg${nGen}` : ""];
  return parts.filter((part) => part !== "").join("+") + (nDepth > 0 ? ` @ d${nDepth}` : "");
}

/** Positions that a workload takes. */
export function workloadLength({ nPrompt, nGen, nDepth }: Workload): number {
  return nDepth + nPrompt + nGen;
}
