/** Performance targets on a GPU, and how to judge them. */
import { limitOf, type Line, type SpeedLine } from "./lines.ts";

/** A target, judged by the worst of its lines. */
export interface Target {
  readonly text: string;
  /** True if larger is better. */
  readonly atLeast: boolean;
  readonly goal: number;
  readonly unit: "%" | "us" | "x";
  /** Returns one number for each line that the target covers. */
  readonly values: (lines: readonly Line[]) => number[];
}

/** The verdict on a target; without a value it was not measured. */
export interface Verdict {
  readonly target: Target;
  readonly worst: number | undefined;
  readonly met: boolean | undefined;
}

/** Returns forge's speeds of a group that pass `test`. */
function ours(
  lines: readonly Line[],
  group: SpeedLine["group"],
  test: (of: Readonly<Record<string, number>>, name: string) => boolean = () => true,
): SpeedLine[] {
  return lines.filter((line): line is SpeedLine =>
    line.kind === "speed" && line.group === group && line.by === "forge" &&
    test(line.of ?? {}, line.name)
  );
}

/** Returns percentages of the read bandwidth. */
function readShares(lines: readonly Line[], speeds: readonly SpeedLine[]): number[] {
  const read = limitOf(lines, "read GB/s");
  return read === 0 ? [] : speeds.map(({ gbPerSecond = 0 }) => 100 * gbPerSecond / read);
}

/** Returns times as multiples of a peer's time for the same work. */
function times(
  lines: readonly Line[],
  speeds: readonly SpeedLine[],
  peer: SpeedLine["by"],
): number[] {
  return speeds.flatMap(({ group, name, microseconds }) => {
    const other = lines.find((line): line is SpeedLine =>
      line.kind === "speed" && line.by === peer && line.group === group && line.name === name
    );
    return other === undefined ? [] : [microseconds / other.microseconds];
  });
}

/** Lines of libflash_attn's forward kernels. */
function forward(lines: readonly Line[], by: SpeedLine["by"], dim: number, length: number) {
  return lines.filter((line): line is SpeedLine =>
    line.kind === "speed" && line.group === "flash_attn forward" && line.by === by &&
    line.of?.dim === dim && (line.of?.length ?? 0) >= length
  );
}

/** Returns times of sampling one token as shares of the fastest batch-1 step of the 8B model. */
function samplingShares(lines: readonly Line[]): number[] {
  const steps = ours(lines, "decode step", (of) => of.batch === 1 && of.billions === 8);
  if (steps.length === 0) return [];
  const shortest = Math.min(...steps.map(({ microseconds }) => microseconds));
  return ours(lines, "sampling", (of) => of.batch === 1)
    .map(({ microseconds }) => 100 * microseconds / shortest);
}

const step = (name: RegExp) => (lines: readonly Line[]) =>
  readShares(lines, ours(lines, "decode step", (of, text) => of.batch === 1 && name.test(text)));

/** The targets, set for an H100. */
export const TARGETS: readonly Target[] = [
  {
    text: "products of one token, of the read bandwidth",
    atLeast: true,
    goal: 90,
    unit: "%",
    values: (lines) => readShares(lines, ours(lines, "product", (of) => of.tokens === 1)),
  },
  {
    text: "products of 4,096 tokens without cuBLASLt, of the rate of large products",
    atLeast: true,
    goal: 80,
    unit: "%",
    values: (lines) => {
      const rate = limitOf(lines, "matrix TFLOP/s");
      return rate === 0 ? [] : lines
        .filter((line): line is SpeedLine =>
          line.kind === "speed" && line.by === "forge, no cuBLASLt" && line.of?.tokens === 4096
        ).map(({ teraflops = 0 }) => 100 * teraflops / rate);
    },
  },
  {
    text: "decode attention from 8k positions on, of the read bandwidth",
    atLeast: true,
    goal: 80,
    unit: "%",
    values: (lines) =>
      readShares(lines, ours(lines, "decode attention", (of) => (of.length ?? 0) >= 8192)),
  },
  {
    text: "decode attention, times what PyTorch's flash attention takes",
    atLeast: false,
    goal: 1,
    unit: "x",
    values: (lines) => times(lines, ours(lines, "decode attention"), "PyTorch"),
  },
  {
    text: "a decode step of 8B in BF16, of the bandwidth bound",
    atLeast: true,
    goal: 85,
    unit: "%",
    values: step(/8b:BF16/),
  },
  {
    text: "a decode step of 1B in BF16, of the bandwidth bound",
    atLeast: true,
    goal: 78,
    unit: "%",
    values: step(/1b:BF16/),
  },
  {
    text: "a decode step of 8B in Q8_0 and Q4_K, of the bandwidth bound",
    atLeast: true,
    goal: 80,
    unit: "%",
    values: step(/8b:Q/),
  },
  {
    text: "sampling one token, of a decode step of 8B",
    atLeast: false,
    goal: 2,
    unit: "%",
    values: samplingShares,
  },
  {
    text: "a decode step that computes next to nothing",
    atLeast: false,
    goal: 30,
    unit: "us",
    values: (lines) => ours(lines, "host").map(({ microseconds }) => microseconds),
  },
  {
    text: "start to first token of 8B, times what reading the file takes",
    atLeast: false,
    goal: 2,
    unit: "x",
    values: (lines) => {
      const time = (name: string) =>
        ours(lines, "start", (_, text) => text.startsWith(name))[0]?.microseconds;
      const start = time("first token"), read = time("reading the file");
      return start === undefined || read === undefined ? [] : [start / read];
    },
  },
  {
    text: "libflash_attn at head_dim 128 from 4k on, times what FlashAttention-2 takes",
    atLeast: false,
    goal: 0.625,
    unit: "x",
    values: (lines) => times(lines, forward(lines, "forge", 128, 4096), "FlashAttention-2"),
  },
  {
    text: "libflash_attn, times what cuDNN takes",
    atLeast: false,
    goal: 1.1,
    unit: "x",
    values: (lines) => times(lines, forward(lines, "forge", 128, 4096), "cuDNN"),
  },
  {
    text: "its kernel of SM80, times what FlashAttention-2 takes",
    atLeast: false,
    goal: 1.1,
    unit: "x",
    values: (lines) => times(lines, forward(lines, "forge, SM80", 128, 0), "FlashAttention-2"),
  },
  {
    text: "its decoding from 8k positions of 8 KV heads of BF16 on, of the read bandwidth",
    atLeast: true,
    goal: 85,
    unit: "%",
    values: (lines) =>
      readShares(
        lines,
        ours(
          lines,
          "flash_attn decode",
          (of) => (of.length ?? 0) >= 8192 && of.kvHeads === 8 && of.bits === 16,
        ),
      ),
  },
  {
    text: "its decoding, times what FlashAttention-2 takes",
    atLeast: false,
    goal: 1,
    unit: "x",
    values: (lines) => times(lines, ours(lines, "flash_attn decode"), "FlashAttention-2"),
  },
];

/** Judges every target by the measured lines. */
export function judge(lines: readonly Line[], targets: readonly Target[] = TARGETS): Verdict[] {
  return targets.map((target) => {
    const values = target.values(lines);
    if (values.length === 0) return { target, worst: undefined, met: undefined };
    // NaN counts as the worst value.
    const worst = values.reduce((a, b) =>
      Number.isNaN(a) || Number.isNaN(b) ? NaN : target.atLeast ? Math.min(a, b) : Math.max(a, b)
    );
    return { target, worst, met: target.atLeast ? worst >= target.goal : worst <= target.goal };
  });
}
