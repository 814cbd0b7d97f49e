/**
 * Output of the parts of the GPU check: one JSON object per line on stdout, so that a part that
 * fails keeps its earlier measurements.
 */

/** A condition that must hold. */
export interface CheckLine {
  readonly kind: "check";
  readonly name: string;
  readonly passed: boolean;
  /** Reason of a failure. */
  readonly detail?: string;
}

/** The subject of a measurement. */
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

/** A time and the derived rates. */
export interface SpeedLine {
  readonly kind: "speed";
  readonly group: SpeedGroup;
  /** The same for forge and a peer that do the same work. */
  readonly name: string;
  /** The program that was measured. */
  readonly by:
    | "forge"
    | "forge, SM80"
    | "forge, no cuBLASLt"
    | "forge, flash"
    | "forge, tiled"
    | "model"
    | "PyTorch"
    | "FlashAttention-2"
    | "cuDNN";
  readonly microseconds: number;
  /** Bytes that must be moved, in 10^9 per second. */
  readonly gbPerSecond?: number;
  /** Operations that must be computed, in 10^12 per second. */
  readonly teraflops?: number;
  /** Numbers by which targets select lines, such as `tokens` and `length`. */
  readonly of?: Readonly<Record<string, number>>;
}

/** A measured maximum of the device: reads by forge, and copies and large products by PyTorch. */
export interface LimitLine {
  readonly kind: "limit";
  readonly name: "read GB/s" | "copy GB/s" | "matrix TFLOP/s";
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

/** Parses an output; ignores other lines, such as a compiler's remarks. */
export function readLines(output: string): Line[] {
  return output.split("\n").flatMap((text) => {
    if (!text.startsWith('{"kind":')) return [];
    try {
      return [JSON.parse(text) as Line];
    } catch (error) {
      if (error instanceof SyntaxError) return []; // cut off when the part was stopped
      throw error;
    }
  });
}

/** Returns the largest measured limit of a name, or 0 if there is none. */
export function limitOf(lines: readonly Line[], name: LimitLine["name"]): number {
  return Math.max(
    0,
    ...lines.flatMap((line) => line.kind === "limit" && line.name === name ? [line.value] : []),
  );
}
