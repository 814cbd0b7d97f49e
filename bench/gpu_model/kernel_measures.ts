/** Static measures of a compiled kernel: occupancy, loops, and the bandwidth that they allow. */
import type { CompiledKernel } from "./compiled_kernels.ts";
import {
  type EndMeasures,
  type LoopMeasures,
  measureEnd,
  measureLoop,
  measureStart,
  type StartMeasures,
} from "./loop_measures.ts";
import { type Loop, MachineCode } from "./machine_code.ts";
import { type Architecture, CLOCKS_PER_INSTRUCTION, type NvidiaGpu, type Pipe } from "./nvidia.ts";

/** The measures of a kernel on an architecture. */
export interface KernelMeasures {
  readonly instance: string;
  readonly registers: number;
  readonly spillBytes: number;
  readonly threads: number;
  /** Static and dynamic shared memory of a block. */
  readonly sharedBytes: number;
  /** Resident on a multiprocessor. */
  readonly blocks: number;
  readonly warps: number;
  readonly loops: readonly LoopMeasures[];
  /** The loop that streams the most bytes; of a ring, the one over its stages. */
  readonly stream?: LoopMeasures;
  readonly start?: StartMeasures;
  readonly end?: EndMeasures;
}

/** Registers are allocated to warps in units of this size. */
const REGISTER_UNIT = 256;
/** Shared memory that the system takes from each block. */
const RESERVED_SHARED = 1024;

/** Number of blocks that a multiprocessor holds at once. */
export function residentBlocks(
  { registers, threads, sharedBytes }: Pick<
    KernelMeasures,
    "registers" | "threads" | "sharedBytes"
  >,
  architecture: Architecture,
): number {
  const warps = Math.ceil(threads / 32);
  const warpRegisters = Math.ceil(registers * 32 / REGISTER_UNIT) * REGISTER_UNIT;
  return Math.min(
    architecture.blocks,
    Math.floor(architecture.warps / warps),
    Math.floor(architecture.registers / (warps * warpRegisters)),
    Math.floor(architecture.sharedBytes / (sharedBytes + RESERVED_SHARED)),
  );
}

/**
 * Returns the measures of a kernel.
 *
 * @param launch its threads and dynamic shared memory; without them, the launch bounds and none.
 * Blocks: the most that a multiprocessor holds. Stages: of a ring whose length the code leaves open
 */
export function measureKernel(
  kernel: CompiledKernel,
  gpu: NvidiaGpu,
  launch: {
    readonly threads?: number;
    readonly dynamicShared?: number;
    readonly blocks?: number | undefined;
    readonly stages?: number | undefined;
  } = {},
): KernelMeasures {
  const code = MachineCode.parse(kernel.code);
  const { instance, registers, spillBytes } = kernel;
  const threads = launch.threads ?? kernel.threads;
  const sharedBytes = kernel.sharedBytes + (launch.dynamicShared ?? 0);
  const blocks = Math.min(
    launch.blocks ?? Infinity,
    residentBlocks({ registers, threads, sharedBytes }, gpu.architecture),
  );
  const loops = code.loops.map((loop) => {
    const measured = measureLoop(code, loop, gpu.architecture, gpu.latencies);
    return measured.ring > 0 && launch.stages ? { ...measured, ring: launch.stages - 1 } : measured;
  });
  const stream = streamingLoop(code.loops, loops);
  const end = measureEnd(code, gpu.latencies);
  const start = withRing(measureStart(code, gpu.latencies), stream);
  return {
    ...{ instance, registers, spillBytes, threads, sharedBytes, blocks },
    warps: blocks * Math.ceil(threads / 32),
    loops,
    ...(stream && { stream }),
    ...(start && { start }),
    ...(end && { end }),
  };
}

/** Returns a start with all stages of a ring that a loop fills before the wait. */
function withRing(
  start: StartMeasures | undefined,
  stream: LoopMeasures | undefined,
): StartMeasures | undefined {
  if (start === undefined || start.early === 0 || !stream?.ring) return start;
  return { ...start, early: stream.ring * stream.streamed };
}

/**
 * Returns the loop that streams the most: of loops inside each other the outermost, and of variants
 * of a loop, such as for rows of any length, the shortest. Of a ring, the loop over its stages
 * without those around it, which add up tiles, and not the one that fills it at first.
 */
function streamingLoop(
  loops: readonly Loop[],
  measures: readonly LoopMeasures[],
): LoopMeasures | undefined {
  const rings = measures.filter(({ ring, products }) => ring > 0 && products > 0);
  if (rings.length > 0) return rings.toSorted((a, b) => b.depth - a.depth)[0];
  const streams = loops.filter((_, i) => measures[i]!.streamed > 0);
  const isOuter = (loop: Loop) =>
    streams.every((other) => other === loop || !other.blocks.has(loop.header));
  return measures.filter((_, i) => streams.includes(loops[i]!) && isOuter(loops[i]!))
    .toSorted((a, b) => b.streamed - a.streamed || a.instructions - b.instructions)[0];
}

/** Upper bounds of a loop's streaming speed on a whole GPU, in 10^9 bytes per second. */
export interface StreamCaps {
  /** Every scheduler issues in every clock. */
  readonly issue: number;
  /** The busiest pipe is busy in every clock. */
  readonly pipe: number;
  readonly busiest: Pipe;
  /** Warps only wait for loads. */
  readonly latency: number;
  /** Bytes in flight per multiprocessor. */
  readonly inFlight: number;
}

/**
 * Clocks of an iteration of a warp that has its multiprocessor to itself. Copies of a ring arrive
 * while others are multiplied.
 */
export function iterationClocks(loop: LoopMeasures, memory: number): number {
  const work = CLOCKS_PER_INSTRUCTION * loop.instructions;
  return loop.ring > 0 ? Math.max(memory / loop.ring, work) : loop.latency + work;
}

/** Returns the bounds of a loop with `warps` resident warps per multiprocessor. */
export function streamCaps(loop: LoopMeasures, warps: number, gpu: NvidiaGpu): StreamCaps {
  const perClock = (bytes: number, clocks: number) =>
    clocks === 0 ? Infinity : gpu.multiprocessors * gpu.clock * bytes / clocks;
  const [busiest, clocks] = Object.entries(loop.pipes)
    .reduce((a, b) => b[1] > a[1] ? b : a) as [Pipe, number];
  const wait = iterationClocks(loop, gpu.latencies.memory);
  return {
    issue: perClock(loop.streamed, loop.pipes.issue),
    pipe: perClock(loop.streamed, clocks),
    busiest,
    latency: perClock(warps * loop.streamed, wait),
    inFlight: warps * loop.streamed *
      (loop.ring > 0 ? loop.ring : gpu.latencies.memory / wait),
  };
}
