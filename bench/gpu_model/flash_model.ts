/**
 * Expected speed of libflash_attn on an H100: the machine code of its SM90 kernels, and the order
 * of their tiles on the multiprocessors. Next to the published figures of FlashAttention-3.
 */
import { join } from "@std/path";
import { disassembleObject, type KernelCode } from "../../test/emulator/nvdisasm.ts";
import { root } from "../root.ts";
import { type LoopMeasures, measureLoop, measureStart } from "./loop_measures.ts";
import { MachineCode } from "./machine_code.ts";
import { COSTS, H100, type NvidiaGpu, type Pipe } from "./nvidia.ts";
import type { Prediction } from "./predictions.ts";

/**
 * Consumer warpgroups of a block by head_dim, 64 rows each (csrc/flash_attn/sm90/forward_tile.h).
 */
const CONSUMERS: Readonly<Record<number, number>> = { 64: 3, 96: 2, 128: 2, 192: 2, 256: 2 };
const CONSUMER_ROWS = 64;

/** Tokens in all, and columns of all heads, as in FlashAttention's own benchmark. */
const TOKENS = 16384, COLUMNS = 2048;
const LENGTHS = [512, 1024, 2048, 4096, 8192, 16384, 131072] as const;

/** Clocks of a tile of rows outside of its loop: the first product, the last one, storing rows. */
const TILE_CLOCKS = 2500;
/** Warps of a warpgroup. */
const WARPS = 4;
/** Clocks of an instruction of a warpgroup, whose four warps run on a scheduler each. */
const CLOCKS_PER_INSTRUCTION = 1.3;
/**
 * Clocks of a consumer's turn: barriers between consumers, and latencies of products. Fitted to the
 * published figures of FlashAttention-3, whose consumers take turns in the same way.
 */
const TURN_CLOCKS = 145;
/** Share of the clock that remains under the power of tensor cores. */
const powered = (gpu: NvidiaGpu) =>
  gpu.teraflops * 1e3 / (2 * gpu.architecture.rates.wgmma * gpu.multiprocessors * gpu.clock);

/** FlashAttention-3's published TFLOP/s, causal, by head_dim and length (Shah et al., 2024). */
const PUBLISHED: Readonly<Record<string, number>> = {
  "64 2048": 371,
  "64 4096": 420,
  "64 8192": 460,
  "64 16384": 473,
  "128 2048": 521,
  "128 4096": 579,
  "128 8192": 602,
  "128 16384": 616,
};

/** A prediction of prefill attention. */
export interface FlashPrediction extends Prediction {
  readonly teraflops: number;
  /** FlashAttention-3's figure. */
  readonly published?: number;
}

/**
 * Predicts the forward kernels of all shapes; undefined without a library built by nvcc, or without
 * the disassemblers.
 */
export async function predictFlash(): Promise<FlashPrediction[] | undefined> {
  const predictions: FlashPrediction[] = [];
  for (const headDim of Object.keys(CONSUMERS).map(Number)) {
    const loop = await mainLoop(headDim);
    if (loop === undefined) return undefined;
    for (const causal of [true, false]) {
      for (const length of LENGTHS) predictions.push(predict(headDim, length, causal, loop));
    }
  }
  return predictions;
}

/** Returns the share of the peak in causal attention of this shape; undefined as predictFlash. */
export async function flashShare(headDim: number, length: number): Promise<number | undefined> {
  if (CONSUMERS[headDim] === undefined) return undefined;
  const loop = await mainLoop(headDim);
  return loop && predict(headDim, length, true, loop).share;
}

/** Returns the loop over tiles of keys without a mask, of a consumer warp of the BF16 kernel. */
async function mainLoop(headDim: number): Promise<LoopMeasures | undefined> {
  const kernels = await kernelsOf("sm90", headDim);
  const kernel = kernels?.find(({ symbol }) => /forward_sm90.*(bf|bfloat)16/.test(symbol));
  if (kernel === undefined) return undefined;
  const code = MachineCode.parse(kernel.text);
  // Of the loops with products, the one without a mask has the fewest instructions.
  return code.loops.map((loop) => measureLoop(code, loop, H100.architecture, H100.latencies))
    .filter(({ products }) => products > 0)
    .toSorted((a, b) => a.instructions - b.instructions)[0];
}

/** Returns the kernels of a head_dim; undefined if there is no library, or no disassembler. */
async function kernelsOf(
  part: "sm80" | "sm90" | "decode",
  headDim: number,
): Promise<KernelCode[] | undefined> {
  const folder = join(root, "build", "obj", `${Deno.build.os}-${Deno.build.arch}`, "flash_attn");
  const file = `${part === "decode" ? part : "forward"}_${headDim}.cu.o`;
  try {
    Deno.statSync(join(folder, part, file));
  } catch {
    return undefined;
  }
  return await disassembleObject(join(folder, part, file));
}

