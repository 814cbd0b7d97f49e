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
  [/decode_gemm<.*, 4(, 2)?>$/, 32],
  [/decode_gemm</, 8],
  [/gemm</, 64],
];

/**
 * Bytes that a block moves, of kernels next to a product whose operation has no bytes for them:
 * rows of x read in F32 and written in 16 bits, unpacked weights (4.5 bits to 16), and products
 * that are read and written once more.
 */
const PASSES: readonly (readonly [kernel: RegExp, bytes: (cols: number) => number])[] = [
  [/^convert_(rows|pairs)</, (cols) => 6 * cols],
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

/** Rows of a matrix such as `4096 x 14336 BF16`, of all experts. */
function rowsOf(matrix: string): number {
  return Number(/^(\d+) x /.exec(matrix)?.[1] ?? 0);
}

/** Columns of a matrix such as `4096 x 14336 BF16`. */
function columnsOf(matrix: string): number {
  return Number(/ x (\d+)/.exec(matrix)?.[1] ?? 0);
}

/** The way from one operation of a step to the next. */
export interface Boundary {
  /** Microseconds from the end of an operation to the first instruction of the next. */
  readonly gap: number;
  /** True if products request their first weights before it even if their kernels do not. */
  readonly isCrossed: boolean;
  /** Blocks that a multiprocessor holds, if fewer than the kernel's own registers allow. */
  readonly residentBlocks?: number;
}

/** Returns the boundary of two launches of a graph. */
export function launchBoundary(gpu: NvidiaGpu): Boundary {
  const gap = gpu.architecture.name === "sm_80" ? COSTS.serialLaunch : COSTS.dependentLaunch;
  return { gap, isCrossed: false };
}

/** Returns the bytes of weights that a warp of a product requests before the boundary. */
function requestedEarly({ instance, start, stream }: KernelMeasures, boundary: Boundary): number {
  const early = start?.early ?? 0;
  const isCrossed = boundary.isCrossed && /decode_gemm</.test(instance);
  return early === 0 && isCrossed ? stream?.streamed ?? 0 : early;
}

/**
 * Returns the time of one launch.
 *
 * @param measures of its kernel; none for a library
 * @param flash share of the peak that libflash_attn reaches
 * @param between microseconds of the launches after the product that requests its weights
 * @param boundary the way from the operation before
 */
export function launchTime(
  planned: Launch,
  measures: KernelMeasures | undefined,
  gpu: NvidiaGpu,
  flash: number = COSTS.flash,
  between = 0,
  boundary: Boundary = launchBoundary(gpu),
): LaunchTime {
  const launch = withPass(planned);
  const { bytes, flops } = launch;
  // Operations without products could be parts of others.
  const limit = flops === 0 && launch.operation !== "sample"
    ? 0
    : Math.max(bytes / gpu.bandwidth / 1e3, flops / gpu.teraflops / 1e6);
  const isTiled = /^wgmma_/.test(launch.kernel);
  const parts = measures === undefined ? libraryParts(launch, gpu, flash) : {
    ...(isTiled ? tileParts : kernelParts)(launch, measures, gpu),
    memory: memoryTime(bytes - earlyBytes(launch, measures, gpu, between, boundary), gpu),
  };
  const [bound, most] = Object.entries(parts).reduce((a, b) => b[1] > a[1] ? b : a);
  const work = Object.values(parts)
    .reduce((sum, time) => sum + time ** COSTS.norm, 0) ** (1 / COSTS.norm);
  const start = measures === undefined ? COSTS.smallKernel : startTime(measures, gpu, boundary);
  return {
    microseconds: boundary.gap + start + work + mergeTime(launch, gpu) +
      (isTiled && measures !== undefined ? storeTime(launch, measures, gpu) : 0),
    limit,
    bound: (most < boundary.gap + start ? "launch" : bound) as LaunchTime["bound"],
    intensity: bytes === 0 ? 0 : flops / bytes,
  };
}

function memoryTime(bytes: number, gpu: NvidiaGpu): number {
  return bytes / (gpu.bandwidth * gpu.readable) / 1e3;
}

/**
 * Bytes that arrive before the first product of a kernel: those that the product before it has
 * requested for L2, and those that it requests itself before it waits for the previous kernel. Its
 * blocks take the places of those that end, so that memory works from then on.
 *
 * Requested bytes follow the last weights of the product before, or, of products of several tokens,
 * begin to arrive a latency later. They share memory with what the launches in between read, and
 * stay in L2: the plan keeps both together below 3/8 of it. That L2 drops no line earlier is an
 * assumption; PRESERVE (Yüzügüler et al. 2025) prefetches weights during all-reduces in this way on
 * another accelerator. From L2 they are streamed like all others.
 */
function earlyBytes(
  { kernel, blocks, bytes, requested, between: others }: Launch,
  measures: KernelMeasures,
  gpu: NvidiaGpu,
  between: number,
  boundary: Boundary,
): number {
  const early = requestedEarly(measures, boundary);
  const resident = Math.min(blocks, gpu.multiprocessors * measures.blocks);
  // Of the rows of the blocks that run first.
  const prefetched = requested === 0 ? 0 : Math.min(1, requested * blocks / (bytes * resident));
  const own = (1 - prefetched) * early * resident * measures.warps / measures.blocks;
  const start = early > 0 || requested === 0
    ? inputsTime(kernel)
    : startTime(measures, gpu, boundary);
  const follows = requested > 0 && ONE_TOKEN.test(kernel);
  const latency = follows ? 0 : gpu.latencies.memory / gpu.clock / 1e3;
  const rate = gpu.bandwidth * gpu.readable * 1e3;
  const read = others.reduce((sum, other) => sum + other.bytes, 0);
  const most = Math.max(0, (between + boundary.gap + start - latency) * rate - read);
  return Math.min(requested + own, bytes, most);
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
  const tokens = productTokens(launch), rows = rowsOf(launch.matrix);
  const tile = decodeTile(launch.kernel);
  if (tokens === undefined || tile === undefined) return 0;
  const tiles = Math.ceil(tokens / tile.tokens) * Math.ceil(rows / tile.rows);
  return launch.blocks > tiles ? 3 * gpu.latencies.l2 / gpu.clock / 1e3 : 0;
}

/**
 * Tokens and rows of a tile of decode_gemm or gated_decode_gemm (csrc/cuda/plan_products.cpp);
 * undefined for other kernels.
 */
function decodeTile(kernel: string): { tokens: number; rows: number } | undefined {
  const [, gated, format, tiles, short] =
    /^(gated_)?decode_gemm<(\w+).*?, (\d)(, \d)?>$/.exec(kernel) ?? [];
  if (tiles === undefined) return undefined;
  const halves = short !== undefined || (gated !== undefined && tiles === "0");
  const rows = format === "Blocks" ? 32 : (tiles === "4" ? 128 : 64) / (halves ? 2 : 1);
  return { tokens: Math.max(1, 8 * Number(tiles)), rows };
}

/** Products of a single token. */
const ONE_TOKEN = /decode_gemm<.*, 0(, 1)?>$/;

function inputsTime(kernel: string): number {
  return ONE_TOKEN.test(kernel) ? COSTS.rowInputs : COSTS.inputs;
}

/** Microseconds from the wait for the previous kernel until the first streamed bytes arrive. */
function startTime(measures: KernelMeasures, gpu: NvidiaGpu, boundary: Boundary): number {
  const { start } = measures;
  if (start === undefined) return COSTS.smallKernel;
  if (requestedEarly(measures, boundary) > 0) return inputsTime(measures.instance);
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
  const { instance, stream } = measures;
  if (stream === undefined || launch.bytes === 0) {
    const moved = launch.bytes / busy / COSTS.l2BytesPerMultiprocessor;
    return { L2: microseconds(moved) };
  }
  if (/gemm</.test(instance) && stream.products === 0) {
    throw new Error(`the main loop of ${instance} has no products of tensor cores`);
  }
  // Blocks are dealt out one by one, so that some multiprocessors get one more than others.
  const most = Math.ceil(blocks / gpu.multiprocessors);
  const all = warpIterations(launch, stream);
  const iterations = all * most / blocks;
  const resident = Math.min(measures.blocks, most) * measures.warps / measures.blocks;
  // Blocks of other tokens, and of other rows, stream the same bytes again: from L2.
  const fromMemory = Math.min(1, launch.bytes / (all * stream.streamed));
  const latency = fromMemory * stream.latency + (1 - fromMemory) * stream.latencyFromL2;
  const wait = latency + CLOCKS_PER_INSTRUCTION * stream.instructions;
  const requested = iterations * (stream.streamed + (fitsL1(launch) ? 0 : stream.cached)) +
    most * matvecInputs(launch);
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

/** Warps of a kernel with wgmma that multiply, and tokens of a tile. */
const WGMMA = { warps: 8, tokens: 128 } as const;

/** The work of a kernel with wgmma, apart from its machine code. */
interface WgmmaKind {
  /** Columns of a step. */
  readonly columns: number;
  /** Rows and tokens of a product of a warpgroup, of 16 columns. */
  readonly product: readonly [rows: number, tokens: number];
  /** Bytes of shared memory that a product reads. */
  readonly productBytes: number;
  /** Bytes that TMA copies to shared memory in a step of a tile of `rows` rows. */
  readonly copied: (rows: number) => number;
  /** Share of the last tile of an expert, half of which has tokens, that is computed in vain. */
  readonly waste: number;
  /** Times that a warp waits for L2 while it stores a tile, on top of one for memory. */
  readonly waits: number;
}
/** kernels/cuda/wgmma_gemm.cuh: tokens and rows are in shared memory. */
const HALF_WGMMA: WgmmaKind = {
  columns: 64,
  product: [128, 64],
  productBytes: (64 + 128) * 16 * 2,
  copied: (rows) => 64 * 2 * (WGMMA.tokens + rows),
  waste: 0.5,
  waits: 0,
};
/**
 * kernels/cuda/wgmma_quantized.cuh: only tokens are in shared memory, and half of a tile with up to
 * 64 of them is left out. Sums are stored 16 tokens at a time.
 */
const QUANTIZED_WGMMA: WgmmaKind = {
  columns: 128,
  product: [64, 64],
  productBytes: 64 * 16 * 2,
  copied: () => 128 * 2 * WGMMA.tokens,
  waste: 0.25,
  waits: 8,
};
/**
 * Clocks in which the warps of a block store the sums of a row of a tile: 128 sums, each written to
 * shared memory, read from it, added to a residual and stored, 32 lanes a clock.
 */
const STORE_CLOCKS = 16;

/** The tiles of a kernel with wgmma. */
interface TileWork {
  readonly kind: WgmmaKind;
  /** Of the multiprocessor with the most tiles. */
  readonly tiles: number;
  /** Multiprocessors with a tile. */
  readonly busy: number;
  /** Rows of a tile. */
  readonly rows: number;
  /** The loop over steps of columns. */
  readonly loop: LoopMeasures;
  readonly steps: number;
}

function tileWork(launch: Launch, { instance, loops }: KernelMeasures, gpu: NvidiaGpu): TileWork {
  // Of loops inside each other the innermost: those around it also store sums.
  const loop = loops.filter(({ products }) => products > 0)
    .toSorted((a, b) => b.depth - a.depth || b.products - a.products)[0];
  if (loop === undefined) throw new Error(`${instance} has no products`);
  const kind = instance.includes("quantized") ? QUANTIZED_WGMMA : HALF_WGMMA;
  const rows = loop.products * WGMMA.warps / WGMMA.tokens / kind.columns;
  const tokens = productTokens(launch), allRows = rowsOf(launch.matrix);
  const tiles = tokens === undefined
    ? launch.flops / 2 / columnsOf(launch.matrix) / WGMMA.tokens / rows +
      allRows / rows * kind.waste
    : Math.ceil(tokens / WGMMA.tokens) * Math.ceil(allRows / rows);
  return {
    kind,
    tiles: Math.ceil(tiles / gpu.multiprocessors),
    busy: Math.min(tiles, gpu.multiprocessors),
    rows,
    loop,
    steps: Math.ceil(columnsOf(launch.matrix) / kind.columns),
  };
}

/**
 * Microseconds of the tensor cores, at the clock that power allows under their load, of the other
 * pipes, of shared memory, which copies write and products read, and of L2.
 */
function tileParts(
  launch: Launch,
  measures: KernelMeasures,
  gpu: NvidiaGpu,
): Partial<Record<Pipe | "L2" | "latency", number>> {
  const { kind, tiles, busy, rows, loop, steps } = tileWork(launch, measures, gpu);
  const { rates } = gpu.architecture;
  const copied = kind.copied(rows), streamed = WGMMA.warps * loop.streamed;
  const [productRows, productTokens] = kind.product;
  const products = loop.products * WGMMA.warps / (productRows * productTokens * 16);
  const powered = gpu.teraflops * 1e3 / (2 * rates.wgmma * gpu.multiprocessors * gpu.clock);
  const time = (clocks: number) => tiles * steps * clocks / gpu.clock / 1e3;
  const { tensor, lsu, ...others } = loop.pipes;
  return {
    ...Object.fromEntries(
      Object.entries(others).map(([pipe, clocks]) => [pipe, time(WGMMA.warps * clocks)]),
    ),
    tensor: time(WGMMA.warps * tensor / powered),
    lsu: time(WGMMA.warps * lsu + (copied + products * kind.productBytes) / rates.l1Bytes),
    L2: time(
      Math.max(
        (copied + streamed) / COSTS.l2BytesPerMultiprocessor,
        busy * (copied / gpu.bulkBytesPerClock + streamed / gpu.l2BytesPerClock),
      ),
    ),
  };
}

/** Microseconds of storing sums, in which a block multiplies nothing. */
function storeTime(launch: Launch, measures: KernelMeasures, gpu: NvidiaGpu): number {
  const { kind, tiles, rows } = tileWork(launch, measures, gpu);
  const { l2, memory } = gpu.latencies;
  return tiles * (STORE_CLOCKS * rows + memory + kind.waits * l2) / gpu.clock / 1e3;
}

/** Iterations of a kernel's main loop, over all warps. */
function warpIterations(launch: Launch, stream: LoopMeasures): number {
  const { kernel, matrix, flops, bytes } = launch;
  const tokens = productTokens(launch);
  // Decode attention computes 16 rows for each query, and experts have few tokens of a tile, so
  // their bytes count.
  if (stream.products > 0 && !/attention|grouped_decode_gemm/.test(kernel)) {
    const tile = TOKEN_TILES.find(([pattern]) => pattern.test(kernel))?.[1] ?? 1;
    // Half of the last tile of each expert is empty.
    const padded = tokens === undefined
      ? flops / 2 + tile / 2 * rowsOf(matrix) * columnsOf(matrix)
      : flops / 2 * Math.ceil(tokens / tile) * tile / tokens;
    return padded / stream.products;
  }
  const together = matvecTokens(launch) ?? 1;
  // A product of many tokens also reads x and writes results; weights alone are streamed, in F32.
  const weights = /^matvec</.test(kernel) ? Math.min(bytes, flops / 2 / (tokens ?? 1) * 4) : bytes;
  return Math.ceil((tokens ?? 1) / together) * weights / stream.streamed;
}

/** Bytes of L1 left for x, next to shared memory. */
const L1_BYTES = 128 * 1024;

/**
 * True if the rows of x that a block multiplies stay in L1: 16-bit ones in tensor-core kernels.
 * Those of decode products are in shared memory, and their scales share lines in L1
 * (test/cuda/address_trace_test.ts).
 */
function fitsL1(launch: Launch): boolean {
  const { kernel, matrix } = launch;
  if (/decode_gemm</.test(kernel)) return true;
  if (matvecTokens(launch) !== undefined) return inputRows(launch) <= L1_BYTES;
  const tile = TOKEN_TILES.find(([pattern]) => pattern.test(kernel))?.[1] ?? 1;
  return 2 * tile * columnsOf(matrix) <= L1_BYTES;
}

/** Tokens of a block of matvec or grouped_matvec; undefined for other kernels. */
function matvecTokens({ kernel }: Launch): number | undefined {
  const tokens = /^(?:grouped_)?matvec<(\d+)>$/.exec(kernel)?.[1];
  return tokens === undefined ? undefined : Number(tokens);
}

/** Bytes of the rows of x, in F32, that a block of matvec multiplies. */
function inputRows(launch: Launch): number {
  return 4 * (matvecTokens(launch) ?? 0) * columnsOf(launch.matrix);
}

/** Bytes of x that each block of matvec requests from L2 before they are in L1. */
function matvecInputs(launch: Launch): number {
  return fitsL1(launch) ? inputRows(launch) : 0;
}

/** Tokens that a launch multiplies with its matrix; undefined for experts and other kernels. */
function productTokens({ operation, matrix, flops }: Launch): number | undefined {
  const [, rows, cols] = /^(\d+) x (\d+)/.exec(matrix) ?? [];
  if (operation !== "matmul" || rows === undefined) return undefined;
  return Math.max(1, Math.round(flops / 2 / Number(rows) / Number(cols)));
}
