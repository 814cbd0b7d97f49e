/**
 * Expected speed of libflash_attn: the machine code of its kernels, and the order of their tiles on
 * the multiprocessors. Next to the published figures of FlashAttention-3 and FlashAttention-2.
 */
import { join } from "@std/path";
import { disassembleObject, type KernelCode } from "../../test/emulator/nvdisasm.ts";
import { root } from "../root.ts";
import {
  type LoopMeasures,
  measureEnd,
  measureLoop,
  measureStart,
  type Way,
} from "./loop_measures.ts";
import { MachineCode } from "./machine_code.ts";
import {
  A100,
  CLOCKS_PER_INSTRUCTION,
  COSTS,
  H100,
  ISSUE_PER_CLOCK,
  type NvidiaGpu,
  type Pipe,
} from "./nvidia.ts";
import type { Prediction } from "./predictions.ts";

/**
 * Consumer warpgroups of a block by head_dim, 64 rows each (csrc/flash_attn/sm90/forward_tile.h).
 */
const CONSUMERS: Readonly<Record<number, number>> = { 64: 3, 96: 2, 128: 2, 192: 2, 256: 2 };
const CONSUMER_ROWS = 64;

/** Tokens in all, and columns of all heads, as in FlashAttention's own benchmark. */
const TOKENS = 16384, COLUMNS = 2048;
const LENGTHS = [512, 1024, 2048, 4096, 8192, 16384, 131072] as const;

/** Sequences of a prefill, and where their keys are. */
interface Prefill {
  readonly layout: "" | "varlen" | "pages";
  readonly lengths: readonly number[];
  readonly causal: boolean;
}

/** Packed sequences of one batch, and sequences whose keys are in pages of PAGE rows. */
const VARLEN = [1024, 128, 4096, 512, 8192, 256, 2048, 128] as const;
const PAGED = [4096, 4096, 4096, 4096] as const, PAGE = 16;

const PREFILLS: readonly Prefill[] = [
  ...[true, false].flatMap((causal) =>
    LENGTHS.map((length): Prefill => {
      const batch = Math.max(1, TOKENS / length);
      return { layout: "", lengths: new Array<number>(batch).fill(length), causal };
    })
  ),
  { layout: "varlen", lengths: VARLEN, causal: true },
  { layout: "pages", lengths: PAGED, causal: true },
];

/** True for the shapes with a mask, which has 1 GiB at most. */
const takesMask = ({ layout, lengths, causal }: Prefill) =>
  layout === "" && !causal && lengths[0]! <= TOKENS;

/** Clocks of a tile of rows outside of its loop: the first product, the last one, storing rows. */
const TILE_CLOCKS = 2500;
/** Clocks of a tile beyond the end of its sequence: the claim and the length, from L2 in turn. */
const SKIPPED_CLOCKS = 600;
/** Bytes of keys and values of a section of heads (host/forward_plan.cpp). */
const SECTION_BYTES = 32 << 20;
/** Multiply-adds of mma.sync. */
const PRODUCTS_PER_MMA = 16 * 8 * 16;
/** Warps of a warpgroup. */
const WARPS = 4;
/** Clocks of an instruction of a warpgroup, whose four warps run on a scheduler each. */
const GROUP_CLOCKS_PER_INSTRUCTION = 1.3;
/**
 * Clocks of a consumer's turn: barriers between consumers, and latencies of products. Fitted to the
 * published figures of FlashAttention-3, whose consumers take turns in the same way.
 */
const TURN_CLOCKS = 145;
/** Share of the clock that remains under the power of tensor cores. */
const powered = (gpu: NvidiaGpu) =>
  gpu.teraflops * 1e3 / (2 * gpu.architecture.rates.wgmma * gpu.multiprocessors * gpu.clock);

/** An H100's clock in 10^9 per second while its tensor cores work, to which figures are fitted. */
const PUBLISHED_CLOCK = 1.755;

/** FlashAttention-3's published TFLOP/s on an H100 by head_dim and length (Shah et al., 2024). */
const PUBLISHED_3: Readonly<Record<string, number>> = {
  "64 causal 2048": 371,
  "64 causal 4096": 420,
  "64 causal 8192": 460,
  "64 causal 16384": 473,
  "128 causal 2048": 521,
  "128 causal 4096": 579,
  "128 causal 8192": 602,
  "128 causal 16384": 616,
};

