/**
 * What the parts of the GPU check print: one JSON object a line on stdout, so that what was measured
 * before a part failed is not lost.
 */

/** Something that must be right. */
export interface CheckLine {
  readonly kind: "check";
  readonly name: string;
  readonly passed: boolean;
  /** What went wrong. */
  readonly detail?: string;
}

/** What was timed; `tokens` and the like are told by the name. */
export type SpeedGroup =
  | "product"
  | "expert product"
  | "decode attention"
  | "prefill attention"
  | "flash_attn forward"
  | "flash_attn decode"
  | "kernels of a step"
  | "launches of a step"
  | "sampling"
  | "decode step"
  | "prefill"
  | "host"
  | "start";

/** A time, and what it means of the device. */
export interface SpeedLine {
  readonly kind: "speed";
  readonly group: SpeedGroup;
  /** The same for the same work of forge and of a peer. */
  readonly name: string;
  /** Who computed it. */
  readonly by:
    | "forge"
    | "forge, SM80"
    | "forge, flash"
    | "forge, tiled"
    | "PyTorch"
    | "FlashAttention-2"
    | "cuDNN";
  readonly microseconds: number;
  /** Bytes that have to be moved, in 10^9 a second. */
  readonly gbPerSecond?: number;
  /** Operations that have to be done, in 10^12 a second. */
  readonly teraflops?: number;
  /** Numbers by which targets tell lines apart, such as `tokens` and `length`. */
  readonly of?: Readonly<Record<string, number>>;
}

/** What the device reaches at most. */
export interface LimitLine {
  readonly kind: "limit";
  readonly name: "copy GB/s" | "matrix TFLOP/s";
  readonly value: number;
}

/** A sentence for the report. */
export interface NoteLine {
  readonly kind: "note";
  readonly text: string;
}

export type Line = CheckLine | SpeedLine | LimitLine | NoteLine;

/** Prints a line. */
export function say(line: Line): void {
  console.log(JSON.stringify(line));
}

/** The lines of an output; what is none of them, such as a compiler's remark, is passed over. */
export function readLines(output: string): Line[] {
  return output.split("\n").flatMap((text) => {
    if (!text.startsWith('{"kind":')) return [];
    try {
      return [JSON.parse(text) as Line];
    } catch (error) {
      if (error instanceof SyntaxError) return []; // cut off when the part was ended
      throw error;
    }
  });
}

/** The most that was measured; 0 where nothing was. */
export function limitOf(lines: readonly Line[], name: LimitLine["name"]): number {
  return Math.max(
    0,
    ...lines.flatMap((line) => line.kind === "limit" && line.name === name ? [line.value] : []),
  );
}
