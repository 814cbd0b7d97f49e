import type { RunLimits } from "../runner.ts";
import type { DraftBranch } from "../speculation/draft.ts";
import type { Sequence } from "./sequence.ts";

/** Chunk of a sequence in one step: its tokens from those computed up to `end`. */
export interface PlannedChunk {
  readonly sequence: Sequence;
  readonly end: number;
  /** Draft tokens that are computed after those. */
  readonly drafted: readonly number[];
  /** Branches of the draft, which are computed as sequences of their own. */
  readonly branches: readonly DraftBranch[];
}

/** A sequence with at most this many tokens to compute is decoding; so is the end of a prompt. */
const DECODE_TOKENS = 8;

/** True if a sequence is decoding, not computing a prompt. */
export function isDecoding({ pending, task }: Sequence): boolean {
  return pending <= DECODE_TOKENS && !task.scoresAll && !task.isWhole;
}

/**
 * Plans a step. Decoding sequences come first, so that they never wait for a prompt. Prompts share
 * the rest, each as much as it can take.
 *
 * @param sequences one or more sequences of one kind with tokens to compute, in the order in which
 * they are served
 */
export function planStep(
  sequences: readonly Sequence[],
  limits: Pick<RunLimits, "maxTokens" | "maxOutputs" | "maxSequences">,
): PlannedChunk[] {
  const chosen = sequences.length <= limits.maxSequences
    ? sequences
    : sequences.slice(0, limits.maxSequences);
  const plan: PlannedChunk[] = [];
  let tokensLeft = limits.maxTokens;
  // Each sequence has at most one output, unless it scores all tokens.
  let outputsLeft = chosen[0]!.task.kind.maxOutputs(limits) - chosen.length;
  const add = (sequence: Sequence) => {
    const { computed, pending, cache, task: { scoresAll, isWhole } } = sequence;
    // Steps of whole texts have an output for every token, and need no check.
    const mostOutputs = scoresAll && !isWhole ? outputsLeft + 1 : pending;
    const count = Math.min(pending, tokensLeft, mostOutputs, cache.maxChunk);
    if (count <= 0 || (isWhole && count < pending)) return;
    plan.push({ sequence, end: computed + count, drafted: [], branches: [] });
    tokensLeft -= count;
    if (scoresAll) outputsLeft -= count - 1;
  };
  for (const sequence of chosen) if (isDecoding(sequence)) add(sequence);
  for (const sequence of chosen) if (!isDecoding(sequence)) add(sequence);
  return plan;
}

/** Returns the sequences whose kind of step is that of the first one. */
export function ofOneKind(sequences: readonly Sequence[]): readonly Sequence[] {
  return sequences.filter(({ task }) => task.kind === sequences[0]!.task.kind);
}