/**
 * FlashAttention-2's published TFLOP/s. H100: github.com/Dao-AILab/flash-attention, pull requests
 * 2688 (head_dim 64) and 1791 (128). A100: the best of Dao, 2023, 73% of the peak.
 */
const PUBLISHED_2: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  A100: { "128 16384": 225 },
  H100: {
    "64 512": 252,
    "64 1024": 295,
    "64 2048": 308,
    "64 4096": 312,
    "64 8192": 310,
    "128 8192": 370,
    "128 causal 8192": 284,
  },
};

/** Rows of a tile of the SM80 kernels. */
const SM80_ROWS = 128;
/** Keys of a tile and warps of a block by head_dim. */
const SM80_TILES: Readonly<Record<number, { readonly keys: number; readonly warps: number }>> = {
  64: { keys: 96, warps: 4 },
  96: { keys: 64, warps: 4 },
  128: { keys: 64, warps: 4 },
  192: { keys: 64, warps: 8 },
  256: { keys: 32, warps: 8 },
};
/** Keys of a tile with a mask. */
const MASKED_KEYS: Readonly<Record<number, number>> = { 64: 32, 96: 32, 128: 32, 192: 64, 256: 32 };
/** Warps of all blocks of a multiprocessor. */
const SM80_WARPS = 8;
/**
 * Clocks of an instruction other than a product, fitted to the published figures with the machine
 * code of FlashAttention-2 itself: compiled by the same nvcc, a warp has 683 such instructions for
 * 64 keys of head_dim 128, and 920 for 128 keys of head_dim 64. The fit meets them within 5%, from
 * 1,024 tokens on.
 */
const SM80_CLOCKS_PER_INSTRUCTION = { sm_80: 0.95, sm_90: 1.35 } as const;

/** A prediction of prefill attention. */
export interface FlashPrediction extends Prediction {
  readonly teraflops: number;
  /** The published figure to compare with. */
  readonly published?: { readonly of: string; readonly teraflops: number };
}

/**
 * Predicts the forward kernels of all shapes, those of SM80 on an H100 and an A100; undefined if
 * nvcc has not compiled them, or without the disassemblers.
 */
export async function predictFlash(
  headDims: readonly number[] = Object.keys(CONSUMERS).map(Number),
): Promise<FlashPrediction[] | undefined> {
  const predictions: FlashPrediction[] = [];
  for (const gpu of [H100, A100]) {
    for (const headDim of headDims) {
      const kernels = [
        ...gpu === H100 ? [await sm90Kernel(headDim)] : [],
        ...gpu === H100 && headDim !== 96 ? [await sm90Kernel(headDim, true)] : [],
        await sm80Kernel(headDim, gpu),
      ];
      for (const kernel of kernels) {
        if (kernel === undefined) return undefined;
        for (const prefill of PREFILLS) predictions.push(predict(kernel, headDim, prefill));
      }
      const masked = await sm80Kernel(headDim, gpu, true);
      if (masked === undefined) return undefined;
      for (const prefill of PREFILLS.filter(takesMask)) {
        predictions.push(predict(masked, headDim, prefill));
      }
    }
  }
  return predictions;
}

/**
 * Returns the share of the peak in causal attention of this shape, by the kernels that the GPU
 * runs; undefined as predictFlash.
 */
export async function flashShare(
  gpu: NvidiaGpu,
  headDim: number,
  length: number,
): Promise<number | undefined> {
  if (CONSUMERS[headDim] === undefined) return undefined;
  const kernel = gpu.architecture.name === "sm_90"
    ? await sm90Kernel(headDim)
    : await sm80Kernel(headDim, gpu);
  const batch = Math.max(1, TOKENS / length);
  const lengths = new Array<number>(Math.floor(batch)).fill(length);
  return kernel && predict(kernel, headDim, { layout: "", lengths, causal: true }).share;
}