function predict(
  headDim: number,
  length: number,
  causal: boolean,
  loop: LoopMeasures,
): FlashPrediction {
  const gpu = H100, consumers = CONSUMERS[headDim]!, rows = CONSUMER_ROWS * consumers;
  // Two products of a consumer's rows: with keys, and with values.
  const keys = loop.products * WARPS / (2 * CONSUMER_ROWS * headDim);
  const batch = Math.max(1, TOKENS / length), heads = COLUMNS / headDim;
  const each = loopClocks(loop, consumers);
  const time_us = COSTS.serialLaunch + COSTS.smallKernel +
    longest(length, batch * heads, rows, keys, causal, each, gpu) / (gpu.clock * powered(gpu)) /
      1e3;
  const pairs = causal ? length * length / 2 : length * length;
  const flops = 4 * batch * heads * pairs * headDim;
  const limit_us = flops / gpu.teraflops / 1e6;
  const published = causal ? PUBLISHED[`${headDim} ${length}`] : undefined;
  return {
    device: gpu.name,
    model: `flash_attn ${headDim}${causal ? " causal" : ""}`,
    type: "BF16",
    workload: "prefill",
    batch,
    depth: length,
    time_us,
    limit_us,
    share: limit_us / time_us,
    teraflops: flops / time_us / 1e6,
    ...(published !== undefined && { published }),
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
  const alone = WARPS * tensor + CLOCKS_PER_INSTRUCTION * loop.instructions;
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
 * loop inside it, over columns of K, runs as often as they require.
 */
function mainIteration(code: MachineCode, products: number, gpu: NvidiaGpu): Iteration {
  const [outer, inner] = code.loops
    .map((loop) => measureLoop(code, loop, gpu.architecture, gpu.latencies))
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

/** Clocks of the multiprocessor that ends last: each takes the next tile when it is free. */
function longest(
  length: number,
  heads: number,
  rows: number,
  keys: number,
  causal: boolean,
  each: number,
  gpu: NvidiaGpu,
): number {
  const rowTiles = Math.ceil(length / rows);
  const times = new Float64Array(gpu.multiprocessors);
  // The longest tiles start first, as in core/schedule.cuh.
  for (let row = rowTiles - 1; row >= 0; row--) {
    const seen = causal ? Math.min((row + 1) * rows, length) : length;
    const clocks = Math.ceil(seen / keys) * each + TILE_CLOCKS;
    for (let head = 0; head < heads; head++) {
      let free = 0;
      for (let i = 1; i < times.length; i++) if (times[i]! < times[free]!) free = i;
      times[free]! += clocks;
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

/**
 * Predicts decoding with head_dim 128 and one query of eight heads a key head; undefined as
 * predictFlash.
 */
export async function predictFlashDecode(): Promise<Prediction[] | undefined> {
  const headDim = 128, gpu = H100;
  const kernels = (await kernelsOf("decode", headDim))
    ?.filter(({ architecture }) => architecture === gpu.architecture.name);
  if (kernels === undefined) return undefined;
  const { l2, memory } = gpu.latencies;
  // A second kernel, launched early, combines the parts of keys.
  const combine = COSTS.dependentLaunch + COSTS.smallKernel;
  return DECODE_KERNELS.filter(({ type }) => type !== "F16").flatMap(({ type, symbol, bytes }) => {
    const kernel = kernels.find((one) => symbol.test(one.symbol));
    if (kernel === undefined) return [];
    const code = MachineCode.parse(kernel.text);
    const hops = measureStart(code, gpu.latencies)?.hops ?? 0;
    const start = COSTS.serialLaunch + (hops * l2 + memory) / gpu.clock / 1e3;
    const computed = decodeBytesPerClock(code, headDim, bytes, gpu) * gpu.multiprocessors *
      gpu.clock;
    return BATCHES.flatMap((batch) =>
      KV_HEADS.flatMap((kvHeads) =>
        DEPTHS.map((depth): Prediction => {
          const size = batch * depth * kvHeads * headDim * 2 * bytes;
          const limit_us = size / gpu.bandwidth / 1e3;
          const time_us = start + joined([limit_us / gpu.readable, size / computed / 1e3]) +
            combine;
          const model = `flash_attn ${headDim}, ${kvHeads} KV heads`;
          const labels = { device: gpu.name, model, type, batch, depth };
          const share = limit_us / time_us;
          return { ...labels, workload: "decode_attention", time_us, limit_us, share };
        })
      )
    );
  });
}
