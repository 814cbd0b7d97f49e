/**
 * Expected time of a launch: the work that the library plans, at the rates that the kernel's
 * machine code and the GPU allow.
 */
import type { KernelMeasures } from "./kernel_measures.ts";
import type { Launch } from "./launches.ts";
import type { LoopMeasures } from "./loop_measures.ts";
import { CLOCKS_PER_INSTRUCTION, COSTS, type NvidiaGpu, type Pipe } from "./nvidia.ts";

/** The parts of a launch's time in microseconds, and the part that bounds it. */
export interface LaunchTime {
  /** From the previous kernel's end. */
  readonly microseconds: number;
  /** Bytes of products and samples at the nominal bandwidth, or operations at the peak. */
  readonly limit: number;
  readonly bound: "memory" | "L2" | "latency" | "launch" | "peak" | Pipe;
  /** Operations per byte. */
  readonly intensity: number;
}

/**
 * Tokens of a tile of tensor-core kernels, by the kernel's name: others are computed and dropped.
 */
const TOKEN_TILES: readonly (readonly [RegExp, number])[] = [
  [/decode_gemm<.*, 8>$/, 64],
  [/decode_gemm<.*, 4>$/, 32],
  [/decode_gemm</, 8],
  [/gemm</, 64],
];

/**
 * Bytes that a block moves, of kernels next to a product whose operation has no bytes for them:
 * rows of x read in F32 and written in 16 bits, unpacked weights (4.5 bits to 16), and products
 * that are read and written once more.
 */
const PASSES: readonly (readonly [kernel: RegExp, bytes: (cols: number) => number])[] = [
  [/^convert_rows</, (cols) => 6 * cols],
  [/^dequantize</, (cols) => 2.6 * Math.min(cols, 4096)],
  [/^epilogue$/, () => 8 * 1024],
];

/** Returns a launch with the bytes of its pass. */
function withPass(launch: Launch): Launch {
  const { kernel, matrix, blocks, bytes } = launch;
  const each = PASSES.find(([pattern]) => pattern.test(kernel))?.[1];
  if (each === undefined || bytes > 0) return launch;
  return { ...launch, bytes: blocks * each(columnsOf(matrix)) };
}

/** Columns of a matrix such as `4096 x 14336 BF16`. */
function columnsOf(matrix: string): number {
  return Number(/ x (\d+)/.exec(matrix)?.[1] ?? 0);
}

/**
 * Returns the time of one launch.
 *
 * @param measures of its kernel; none for a library
 * @param flash share of the peak that libflash_attn reaches
 */
export function launchTime(
  planned: Launch,
  measures: KernelMeasures | undefined,
  gpu: NvidiaGpu,
  flash: number = COSTS.flash,
): LaunchTime {
  const launch = withPass(planned);
  const { bytes, flops } = launch;
  // Operations without products could be parts of others.
  const limit = flops === 0 && launch.operation !== "sample"
    ? 0
    : Math.max(bytes / gpu.bandwidth / 1e3, flops / gpu.teraflops / 1e6);
  const gap = gpu.architecture.name === "sm_80" ? COSTS.serialLaunch : COSTS.dependentLaunch;
  const parts = measures === undefined ? libraryParts(launch, gpu, flash) : {
    ...kernelParts(launch, measures, gpu),
    memory: memoryTime(bytes - earlyBytes(launch, measures, gpu), gpu),
  };
  const [bound, most] = Object.entries(parts).reduce((a, b) => b[1] > a[1] ? b : a);
  const work = Object.values(parts)
    .reduce((sum, time) => sum + time ** COSTS.norm, 0) ** (1 / COSTS.norm);
  const start = measures === undefined ? COSTS.smallKernel : startTime(measures, gpu);
  return {
    microseconds: gap + start + work + mergeTime(launch, gpu),
    limit,
    bound: (most < gap + start ? "launch" : bound) as LaunchTime["bound"],
    intensity: bytes === 0 ? 0 : flops / bytes,
  };
}

function memoryTime(bytes: number, gpu: NvidiaGpu): number {
  return bytes / (gpu.bandwidth * gpu.readable) / 1e3;
}

/**
 * Bytes that arrive before the first product of a kernel that requests weights before it waits for
 * the previous kernel. Its blocks take the places of those that end, so that memory works from then
 * on.
 */
function earlyBytes({ blocks, bytes }: Launch, measures: KernelMeasures, gpu: NvidiaGpu): number {
  const early = measures.start?.early ?? 0;
  const resident = Math.min(blocks, gpu.multiprocessors * measures.blocks);
  const requested = early * resident * measures.warps / measures.blocks;
  const time = COSTS.dependentLaunch + COSTS.inputs - gpu.latencies.memory / gpu.clock / 1e3;
  return Math.min(requested, bytes, time * gpu.bandwidth * gpu.readable * 1e3);
}

function libraryParts({ kernel, bytes, flops }: Launch, gpu: NvidiaGpu, flash: number) {
  const share = /cublas/i.test(kernel) ? COSTS.library : flash;
  return { peak: flops / (gpu.teraflops * share) / 1e6, memory: memoryTime(bytes, gpu) };
}