/** A forward kernel on a GPU. */
interface ForwardKernel {
  readonly name: string;
  /** Of the inputs. */
  readonly type: "BF16" | "E4M3";
  /** The peak under load. */
  readonly teraflops: number;
  readonly gpu: NvidiaGpu;
  /** Rows and keys of a tile. */
  readonly rows: number;
  readonly keys: number;
  /** Blocks on a multiprocessor. */
  readonly blocks: number;
  /** Clocks of a tile of keys of each of these blocks, and of one that is in pages. */
  readonly clocks: number;
  readonly pagedClocks: number;
  /** Clocks in 10^9 per second. */
  readonly clock: number;
  /** The library that has published figures, and these. */
  readonly peer: string;
  readonly published: Readonly<Record<string, number>>;
}

async function sm90Kernel(headDim: number, e4m3 = false): Promise<ForwardKernel | undefined> {
  const kernel = (await kernelsOf(`forward_${e4m3 ? "e4m3_" : ""}${headDim}`, "sm90"))
    ?.find(({ symbol }) => (e4m3 ? /e4m3_pair.*ELb0/ : /bf16/).test(symbol));
  if (kernel === undefined) return undefined;
  const code = MachineCode.parse(kernel.text);
  // Of the loops with products, the one without a mask has the fewest instructions.
  const loop = code.loops
    .map((loop) => measureLoop(code, loop, H100.architecture, H100.latencies))
    .filter(({ products }) => products > 0)
    .toSorted((a, b) => a.instructions - b.instructions)[0];
  if (loop === undefined) throw new Error("the kernel has no loop with products");
  const consumers = CONSUMERS[headDim]!;
  // Two products of a consumer's rows: with keys, and with values.
  const keys = loop.products * WARPS / (2 * CONSUMER_ROWS * headDim);
  const clocks = Math.max(
    loopClocks(loop, consumers),
    e4m3 ? transposerClocks(code, keys * headDim) : 0,
  );
  return {
    name: e4m3 ? "flash_attn E4M3" : "flash_attn",
    type: e4m3 ? "E4M3" : "BF16",
    teraflops: H100.teraflops * (e4m3 ? 2 : 1),
    gpu: H100,
    rows: CONSUMER_ROWS * consumers,
    keys,
    blocks: 1,
    clocks,
    pagedClocks: Math.max(
      clocks,
      producerClocks(code, 2 * keys / PAGE * panels(e4m3 ? headDim / 2 : headDim)),
    ),
    clock: H100.clock * powered(H100),
    peer: "FlashAttention-3",
    published: e4m3 ? {} : PUBLISHED_3,
  };
}

/** Warps that transpose values of E4M3, and numbers of a block (sm90/transposer.cuh). */
const TRANSPOSERS = 3, TRANSPOSED = 32 * 16;

/** Clocks in which warps transpose a tile of so many values. */
function transposerClocks(code: MachineCode, values: number): number {
  const loop = code.loops
    .map((loop) => measureLoop(code, loop, H100.architecture, H100.latencies))
    .find(({ products, mix }) => products === 0 && mix.some(([name]) => name === "LDSM"));
  if (loop === undefined) throw new Error("the kernel has no loop that transposes values");
  const blocks = loop.mix.find(([name]) => name === "LDSM")![1];
  return CLOCKS_PER_INSTRUCTION * loop.instructions * values / TRANSPOSED / blocks / TRANSPOSERS;
}

/** Panels of a row of so many 16-bit columns (sm90/forward_tile.h). */
const panels = (columns: number) => columns / (columns % 64 === 0 ? 64 : 32);

/**
 * Clocks in which the producer starts the copies of a tile of keys and values: the numbers of their
 * pages come from L2, and the lanes that start a copy do so one after another.
 */
function producerClocks(code: MachineCode, copies: number): number {
  const loops = code.loops
    .filter(({ blocks }) =>
      [...blocks].some((at) => code.blocks[at]!.instructions.some(({ name }) => name === "UTMALDG"))
    )
    .map((loop) => measureLoop(code, loop, H100.architecture, H100.latencies));
  const most = (some: readonly LoopMeasures[]) =>
    Math.max(...some.map(({ instructions }) => instructions));
  const innermost = Math.max(...loops.map(({ depth }) => depth));
  // The loop over tiles of rows has inside it the loop over tiles of keys.
  const tile = most(loops.filter(({ depth }) => depth === 1));
  const copy = most(loops.filter(({ depth }) => depth === innermost));
  return 2 * H100.latencies.l2 + CLOCKS_PER_INSTRUCTION * (tile + copies * copy);
}

