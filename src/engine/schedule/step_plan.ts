import type { RunLimits } from "../runner.ts";
import type { Sequence, Stride } from "./sequence.ts";

/** Chunk of a sequence in one step: its tokens from those computed up to `end`. */
export interface PlannedChunk {
  readonly sequence: Sequence;
  readonly end: number;
}

/** A sequence with at most this many tokens to compute is decoding; so is the end of a prompt. */
const DECODE_TOKENS = 8;

/**
 * Plans a step. Decoding sequences come first, so that they never wait for a prompt. Prompts share
 * the rest, each as much as it can take.
 *
 * @param sequences sequences with tokens to compute, in the order in which they are served
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
  // Hidden states are smaller than logits: every token of their step may have an output.
  const maxOutputs = chosen[0]?.task.embeds ? limits.maxTokens : limits.maxOutputs;
  // Each sequence has at most one output, unless it scores all tokens.
  let outputsLeft = maxOutputs - chosen.length;
  const add = (sequence: Sequence) => {
    const { scoresAll } = sequence.task;
    const { computed, pending, snapshotAt } = sequence;
    const count = Math.min(
      pending,
      tokensLeft,
      scoresAll ? outputsLeft + 1 : pending,
      // A recurrent state is copied between two steps.
      snapshotAt !== undefined && snapshotAt > computed ? snapshotAt - computed : pending,
    );
    if (count <= 0) return;
    plan.push({ sequence, end: computed + count });
    tokensLeft -= count;
    if (scoresAll) outputsLeft -= count - 1;
  };
  const isDecoding = ({ pending, task }: Sequence) => pending <= DECODE_TOKENS && !task.scoresAll;
  for (const sequence of chosen) if (isDecoding(sequence)) add(sequence);
  for (const sequence of chosen) if (!isDecoding(sequence)) add(sequence);
  return plan;
}

/**
 * Returns the sequences of the first one's kind: a step samples tokens or computes hidden states.
 */
export function ofOneKind(sequences: readonly Sequence[]): readonly Sequence[] {
  const embeds = sequences[0]?.task.embeds ?? false;
  return sequences.filter(({ task }) => (task.embeds ?? false) === embeds);
}

/** True if a step computes hidden states. */
export function embeds([first]: readonly PlannedChunk[]): boolean {
  return first?.sequence.task.embeds ?? false;
}

/** True if every chunk of a step decodes: it ends its sequence's tokens and is no prompt. */
export function onlyDecodes(plan: readonly PlannedChunk[]): boolean {
  return plan.every(({ sequence: { computed, length, task }, end }) =>
    end === length && end - computed <= DECODE_TOKENS && !task.scoresAll && !task.embeds
  );
}

/**
 * Returns the stride that all sequences of a plan allow: 1 if any has draft tokens or a longer
 * chunk.
 */
export function commonStride(plan: readonly PlannedChunk[]): Stride & {
  readonly endTokens: number[];
} {
  let least = Infinity;
  const ends = new Set<number>();
  for (const { sequence: { task, computed, drafted }, end } of plan) {
    const { length, endTokens } = task.stride ?? { length: 1, endTokens: [] };
    least = end - computed === 1 && drafted.length === 0 ? Math.min(least, length) : 1;
    if (least === 1) return { length: 1, endTokens: [] };
    for (const token of endTokens) ends.add(token);
  }
  return { length: least, endTokens: [...ends] };
}

/** Returns the number of rows of a step, draft tokens included. */
export function rowsOf(plan: readonly PlannedChunk[]): number {
  return plan.reduce(
    (rows, { sequence, end }) => rows + end - sequence.computed + sequence.drafted.length,
    0,
  );
}
