/**
 * Expected time of a launch: the work that the library plans, at the rates that the kernel's
 * machine code and the GPU allow.
 */
import { iterationClocks, type KernelMeasures } from "./kernel_measures.ts";
import type { Launch, Tiling } from "./launches.ts";
import type { EndMeasures, LoopMeasures } from "./loop_measures.ts";
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
  // One token takes as many products as eight.
  [/decode_gemm</, 8],
  [/gemm</, 64],
];

/** Returns the tokens of a tile of a kernel; 1 for those without tiles. */
function tileTokens(kernel: string): number {
  return TOKEN_TILES.find(([pattern]) => pattern.test(kernel))?.[1] ?? 1;
}

/**
 * Bytes that kernels next to a product or to libflash_attn move, whose operation has no bytes for
 * them: rows read in F32 and written in 16 bits, or the other way, unpacked weights (4.5 bits to
 * 16), and products that are read and written once more. Rows in F16 are assumed to have no scale
 * (kernels/cuda/rounded_rows.cuh).
 */
const PASSES: readonly (readonly [kernel: RegExp, bytes: (launch: Launch) => number])[] = [
  [/^convert_(rows|pairs)</, ({ blocks, matrix }) => 6 * blocks * columnsOf(matrix)],
  [/^convert_gated_rows</, ({ blocks, matrix }) => 10 * blocks * columnsOf(matrix)],
  // Eight blocks of 1024 columns share a tile of 64 queries.
  [/^cast_rows</, ({ blocks }) => 6 * 8 * 1024 * blocks],
  [/^dequantize</, ({ blocks, matrix }) => 2.6 * blocks * Math.min(columnsOf(matrix), 4096)],
  [
    /^epilogue$/,
    ({ epilogue, matrix }) => epilogue?.changes ? 8 * epilogue.tokens * rowsOf(matrix) : 0,
  ],
];