/** The kernel of SM80, or its instance with a mask of F32 that heads share, so that L2 has it. */
async function sm80Kernel(
  headDim: number,
  gpu: NvidiaGpu,
  isMasked = false,
): Promise<ForwardKernel | undefined> {
  const file = `${isMasked ? "masked" : "forward"}_${headDim}`;
  const kernel = (await kernelsOf(file, "sm80"))?.find((
    { symbol, architecture },
  ) => /forward_sm80.*bf16/.test(symbol) && architecture === gpu.architecture.name);
  if (kernel === undefined) return undefined;
  const { warps } = SM80_TILES[headDim]!, keys = sm80Keys(headDim, isMasked);
  const products = sm80Products(headDim, isMasked), code = MachineCode.parse(kernel.text);
  const computed = (way: Way) => sm80Clocks(mainIteration(code, products, gpu, way), products, gpu);
  const blocks = SM80_WARPS / warps;
  if (isMasked) {
    const loaded = blocks * SM80_ROWS * keys * 4 / COSTS.l2BytesPerMultiprocessor;
    const clocks = Math.max(computed("loads"), loaded);
    return { ...unpublished("flash_attn masked", gpu), keys, blocks, clocks, pagedClocks: clocks };
  }
  return {
    ...unpublished("flash_attn SM80", gpu),
    keys,
    blocks,
    clocks: computed("streams"),
    pagedClocks: computed("loads"),
    published: PUBLISHED_2[gpu.name] ?? {},
  };
}

/** Common properties of the kernels of SM80, without published figures. */
function unpublished(
  name: string,
  gpu: NvidiaGpu,
): Omit<ForwardKernel, "keys" | "blocks" | "clocks" | "pagedClocks"> {
  return {
    ...{ name, teraflops: gpu.teraflops, gpu, rows: SM80_ROWS },
    clock: gpu === H100 ? PUBLISHED_CLOCK : gpu.clock,
    type: "BF16",
    peer: "FlashAttention-2",
    published: {},
  };
}

/** Keys of a tile of the SM80 kernels. */
function sm80Keys(headDim: number, isMasked: boolean): number {
  return isMasked ? MASKED_KEYS[headDim]! : SM80_TILES[headDim]!.keys;
}

/** Returns the kernels of an object file; undefined without a library or a disassembler. */
async function kernelsOf(
  file: string,
  part: "sm80" | "sm90" | "decode",
): Promise<KernelCode[] | undefined> {
  const folder = join(root, "build", "obj", `${Deno.build.os}-${Deno.build.arch}`, "flash_attn");
  const path = join(folder, part, `${file}.cu.o`);
  try {
    Deno.statSync(path);
  } catch {
    return undefined;
  }
  return await disassembleObject(path);
}

function predict(kernel: ForwardKernel, headDim: number, prefill: Prefill): FlashPrediction {
  const { gpu, published } = kernel, { layout, lengths, causal } = prefill;
  const heads = COLUMNS / headDim, depth = Math.max(...lengths);
  const time_us = COSTS.serialLaunch + COSTS.smallKernel +
    longest(kernel, headDim, prefill) / kernel.clock / 1e3;
  const pairs = lengths.reduce((sum, length) => sum + length * length, 0) / (causal ? 2 : 1);
  const flops = 4 * heads * pairs * headDim;
  const limit_us = flops / kernel.teraflops / 1e6;
  const shape = [headDim, ...(causal ? ["causal"] : []), ...(layout === "" ? [] : [layout])].join(
    " ",
  );
  const figure = published[`${shape} ${depth}`];
  return {
    device: gpu.name,
    model: `${kernel.name} ${shape}`,
    type: kernel.type,
    workload: "prefill",
    batch: lengths.length,
    depth,
    time_us,
    limit_us,
    share: limit_us / time_us,
    teraflops: flops / time_us / 1e6,
    ...(figure !== undefined && { published: { of: kernel.peer, teraflops: figure } }),
  };
}

