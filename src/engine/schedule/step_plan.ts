import type { RunLimits } from "../runner.ts";
import type { Sequence, Stride } from "./sequence.ts";

/** What one step does for a sequence: the tokens that follow those computed, up to `end`. */
export interface PlannedChunk {
  readonly sequence: Sequence;
  readonly end: number;
}

/** Sequences with no more tokens than this to compute are decoding; a prompt's end counts as that. */
const DECODE_TOKENS = 8;

/**
 * Fills a step. Decoding sequences come first, so that none of them waits for another's prompt; prompts
 * share what is left, the first as much as it can take.
 *
 * @param sequences those that have something to compute, in the order of their turns
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
  // Hidden states are smaller than logits: in a step that embeds, every token may have an output.
  const maxOutputs = chosen[0]?.task.embeds ? limits.maxTokens : limits.maxOutputs;
  // Each sequence but those that are scored has at most one output.
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

/** Those of the first one's kind: a step chooses tokens, or it computes hidden states. */
export function ofOneKind(sequences: readonly Sequence[]): readonly Sequence[] {
  const embeds = sequences[0]?.task.embeds ?? false;
  return sequences.filter(({ task }) => (task.embeds ?? false) === embeds);
}

/** Whether a step computes hidden states. */
export function embeds([first]: readonly PlannedChunk[]): boolean {
  return first?.sequence.task.embeds ?? false;
}

/** Whether all chunks of a step end what is known of their sequences, and none is a prompt. */
export function onlyDecodes(plan: readonly PlannedChunk[]): boolean {
  return plan.every(({ sequence: { computed, length, task }, end }) =>
    end === length && end - computed <= DECODE_TOKENS && !task.scoresAll && !task.embeds
  );
}

/** How far all sequences of a plan go on by themselves: those with guesses or several tokens do not. */
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

/** The tokens that a step computes, guesses among them. */
export function rowsOf(plan: readonly PlannedChunk[]): number {
  return plan.reduce(
    (rows, { sequence, end }) => rows + end - sequence.computed + sequence.drafted.length,
    0,
  );
}