/**
 * Microseconds in which the last block of a tile adds up the sums of blocks that share its columns:
 * partial sums go to L2, the count of arrivals follows, and the sums come back.
 */
function mergeTime(launch: Launch, gpu: NvidiaGpu): number {
  const tokens = productTokens(launch), rows = Number(/^\d+/.exec(launch.matrix)?.[0]);
  const tile = decodeTile(launch.kernel);
  if (tokens === undefined || tile === undefined) return 0;
  const tiles = Math.ceil(tokens / Math.max(1, tile)) * Math.ceil(rows / (tile >= 32 ? 64 : 32));
  return launch.blocks > tiles ? 3 * gpu.latencies.l2 / gpu.clock / 1e3 : 0;
}

/** Tokens of a tile of decode_gemm or gated_decode_gemm; undefined for other kernels. */
function decodeTile(kernel: string): number | undefined {
  const tiles = /^(?:gated_)?decode_gemm<.*, (\d)>$/.exec(kernel)?.[1];
  return tiles === undefined ? undefined : 8 * Number(tiles);
}

/** Microseconds from the wait for the previous kernel until the first streamed bytes arrive. */
function startTime({ start }: KernelMeasures, gpu: NvidiaGpu): number {
  if (start === undefined) return COSTS.smallKernel;
  if (start.early > 0) return COSTS.inputs;
  const { l2, memory } = gpu.latencies;
  const clocks = start.hops * l2 + memory + CLOCKS_PER_INSTRUCTION * start.instructions;
  return clocks / gpu.clock / 1e3;
}

/** Microseconds of the pipes, of L2 and of waiting, on the multiprocessor with the most blocks. */
function kernelParts(
  launch: Launch,
  measures: KernelMeasures,
  gpu: NvidiaGpu,
): Partial<Record<Pipe | "L2" | "latency", number>> {
  const blocks = Math.max(1, launch.blocks);
  const busy = Math.min(blocks, gpu.multiprocessors);
  const microseconds = (clocks: number) => clocks / gpu.clock / 1e3;
  const { stream } = measures;
  if (stream === undefined || launch.bytes === 0) {
    const moved = launch.bytes / busy / COSTS.l2BytesPerMultiprocessor;
    return { L2: microseconds(moved) };
  }
  // Blocks are dealt out one by one, so that some multiprocessors get one more than others.
  const most = Math.ceil(blocks / gpu.multiprocessors);
  const iterations = warpIterations(launch, stream) * most / blocks;
  const resident = Math.min(measures.blocks, most) * measures.warps / measures.blocks;
  const wait = stream.latency + CLOCKS_PER_INSTRUCTION * stream.instructions;
  const requested = iterations * (stream.streamed + (fitsL1(launch) ? 0 : stream.cached));
  return {
    ...Object.fromEntries(
      Object.entries(stream.pipes).map((
        [pipe, clocks],
      ) => [pipe, microseconds(iterations * clocks)]),
    ),
    L2: microseconds(
      Math.max(
        requested / COSTS.l2BytesPerMultiprocessor,
        requested * busy / gpu.l2BytesPerClock,
      ),
    ),
    latency: microseconds(iterations / resident * wait),
  };
}

/** Iterations of a kernel's main loop, over all warps. */
function warpIterations(launch: Launch, stream: LoopMeasures): number {
  const { kernel, flops, bytes } = launch;
  const tokens = productTokens(launch);
  // Decode attention computes 16 rows for each query, and experts have few tokens of a tile, so
  // their bytes count.
  if (stream.products > 0 && !/attention|grouped_decode_gemm/.test(kernel)) {
    const tile = TOKEN_TILES.find(([pattern]) => pattern.test(kernel))?.[1] ?? 1;
    const padded = tokens === undefined ? 1 : Math.ceil(tokens / tile) * tile / tokens;
    return flops / 2 * padded / stream.products;
  }
  const together = Number(/^(?:grouped_)?matvec<(\d+)>$/.exec(kernel)?.[1] ?? 1);
  // A product of many tokens also reads x and writes results; weights alone are streamed, in F32.
  const weights = /^matvec</.test(kernel) ? Math.min(bytes, flops / 2 / (tokens ?? 1) * 4) : bytes;
  return Math.ceil((tokens ?? 1) / together) * weights / stream.streamed;
}

/** Bytes of L1 left for x, next to shared memory. */
const L1_BYTES = 128 * 1024;

/** True if the rows of x that a block multiplies stay in L1: 16-bit ones in tensor-core kernels. */
function fitsL1({ kernel, matrix }: Launch): boolean {
  const tile = TOKEN_TILES.find(([pattern]) => pattern.test(kernel))?.[1] ?? 1;
  return 2 * tile * columnsOf(matrix) <= L1_BYTES;
}

/** Tokens that a launch multiplies with its matrix; undefined for experts and other kernels. */
function productTokens({ operation, matrix, flops }: Launch): number | undefined {
  const [, rows, cols] = /^(\d+) x (\d+)/.exec(matrix) ?? [];
  if (operation !== "matmul" || rows === undefined) return undefined;
  return Math.max(1, Math.round(flops / 2 / Number(rows) / Number(cols)));
}