/**
 * Clocks of a tile of keys for all consumers: their products share the tensor cores, their softmax
 * the other pipes, and a consumer alternates between both.
 */
function loopClocks(loop: LoopMeasures, consumers: number): number {
  const { tensor, ...others } = loop.pipes;
  const products = WARPS * consumers * tensor;
  const softmax = WARPS * consumers * Math.max(...Object.values(others));
  const alone = WARPS * tensor + GROUP_CLOCKS_PER_INSTRUCTION * loop.instructions;
  return joined([products, softmax, alone]) + consumers * TURN_CLOCKS;
}

/** The time of parts that overlap imperfectly. */
function joined(parts: readonly number[]): number {
  return parts.reduce((sum, part) => sum + part ** COSTS.norm, 0) ** (1 / COSTS.norm);
}

/** Instructions and clocks of pipes of a warp. */
type Iteration = Pick<LoopMeasures, "instructions" | "pipes">;

/**
 * Returns an iteration of a kernel's loop over tiles of keys, which has this many multiply-adds. A
 * loop inside it, over columns of K, runs as often as they require. On the way with the most loads,
 * pages are looked up.
 */
function mainIteration(
  code: MachineCode,
  products: number,
  gpu: NvidiaGpu,
  way: Way = "streams",
): Iteration {
  const [outer, inner] = code.loops
    .map((loop) => measureLoop(code, loop, gpu.architecture, gpu.latencies, way))
    .filter((loop) => loop.products > 0)
    .toSorted((a, b) => a.depth - b.depth);
  if (outer === undefined) throw new Error("the kernel has no loop with products");
  const again = inner === undefined ? 0 : (products - outer.products) / inner.products;
  if (!Number.isInteger(again) || outer.products + again * (inner?.products ?? 0) !== products) {
    throw new Error(`the loop has ${outer.products} products instead of ${products}`);
  }
  const pipes = Object.entries(outer.pipes).map(([pipe, clocks]) =>
    [pipe, clocks + again * (inner?.pipes[pipe as Pipe] ?? 0)] as const
  );
  return {
    instructions: outer.instructions + again * (inner?.instructions ?? 0),
    pipes: Object.fromEntries(pipes) as Record<Pipe, number>,
  };
}

/**
 * Clocks of a tile of keys for all warps of a multiprocessor: those of its tensor cores, and the
 * issue slots of the other instructions. The two warps of a scheduler have no order that overlaps
 * the products of one with the softmax of the other, so the terms add up. Loads from shared memory
 * run meanwhile.
 */
function sm80Clocks({ instructions, pipes }: Iteration, products: number, gpu: NvidiaGpu): number {
  const others = instructions - products / PRODUCTS_PER_MMA;
  const slots = others * SM80_CLOCKS_PER_INSTRUCTION[gpu.architecture.name];
  return SM80_WARPS * Math.max(pipes.tensor + slots / ISSUE_PER_CLOCK, pipes.lsu);
}

/** Returns the instructions besides products, per product, of an SM80 kernel's loop. */
export function instructionsPerMma(
  code: MachineCode,
  headDim: number,
  gpu: NvidiaGpu,
  isMasked = false,
): number {
  const products = sm80Products(headDim, isMasked);
  const way = isMasked ? "loads" : "streams";
  return PRODUCTS_PER_MMA * mainIteration(code, products, gpu, way).instructions / products - 1;
}

/** Multiply-adds of a warp for a tile of keys. */
function sm80Products(headDim: number, isMasked: boolean): number {
  return 2 * sm80Keys(headDim, isMasked) * (SM80_ROWS / SM80_TILES[headDim]!.warps) * headDim;
}