/** Returns a launch with the bytes of its pass. */
function withPass(launch: Launch): Launch {
  const bytesOf = PASSES.find(([pattern]) => pattern.test(launch.kernel))?.[1];
  if (bytesOf === undefined || launch.bytes > 0) return launch;
  return { ...launch, bytes: bytesOf(launch) };
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

/**
 * Returns the time of one launch.
 *
 * @param measures of its kernel; none for a library
 * @param flash share of the peak that libflash_attn reaches
 * @param waited microseconds of the launch before, if it leaves room for blocks of this one
 * @param boundary the way from the operation before
 */
export function launchTime(
  planned: Launch,
  measures: KernelMeasures | undefined,
  gpu: NvidiaGpu,
  flash: number = COSTS.flash,
  waited = 0,
  boundary: Boundary = launchBoundary(gpu),
): LaunchTime {
  const launch = withPass(planned);
  const { bytes, flops, kernel } = launch;
  // Operations without products could be parts of others.
  const limit = flops === 0 && launch.operation !== "sample"
    ? 0
    : Math.max(bytes / gpu.bandwidth / 1e3, flops / gpu.teraflops / 1e6);
  const { parts, overhead, work } = measures === undefined
    ? libraryTime(launch, gpu, flash, boundary)
    : /^(gated_)?decode_gemm</.test(kernel) && measures.stream?.ring
    ? ringTime(launch, measures, gpu, waited, boundary)
    : /decode_gemm</.test(kernel)
    ? tileTime(launch, measures, gpu, boundary)
    : kernelTime(launch, measures, gpu, boundary);
  const [bound, most] = Object.entries(parts).reduce((a, b) => b[1] > a[1] ? b : a);
  return {
    microseconds: overhead + work,
    limit,
    bound: (most < overhead ? "launch" : bound) as LaunchTime["bound"],
    intensity: bytes === 0 ? 0 : flops / bytes,
  };
}

type Parts = Partial<Record<Pipe | "L2" | "latency" | "memory" | "peak", number>>;

/** Microseconds of a launch: those of what bounds it, and of nothing that it could overlap. */
interface TimeParts {
  readonly parts: Parts;
  readonly work: number;
  readonly overhead: number;
}

/** Returns the time of parts that overlap imperfectly. */
function joined(parts: Parts): number {
  return Object.values(parts).reduce((sum, time) => sum + time ** COSTS.norm, 0) **
    (1 / COSTS.norm);
}

function memoryTime(bytes: number, gpu: NvidiaGpu): number {
  return bytes / (gpu.bandwidth * gpu.readable) / 1e3;
}

function libraryTime(
  { kernel, bytes, flops }: Launch,
  gpu: NvidiaGpu,
  flash: number,
  { gap }: Boundary,
): TimeParts {
  const share = /cublas/i.test(kernel) ? COSTS.library : flash;
  const parts = {
    peak: flops / (gpu.teraflops * share) / 1e6,
    memory: memoryTime(bytes, gpu),
  };
  return { parts, work: joined(parts), overhead: gap + COSTS.smallKernel };
}

function kernelTime(
  launch: Launch,
  measures: KernelMeasures,
  gpu: NvidiaGpu,
  { gap }: Boundary,
): TimeParts {
  const isTiled = /^wgmma_/.test(launch.kernel);
  const parts = {
    ...(isTiled ? tileParts : kernelParts)(launch, measures, gpu),
    memory: memoryTime(launch.bytes, gpu),
  };
  const stored = isTiled ? storeTime(launch, measures, gpu) : 0;
  const overhead = gap + startTime(measures, gpu) + stored + roundTime(launch);
  return { parts, work: joined(parts), overhead };
}

/** Microseconds in which a block of convert_rows rounds the columns of a row after the first. */
function roundTime({ kernel, matrix, threads }: Launch): number {
  return /^convert_rows</.test(kernel) ? laterColumns(matrix, threads) : 0;
}

function laterColumns(matrix: string, threads: number): number {
  return COSTS.roundedColumns * Math.max(0, columnsOf(matrix) / threads / 8 - 1);
}

/**
 * Microseconds in which the blocks of a product convert the rows of x: a block takes a row,
 * converts it, rows with a norm by 256 threads, and waits until the others are done.
 */
function conversionTime({ converted = "none", matrix, threads }: Launch): number {
  if (converted === "none") return 0;
  const all = converted === "normed" ? 256 : threads;
  return 2 * COSTS.arrival + COSTS.convertedRow + laterColumns(matrix, all);
}

/**
 * The time of a product whose blocks stay on the device and stream weights through rings. They
 * request weights in the places of blocks that end, or, after a launch that leaves room for them,
 * while it runs: until the rings are full. From the last weights of the product before, memory is
 * idle for one turn of blocks, and, if the rings are full before x is there, until it is.
 */
function ringTime(
  launch: Launch,
  measures: KernelMeasures,
  gpu: NvidiaGpu,
  waited: number,
  { gap, isCrossed }: Boundary,
): TimeParts {
  const { kernel, bytes } = launch;
  const latency = gpu.latencies.memory / gpu.clock / 1e3;
  const most = memoryTime(Math.min(bytes, earlyBytes(launch, measures, gpu)), gpu);
  const filled = Math.min(most, Math.max(0, waited - COSTS.launchAhead));
  const others = launch.tiling?.stages
    ? blockRingParts(launch, launch.tiling, measures, gpu)
    : ringParts(launch, measures, gpu);
  const parts = { ...others, memory: memoryTime(bytes, gpu) - filled };
  const inputs = ONE_TOKEN.test(kernel) ? COSTS.rowInputs : COSTS.inputs + conversionTime(launch);
  // Blocks of one kernel for the step do not end between two products.
  const isEarly = (measures.start?.early ?? 0) > 0;
  const idle = isCrossed ? gap + latency : isEarly ? COSTS.turn : gap + latency + COSTS.turn;
  // With all weights in the rings, x and the products remain.
  const least = gap + inputs + (others.latency ?? 0);
  const work = joined(parts);
  const stalled = Math.max(0, gap + inputs - idle - (most - filled));
  // Tokens of a ring of the block arrive after all weights that were requested before.
  const emptied = launch.tiling?.stages ? latency : 0;
  const overhead = Math.max(idle + stalled, least - work) + emptied + mergeTime(launch, gpu);
  return { parts, work, overhead };
}

/** Bytes of weights that all blocks request before they wait for the previous kernel. */
function earlyBytes(launch: Launch, measures: KernelMeasures, gpu: NvidiaGpu): number {
  const { blocks, tiling, shared } = launch;
  if (!tiling?.stages) {
    const warps = Math.min(blocks, gpu.multiprocessors * measures.blocks) * measures.warps /
      measures.blocks;
    return (measures.start?.early ?? 0) * warps;
  }
  const { tokens, columns } = blockRing(launch, measures);
  const stage = (shared - 4 * tiling.rows * tokens) / tiling.stages -
    2 * tokens * columns * tiling.slices;
  return Math.min(blocks, gpu.multiprocessors) * (tiling.stages - 1) * stage;
}

/** Tokens of a tile, rows of a warp and columns of a stage of a product with a block's ring. */
function blockRing({ kernel }: Launch, { threads, stream }: KernelMeasures) {
  const tokens = tileTokens(kernel);
  const warpRows = threads === 256 ? 32 : 16;
  return { tokens, warpRows, columns: stream!.products / tokens / warpRows };
}

/**
 * Microseconds of the multiprocessor with the most pieces, tiles of rows with a part of the
 * columns, whose warps wait for each other once a stage; and of L2, which groups of tokens read
 * weights from and every piece its tokens.
 */
function blockRingParts(
  launch: Launch,
  { parts, rows, slices, stages }: Tiling,
  measures: KernelMeasures,
  gpu: NvidiaGpu,
): Parts {
  const { stream } = measures;
  const { tokens, warpRows, columns } = blockRing(launch, measures);
  const groups = Math.ceil((productTokens(launch) ?? 1) / tokens);
  const pieces = Math.ceil(rowsOf(launch.matrix) / rows) * parts;
  const steps = Math.ceil(columnsOf(launch.matrix) / columns) / parts / slices *
    Math.ceil(pieces / (launch.blocks / groups));
  const warps = rows / warpRows * slices;
  const stage = (launch.shared - 4 * rows * tokens) / stages;
  const microseconds = (clocks: number) => clocks / gpu.clock / 1e3;
  const inputs = 2 * tokens * columnsOf(launch.matrix) * pieces / parts;
  return {
    ...Object.fromEntries(
      Object.entries(stream!.pipes).map((
        [pipe, clocks],
      ) => [pipe, microseconds(steps * warps * clocks)]),
    ),
    L2: microseconds(
      Math.max(
        steps * stage / COSTS.l2BytesPerMultiprocessor,
        groups * (launch.bytes + inputs) / gpu.l2BytesPerClock,
      ),
    ),
    latency: microseconds(steps * iterationClocks(stream!, gpu.latencies.memory)),
  };
}

/** Returns the parts of a ring: its weights pass L2 once, as fast as memory can be read. */
function ringParts(launch: Launch, measures: KernelMeasures, gpu: NvidiaGpu): Parts {
  const { L2: _, ...parts } = kernelParts(launch, measures, gpu);
  return parts;
}

/**
 * The time of a product whose blocks compute a tile each, with weights in registers. All warps of a
 * block wait for weights and then multiply: these times add up. Between the blocks of a
 * multiprocessor, memory is idle, and so it is before the first and after the last. Loads before
 * the wait gain nothing that can be measured.
 */
function tileTime(
  launch: Launch,
  measures: KernelMeasures,
  gpu: NvidiaGpu,
  { gap }: Boundary,
): TimeParts {
  const { stream } = measures;
  if (stream === undefined || stream.products === 0) {
    throw new Error(`the main loop of ${measures.instance} has no products of tensor cores`);
  }
  const blocks = Math.max(1, launch.blocks);
  const waves = Math.ceil(blocks / gpu.multiprocessors / measures.blocks);
  const memory = memoryTime(launch.bytes, gpu);
  const overhead = gap + (waves + 1) * COSTS.turn + waves * mergeTime(launch, gpu);
  if (stream.ring > 0) {
    const parts = { ...ringParts(launch, measures, gpu), memory };
    return { parts, work: joined(parts), overhead };
  }
  const warps = measures.warps / measures.blocks;
  const iterations = waves * warpIterations(launch, stream) / blocks / warps;
  const clocks = CLOCKS_PER_INSTRUCTION * iterations * stream.instructions;
  const parts = { memory, latency: clocks / gpu.clock / 1e3 };
  return { parts, work: parts.memory + parts.latency, overhead };
}

/**
 * Microseconds in which the last block of a tile adds up the parts of its columns that blocks have
 * computed: partial sums go to L2, the count of arrivals follows, and the sums come back. A thread
 * loads all parts of a sum at once, with a ring of the block those of four sums, and so many that
 * L2 bounds them.
 */
function mergeTime(launch: Launch, gpu: NvidiaGpu): number {
  const { kernel, tiling, threads } = launch;
  if (tiling === undefined || tiling.parts === 1 || ONE_TOKEN.test(kernel)) return 0;
  const tokens = Math.min(productTokens(launch) ?? 1, tileTokens(kernel));
  const sums = tiling.rows * tokens;
  if (tiling.stages === 0) return COSTS.mergedSum * sums / threads;
  const bytes = 4 * tiling.parts * sums;
  return COSTS.mergedSum * Math.ceil(sums / threads / 4) +
    bytes / COSTS.l2BytesPerMultiprocessor / gpu.clock / 1e3;
}

/** Products of a single token. */
const ONE_TOKEN = /decode_gemm<\w+, \w+, 0>$/;

/**
 * Microseconds from the wait for the previous kernel until the first streamed bytes arrive; of a
 * kernel that streams nothing, and of decode attention, whose blocks may have just one slice of
 * keys, those of a whole block.
 */
function startTime({ instance, start, end }: KernelMeasures, gpu: NvidiaGpu): number {
  const { l2, memory } = gpu.latencies;
  const time = ({ hops, instructions }: EndMeasures) =>
    (hops * l2 + CLOCKS_PER_INSTRUCTION * instructions) / gpu.clock / 1e3;
  if (end !== undefined && (start === undefined || /decode_attention</.test(instance))) {
    return time(end);
  }
  return start === undefined ? COSTS.smallKernel : time(start) + memory / gpu.clock / 1e3;
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
  const wait = stream.ring > 0
    ? iterationClocks(stream, gpu.latencies.memory)
    : latency + CLOCKS_PER_INSTRUCTION * stream.instructions;
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
    const tile = tileTokens(kernel);
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
  const tile = tileTokens(kernel);
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