/** Clocks of the block that ends last: the place of one that ends takes the next tile. */
function longest(
  { gpu, blocks, rows, keys, clocks, pagedClocks }: ForwardKernel,
  headDim: number,
  { layout, lengths, causal }: Prefill,
): number {
  const each = layout === "pages" ? pagedClocks : clocks;
  const depth = Math.max(...lengths), headsEach = COLUMNS / headDim;
  const heads = headsEach * lengths.length;
  const fitting = Math.max(1, SECTION_BYTES / (depth * headDim * 4));
  const section = 2 ** Math.floor(Math.log2(fitting));
  const times = new Float64Array(blocks * gpu.multiprocessors);
  const take = (clocks: number) => {
    let free = 0;
    for (let i = 1; i < times.length; i++) if (times[i]! < times[free]!) free = i;
    times[free]! += clocks;
  };
  // The longest tiles of a section start first, as in core/schedule.cuh.
  for (let first = 0; first < heads; first += section) {
    for (let row = Math.ceil(depth / rows) - 1; row >= 0; row--) {
      for (let head = first; head < Math.min(first + section, heads); head++) {
        const length = lengths[Math.floor(head / headsEach)]!;
        const seen = causal ? Math.min((row + 1) * rows, length) : length;
        const skipped = row * rows >= length;
        take(skipped ? SKIPPED_CLOCKS : Math.ceil(seen / keys) * each + TILE_CLOCKS);
      }
    }
  }
  return Math.max(...times);
}

/** Lengths and batches of decoding. */
const DEPTHS = [1024, 8192, 32768, 131072] as const, BATCHES = [1, 8, 64] as const;
/** Key heads of a model on one device, and of one that 2, 4 or 8 devices share. */
const KV_HEADS = [1, 2, 4, 8] as const;

/** The decode kernels of 16 rows: the type of the cache, and bytes of one of its numbers. */
export const DECODE_KERNELS = [
  { type: "BF16", symbol: /decode_sm80.*bf16ELi\d+ELi1ELb0E/, bytes: 2 },
  { type: "F16", symbol: /decode_sm80.*3f16ELi\d+ELi1ELb0E/, bytes: 2 },
  { type: "Q8_0", symbol: /decode_sm80.*ELi1ELb1E/, bytes: 17 / 16 },
] as const;

/** Rows of a tile of {@linkcode DECODE_KERNELS}, and keys of it that a warp multiplies. */
const DECODE_ROWS = 16, DECODE_KEYS = 16;

/**
 * Returns the bytes of keys and values that the instructions of a decode kernel's loop allow a
 * multiprocessor in a clock.
 */
export function decodeBytesPerClock(
  code: MachineCode,
  headDim: number,
  bytes: number,
  gpu: NvidiaGpu,
): number {
  const numbers = 2 * DECODE_KEYS * headDim;
  const loop = mainIteration(code, DECODE_ROWS * numbers, gpu);
  return numbers * bytes / Math.max(...Object.values(loop.pipes));
}

/** Keys of a tile, tiles of the smallest part, and most parts (decode/decode_tile.h). */
const DECODE_TILE = 64, MIN_PART_TILES = 4, MOST_PARTS = 128;
/** Blocks on a multiprocessor with head_dim 128, and tiles of K or V that each has in flight. */
const DECODE_BLOCKS = 3, DECODE_IN_FLIGHT = 3;

/** Times of a call of decoding in microseconds; they add up. */
interface DecodeTimes {
  /** The gap to the previous kernel, and the load of Q after it. */
  readonly start: number;
  /** Reading keys and values, beyond those that arrive during the start. */
  readonly keys: number;
  /** The second kernel, which combines the parts of keys; 0 for a single part. */
  readonly combine: number;
}

/** A prediction of decoding. */
export interface FlashDecodePrediction extends Prediction, DecodeTimes {
  readonly kvHeads: number;
  /** Share of the bandwidth that a kernel can read with. */
  readonly readShare: number;
}

/**
 * Predicts decoding with head_dim 128 and one query of eight heads a key head; undefined as
 * predictFlash.
 */
export async function predictFlashDecode(): Promise<FlashDecodePrediction[] | undefined> {
  const headDim = 128, gpu = H100;
  const ofGpu = ({ architecture }: KernelCode) => architecture === gpu.architecture.name;
  const kernels = (await kernelsOf("decode_128", "decode"))?.filter(ofGpu);
  const combine = (await kernelsOf("combine", "decode"))?.filter(ofGpu);
  if (kernels === undefined || combine === undefined) return undefined;
  const { l2, memory } = gpu.latencies;
  const us = (clocks: number) => clocks / gpu.clock / 1e3;
  const merge = (parts: number) => {
    const kernel = combine.map(({ symbol, text }) => ({ most: mostParts(symbol), text }))
      .filter(({ most }) => most >= parts).toSorted((a, b) => a.most - b.most)[0];
    const end = kernel && measureEnd(MachineCode.parse(kernel.text), gpu.latencies);
    if (end === undefined) throw new Error(`no kernel combines ${parts} parts after a wait`);
    return COSTS.dependentLaunch +
      us(end.hops * l2 + CLOCKS_PER_INSTRUCTION * end.instructions);
  };
  return DECODE_KERNELS.filter(({ type }) => type !== "F16").flatMap(({ type, symbol, bytes }) => {
    const kernel = kernels.find((one) => symbol.test(one.symbol));
    if (kernel === undefined) return [];
    const code = MachineCode.parse(kernel.text);
    const hops = measureStart(code, gpu.latencies)?.hops ?? 0;
    // The first tiles are requested when the kernel is launched, while the previous one ends.
    const requested = copiesBeforeWait(code);
    const start = COSTS.dependentLaunch + us(requested ? l2 : hops * l2 + memory);
    const streaming = requested ? Math.max(0, start - us(hops * l2 + memory)) : 0;
    const computed = decodeBytesPerClock(code, headDim, bytes, gpu);
    const inFlight = DECODE_IN_FLIGHT * DECODE_TILE * headDim * bytes / memory;
    return BATCHES.flatMap((batch) =>
      KV_HEADS.flatMap((kvHeads) =>
        DEPTHS.map((depth): FlashDecodePrediction => {
          const size = batch * depth * kvHeads * headDim * 2 * bytes;
          const read = size / gpu.bandwidth / gpu.readable / 1e3;
          const parts = decodeParts(batch * kvHeads, depth, gpu), blocks = batch * kvHeads * parts;
          // The multiprocessor with the most blocks, of those that run at a time.
          const slots = DECODE_BLOCKS * gpu.multiprocessors;
          const busy = Math.min(blocks, gpu.multiprocessors);
          const each = Math.ceil(Math.min(blocks, slots) / gpu.multiprocessors);
          const rate = Math.min(computed, COSTS.l2BytesPerMultiprocessor, each * inFlight);
          const resident = Math.min(blocks, slots);
          const early = Math.min(
            size,
            resident * inFlight * memory,
            streaming * gpu.bandwidth * gpu.readable * 1e3,
          );
          const times: DecodeTimes = {
            start,
            keys: (1 - early / size) * joined([read, us(size / busy / rate)]),
            combine: parts > 1 ? merge(parts) : 0,
          };
          const time_us = times.start + times.keys + times.combine;
          const limit_us = size / gpu.bandwidth / 1e3;
          return {
            ...{ device: gpu.name, model: `flash_attn ${headDim}, ${kvHeads} KV heads`, type },
            ...{ batch, depth, workload: "decode_attention", kvHeads, time_us, limit_us, ...times },
            share: limit_us / time_us,
            readShare: read / time_us,
          };
        })
      )
    );
  });
}

/**
 * True if a decode kernel waits for the previous kernel after it has started to copy keys, and
 * before it loads queries, 16 bytes at a time.
 */
export function copiesBeforeWait(code: MachineCode): boolean {
  const all = code.blocks.flatMap(({ instructions }) => instructions);
  const copy = all.findIndex(({ name }) => name === "LDGSTS");
  const query = all.findIndex(({ name, opcode }) => name === "LDG" && opcode.includes(".128"));
  return copy >= 0 && copy < query &&
    all.slice(copy, query).some(({ name }) => name === "ACQBULK");
}

/** Returns the most parts that an instance of the combine kernel combines, by its symbol. */
export function mostParts(symbol: string): number {
  return Number(/combine_sm80INS_\d\w+ELi(\d+)E/.exec(symbol)?.[1]);
}

/** Parts of the keys of each of several key heads (host/split_plan.cpp). */
function decodeParts(keyHeads: number, depth: number, gpu: NvidiaGpu): number {
  const fitting = Math.floor(DECODE_BLOCKS * gpu.multiprocessors / keyHeads);
  const useful = Math.ceil(depth / DECODE_TILE / MIN_PART_TILES);
  return Math.max(1, Math.min(fitting, useful, MOST_PARTS));
}
