/** Calls of the library to compare with plain loops: edge cases and random cases. */

import type { Random } from "../support/random.ts";
import { isThorough } from "../support/thorough.ts";

/** The words of a case, as `emulated/case_shape.cpp` reads them. */
export interface Case {
  readonly fn: "fwd" | "varlen" | "decode";
  readonly dtype?: "f16" | "bf16";
  /** Keys and values of Q8_0; or these and queries of E4M3. */
  readonly kv?: "q8" | "e4m3";
  /** Factors of E4M3: of each sequence and key head, or of each tensor. */
  readonly descale?: 0 | 1 | 2;
  readonly head_dim: 64 | 96 | 128 | 192 | 256;
  readonly heads?: number;
  readonly kv_heads?: number;
  /** Lengths of the sequences. */
  readonly q: readonly number[];
  readonly k: readonly number[];
  /** Rows per page. @default no pages */
  readonly page?: number;
  readonly packed_q?: 1;
  /** Unused rows before each sequence's packed queries. */
  readonly gap?: number;
  /** Shuffle the rows of the block table. */
  readonly shuffled?: 1;
  readonly causal?: 0 | 1;
  readonly left?: number;
  readonly right?: number;
  readonly sinks?: 0 | 1;
  /** A mask: numbers of F32, of `dtype`, bytes or bits. */
  readonly mask?: "f32" | "as_dtype" | "bytes" | "bits";
  /** The dimensions that it has: of b, q, h and k. @default all */
  readonly mask_of?: string;
  /** The unit of its strides is on the device. */
  readonly pitch?: 0 | 1;
  readonly splits?: number;
  readonly no_split?: 1;
  readonly early?: 1;
  readonly softcap?: number;
  readonly spread?: number;
  readonly heads_first?: 0 | 1;
  readonly nan_sequence?: number;
  /** Place pages 4 GiB apart. */
  readonly far?: 1;
  readonly force_sm80?: 1;
  /** The compute capability reported by the device. @default 80 */
  readonly capability?: 80 | 86 | 90;
  /** Seed of the order of threads; 0 is in order. */
  readonly order?: number;
  readonly seed?: number;
}

export function caseLine(c: Case): string {
  return Object.entries(c)
    .map(([name, value]) => `${name}=${Array.isArray(value) ? value.join(",") : value}`)
    .join(" ");
}

/** Edge cases of the forward kernels; each runs on SM80 and on SM90. */
export const forwardCases: readonly Case[] = [
  // Tiles: one row, one key; exactly full; one more than full.
  { fn: "fwd", head_dim: 64, q: [17], k: [1] },
  { fn: "fwd", head_dim: 128, q: [128], k: [128], causal: 1 },
  { fn: "fwd", head_dim: 128, q: [129], k: [129], causal: 1, dtype: "f16" },
  { fn: "fwd", head_dim: 64, q: [193], k: [337], heads: 2, causal: 1 },
  { fn: "fwd", head_dim: 96, q: [40], k: [260], heads: 3, kv_heads: 1, dtype: "f16" },
  { fn: "fwd", head_dim: 192, q: [30], k: [230], causal: 1 },
  { fn: "fwd", head_dim: 256, q: [130], k: [165], causal: 1, dtype: "f16" },
  // More tiles than multiprocessors: blocks of SM90 take several.
  { fn: "fwd", head_dim: 64, q: [200, 200], k: [150, 150], heads: 3, kv_heads: 3 },
  { fn: "fwd", head_dim: 128, q: [140, 140], k: [300, 300], heads: 2, causal: 1, order: 7 },
  // More queries than keys: rows without visible keys; no keys at all.
  { fn: "fwd", head_dim: 64, q: [150], k: [20], causal: 1 },
  { fn: "fwd", head_dim: 64, q: [150], k: [20], causal: 1, sinks: 1 },
  { fn: "fwd", head_dim: 128, q: [20], k: [0] },
  { fn: "fwd", head_dim: 128, q: [20], k: [0], sinks: 1 },
  // Windows on either side, wider and narrower than a tile.
  { fn: "fwd", head_dim: 64, q: [150], k: [310], causal: 1, left: 30 },
  { fn: "fwd", head_dim: 128, q: [80], k: [310], left: 140, right: 3 },
  { fn: "fwd", head_dim: 64, q: [70], k: [70], left: 0, right: 0 },
  { fn: "fwd", head_dim: 64, q: [90], k: [200], right: 5, softcap: 30, sinks: 1 },
  { fn: "fwd", head_dim: 64, q: [20], k: [90], left: 2 ** 31 - 1, right: 2 ** 31 - 1 },
  // Large scores, and a cap that they reach.
  { fn: "fwd", head_dim: 128, q: [40], k: [300], spread: 4, dtype: "f16" },
  { fn: "fwd", head_dim: 64, q: [40], k: [200], spread: 3, softcap: 2 },
  // Scores so different that bases of exponentials rise in late tiles, the last one included.
  { fn: "fwd", head_dim: 64, q: [150], k: [400], spread: 6 },
  { fn: "fwd", head_dim: 192, q: [64], k: [330], spread: 6 },
  { fn: "fwd", head_dim: 128, q: [33], k: [65], heads: 4, kv_heads: 2, heads_first: 1 },
  // Packed: empty sequences, ends within tiles, neighbours with NaN.
  { fn: "varlen", head_dim: 64, q: [3, 0, 140, 1], k: [5, 7, 0, 300], heads: 2, causal: 1 },
  { fn: "varlen", head_dim: 128, q: [50, 20, 30], k: [50, 20, 130], causal: 1, nan_sequence: 1 },
  { fn: "varlen", head_dim: 96, q: [50, 20], k: [70, 120], nan_sequence: 1, dtype: "f16" },
  { fn: "varlen", head_dim: 256, q: [10, 20], k: [100, 90], nan_sequence: 1, left: 50, order: 3 },
  // Pages: values after a sequence's end are NaN, and table entries after its last page are
  // invalid.
  { fn: "varlen", head_dim: 128, q: [9, 70, 0], k: [9, 200, 40], page: 16, causal: 1, heads: 2 },
  { fn: "varlen", head_dim: 64, q: [30, 5], k: [130, 5], page: 8, kv_heads: 1, heads: 4 },
  { fn: "varlen", head_dim: 192, q: [30], k: [250], page: 256, causal: 1, heads_first: 1 },
  { fn: "varlen", head_dim: 256, q: [20, 20], k: [170, 20], page: 64, causal: 1, dtype: "f16" },
  { fn: "varlen", head_dim: 96, q: [20, 20], k: [170, 20], page: 32, softcap: 20, sinks: 1 },
  // Queries separated by unused rows; rows of the block table by number.
  // Windows so small that each key has a large weight, at the borders of tiles and of pages.
  { fn: "fwd", head_dim: 64, q: [70], k: [90], left: 3, right: 2 },
  { fn: "fwd", head_dim: 128, q: [140], k: [140], left: 1, causal: 1 },
  { fn: "varlen", head_dim: 64, q: [33, 5], k: [40, 70], left: 0, right: 1, page: 16 },
  // Pages beyond 4 GiB.
  { fn: "varlen", head_dim: 64, q: [20, 3], k: [70, 40], page: 16, causal: 1, far: 1 },
  { fn: "varlen", head_dim: 64, q: [30, 0, 5], k: [130, 9, 70], page: 16, gap: 3, shuffled: 1 },
  { fn: "varlen", head_dim: 128, q: [20, 70], k: [90, 70], causal: 1, gap: 1 },
];

/** Cases with a mask, by every type and dimension of it; prefill on SM80 and SM90, and decoding. */
export const maskedCases: readonly Case[] = [
  // More rows than a tile of SM80, and fewer than one of SM90.
  { fn: "fwd", head_dim: 64, q: [140], k: [300], heads: 2, mask: "f32", capability: 90 },
  {
    fn: "fwd",
    head_dim: 128,
    q: [90],
    k: [200],
    mask: "bits",
    causal: 1,
    sinks: 1,
    capability: 90,
  },
  // Padding of keys, of each sequence; one key more than tiles; other numbers of each head.
  { fn: "fwd", head_dim: 96, q: [40, 40], k: [257, 257], mask: "bytes", mask_of: "bk" },
  { fn: "fwd", head_dim: 192, q: [50], k: [170], heads: 2, mask: "as_dtype", mask_of: "qhk" },
  { fn: "fwd", head_dim: 256, q: [40], k: [99], mask: "as_dtype", dtype: "f16", softcap: 9 },
  // One number for all keys of a query, and no keys at all.
  { fn: "fwd", head_dim: 64, q: [40], k: [99], mask: "f32", mask_of: "q", right: 9 },
  { fn: "fwd", head_dim: 64, q: [20], k: [0], mask: "f32", sinks: 1 },
  { fn: "varlen", head_dim: 128, q: [30, 0, 50], k: [97, 4, 150], mask: "f32", pitch: 1, heads: 2 },
  {
    fn: "varlen",
    head_dim: 64,
    q: [70, 5],
    k: [97, 210],
    mask: "bits",
    pitch: 1,
    heads: 2,
    page: 16,
    gap: 2,
    shuffled: 1,
    causal: 1,
    left: 60,
    capability: 90,
  },
  { fn: "decode", head_dim: 64, q: [1, 1], k: [900, 300], heads: 8, mask: "bits", splits: 3 },
  { fn: "decode", head_dim: 128, q: [3], k: [700], heads: 16, kv_heads: 2, mask: "f32", splits: 3 },
  {
    fn: "decode",
    kv: "q8",
    dtype: "f16",
    head_dim: 128,
    q: [3, 5],
    k: [700, 65],
    packed_q: 1,
    heads: 16,
    kv_heads: 2,
    mask: "bytes",
    page: 16,
    early: 1,
    capability: 90,
  },
  { fn: "decode", head_dim: 256, q: [16], k: [260], heads: 2, mask: "as_dtype", mask_of: "hk" },
  // Few queries of a forward call, which the decode kernel takes.
  { fn: "fwd", head_dim: 192, q: [5], k: [260], mask: "f32", mask_of: "bqk", causal: 1 },
  {
    fn: "decode",
    head_dim: 96,
    q: [2],
    k: [900],
    mask: "bits",
    pitch: 1,
    capability: 90,
    heads: 3,
  },
];

/** Cases of E4M3 on SM90: every head_dim, mask and layout of keys; tiles that end within blocks. */
export const e4m3Cases: readonly Case[] = ([
  { fn: "fwd", head_dim: 64, q: [17], k: [1] },
  { fn: "fwd", head_dim: 128, q: [129], k: [129], causal: 1, descale: 1 },
  { fn: "fwd", head_dim: 64, q: [200, 200], k: [350, 350], heads: 4, kv_heads: 2, descale: 1 },
  { fn: "fwd", head_dim: 192, q: [64], k: [330], spread: 3, dtype: "f16", descale: 2 },
  { fn: "fwd", head_dim: 256, q: [130], k: [165], causal: 1, heads_first: 1 },
  { fn: "fwd", head_dim: 128, q: [5], k: [300], causal: 1, sinks: 1, left: 140 },
  { fn: "fwd", head_dim: 64, q: [90], k: [200], right: 5, softcap: 30, descale: 2 },
  { fn: "fwd", head_dim: 128, q: [20], k: [0], sinks: 1 },
  { fn: "varlen", head_dim: 128, q: [50, 0, 30], k: [50, 20, 430], nan_sequence: 1, descale: 1 },
  { fn: "varlen", head_dim: 256, q: [10, 20], k: [100, 90], nan_sequence: 1, softcap: 9 },
  { fn: "varlen", head_dim: 64, q: [33, 5], k: [290, 70], page: 16, causal: 1, order: 5 },
  { fn: "varlen", head_dim: 192, q: [30, 3], k: [250, 9], page: 8, gap: 2, shuffled: 1 },
] as const).map((c) => ({ ...c, kv: "e4m3", capability: 90 }));

/** Edge cases of the decode kernel. */
export const decodeCases: readonly Case[] = [
  { fn: "decode", head_dim: 64, q: [1], k: [1] },
  // The first block has keys: one without would wait before others load queries.
  {
    fn: "decode",
    head_dim: 128,
    q: [1, 1, 1],
    k: [900, 0, 40],
    splits: 3,
    page: 16,
    early: 1,
    capability: 90,
  },
  { fn: "decode", head_dim: 64, q: [16], k: [700], heads: 8, kv_heads: 1, early: 1, left: 90 },
  { fn: "decode", head_dim: 64, q: [1, 1], k: [5, 3000], heads: 4, kv_heads: 1, page: 16 },
  {
    fn: "decode",
    head_dim: 128,
    q: [1, 1],
    k: [700, 64],
    heads: 16,
    kv_heads: 2,
    page: 32,
    causal: 1,
  },
  { fn: "decode", head_dim: 128, q: [1], k: [1100], splits: 4, left: 300, causal: 1, dtype: "f16" },
  {
    fn: "decode",
    head_dim: 128,
    q: [1],
    k: [900],
    splits: 3,
    sinks: 1,
    softcap: 15,
    capability: 90,
  },
  { fn: "decode", head_dim: 96, q: [1, 1, 1], k: [0, 300, 800], splits: 2, sinks: 1, page: 8 },
  // Up to 32, 64 and 128 parts, which different instances of the combine kernel combine; fewer than
  // 16 of a shorter sequence.
  {
    fn: "decode",
    head_dim: 192,
    q: [2],
    k: [5000],
    heads: 2,
    kv_heads: 1,
    splits: 128,
    page: 64,
    capability: 90,
  },
  { fn: "decode", head_dim: 64, q: [1], k: [9000], splits: 35, sinks: 1, capability: 90 },
  ...[17, 33, 65].map((splits) =>
    ({ fn: "decode", head_dim: 64, q: [1], k: [256 * splits], splits }) as const
  ),
  { fn: "decode", head_dim: 64, q: [1, 1], k: [17000, 900], splits: 128, page: 64 },
  { fn: "decode", head_dim: 96, q: [2, 2], k: [0, 300], heads: 3, kv_heads: 3 },
  // Tiles of many rows, in as many parts as fill the device.
  { fn: "decode", head_dim: 64, q: [16], k: [1000], heads: 8, kv_heads: 1 },
  { fn: "decode", head_dim: 192, q: [4], k: [600], heads: 10, kv_heads: 2, causal: 1, page: 64 },
  { fn: "decode", head_dim: 256, q: [16], k: [560], heads: 8, kv_heads: 1, causal: 1, splits: 2 },
  { fn: "decode", head_dim: 64, q: [1], k: [900], spread: 5, heads: 4, kv_heads: 1, splits: 2 },
  // Different numbers of queries; more queries than keys; rows in several tiles.
  {
    fn: "decode",
    head_dim: 128,
    q: [16, 0, 7],
    k: [1100, 9, 3],
    heads: 12,
    kv_heads: 2,
    page: 32,
    packed_q: 1,
    causal: 1,
    splits: 3,
    sinks: 1,
    left: 700,
    dtype: "f16",
  },
  {
    fn: "decode",
    head_dim: 64,
    q: [3, 5],
    k: [2, 400],
    packed_q: 1,
    causal: 1,
    heads: 6,
    kv_heads: 3,
  },
  {
    fn: "decode",
    head_dim: 64,
    q: [1, 1],
    k: [90, 900],
    nan_sequence: 1,
    page: 16,
    heads_first: 1,
  },
  {
    fn: "decode",
    head_dim: 64,
    q: [1, 0, 1],
    k: [90, 40, 600],
    page: 16,
    packed_q: 1,
    gap: 2,
    shuffled: 1,
    heads: 4,
    kv_heads: 2,
    splits: 2,
  },
  // Windows of few keys, and a window that begins where a split does.
  { fn: "decode", head_dim: 64, q: [3], k: [300], left: 2, causal: 1, heads: 2 },
  { fn: "decode", head_dim: 128, q: [2, 1], k: [70, 9], left: 1, right: 1, page: 16, packed_q: 1 },
  { fn: "decode", head_dim: 64, q: [1], k: [512], left: 255, causal: 1, splits: 2 },
  { fn: "decode", head_dim: 64, q: [1, 1], k: [90, 40], page: 16, far: 1, heads: 2 },
  // Q8_0: every row layout; ends within a tile and within eight rows, whose factors are copied
  // together; more packed rows than a tile; factors after the end are NaN.
  { fn: "decode", kv: "q8", dtype: "f16", head_dim: 64, q: [1], k: [301], heads: 4, kv_heads: 2 },
  { fn: "decode", kv: "q8", dtype: "f16", head_dim: 96, q: [1, 1], k: [77, 400], page: 8 },
  {
    fn: "decode",
    kv: "q8",
    dtype: "f16",
    head_dim: 128,
    q: [1, 3],
    k: [700, 64],
    packed_q: 1,
    heads: 16,
    kv_heads: 2,
    page: 32,
    causal: 1,
    splits: 3,
    sinks: 1,
    nan_sequence: 1,
    capability: 90,
  },
  { fn: "decode", kv: "q8", dtype: "f16", head_dim: 192, q: [4], k: [600], softcap: 9, left: 90 },
  { fn: "decode", kv: "q8", dtype: "f16", head_dim: 256, q: [16], k: [260], heads: 8, page: 64 },
  { fn: "decode", kv: "q8", dtype: "f16", head_dim: 64, q: [1, 1], k: [90, 0], page: 16, far: 1 },
  // Few queries against contiguous keys, through flash_attn_fwd.
  { fn: "fwd", head_dim: 256, q: [2], k: [1000], heads: 4, kv_heads: 2, causal: 1 },
  { fn: "fwd", head_dim: 64, q: [16, 16], k: [300, 300], heads: 2, kv_heads: 1, right: 2 },
  { fn: "fwd", head_dim: 128, q: [1], k: [600], heads_first: 1, dtype: "f16", order: 9 },
  { fn: "fwd", head_dim: 128, q: [5], k: [300], no_split: 1, causal: 1 },
];

/** Small cases for the sanitizers, one for each kernel and addressing mode. */
export const sanitizerCases: readonly Case[] = [
  { fn: "varlen", head_dim: 64, q: [3, 0, 20], k: [5, 7, 130], heads: 2, kv_heads: 1, causal: 1 },
  { fn: "fwd", head_dim: isThorough ? 96 : 64, q: [20], k: [100], softcap: 20 },
  { fn: "varlen", head_dim: 64, q: [20], k: [70], page: 16, causal: 1, order: 5 },
  { fn: "decode", head_dim: 64, q: [3, 2], k: [600, 5], heads: 2, page: 8, splits: 2, packed_q: 1 },
  { fn: "decode", head_dim: 64, q: [10], k: [70], heads: 4, kv_heads: 1, causal: 1 },
  {
    fn: "decode",
    kv: "q8",
    dtype: "f16",
    head_dim: isThorough ? 96 : 64,
    q: [2],
    k: [333],
    page: 8,
    splits: 2,
  },
  // Masks that end with their last entry.
  { fn: "fwd", head_dim: 64, q: [20], k: [101], mask: "f32", causal: 1 },
  { fn: "decode", head_dim: 64, q: [2], k: [515], mask: "bits", page: 16, heads: 2, splits: 2 },
  // Keys requested before the previous kernel ends, by blocks with and without keys, and with an
  // empty part: the lengths are those of different numbers of parts.
  {
    fn: "decode",
    head_dim: 64,
    q: [1, 2, 1],
    k: [600, 40, 0],
    page: 16,
    packed_q: 1,
    splits: 3,
    early: 1,
    capability: 90,
  },
  { fn: "decode", kv: "q8", dtype: "f16", head_dim: 64, q: [1], k: [520], early: 1, left: 70 },
  { fn: "fwd", head_dim: 64, q: [30], k: [300], capability: 90, heads: 6 },
  // More tiles of keys than stages, so that a stage is filled again.
  { fn: "varlen", head_dim: 128, q: [3, 20], k: [5, 660], causal: 1, capability: 90, order: 5 },
  { fn: "varlen", head_dim: 96, q: [20], k: [150], page: 16, capability: 90, order: 11 },
  { fn: "varlen", kv: "e4m3", head_dim: 64, q: [20], k: [400], page: 16, capability: 90, order: 3 },
];

/** A random call: any function, shape, flag and device. */
export function randomCase(random: Random): Case {
  const pick = <T>(...values: T[]): T => random.pick(values);
  const fn = pick("fwd", "varlen", "decode");
  const e4m3 = fn !== "decode" && random.chance(0.25);
  const head_dim = e4m3 ? pick(64, 128, 192, 256) : pick(64, 96, 128, 192, 256);
  const kv_heads = pick(1, 1, 2);
  const heads = kv_heads * pick(1, 2, fn === "decode" ? 7 : 3);
  const n = fn === "fwd" ? 1 : random.int(1, 3);
  const lengths = (longest: number) => Array.from({ length: n }, () => random.int(0, longest));
  const page = fn === "fwd" || random.chance(0.3) ? 0 : pick(8, 16, 64);
  const packed = fn === "decode" && random.chance(0.5);
  const q = fn === "decode" && !packed
    ? new Array<number>(n).fill(random.int(1, 16))
    : lengths(fn === "decode" ? 16 : 90);
  return {
    fn,
    head_dim,
    heads,
    kv_heads,
    q,
    k: lengths(fn === "decode" ? 700 : 230),
    dtype: pick("f16", "bf16"),
    ...(fn === "decode" && random.chance(0.5) ? { kv: "q8", dtype: "f16" } as const : {}),
    ...(page > 0 ? { page } : {}),
    ...(packed ? { packed_q: 1 } : {}),
    ...(fn === "varlen" || packed ? { gap: pick(0, 0, 2) } : {}),
    ...(page > 0 && random.chance(0.5) ? { shuffled: 1 } : {}),
    causal: pick(0, 1),
    left: pick(-1, -1, 0, 20, 150),
    right: pick(-1, -1, 4),
    sinks: pick(0, 1),
    softcap: pick(0, 0, 10),
    ...(!e4m3 && random.chance(0.4)
      ? {
        mask: pick("f32", "as_dtype", "bytes", "bits"),
        mask_of: pick("bqhk", "bqk", "qhk", "bhk", "hk", "qk"),
        pitch: pick(0, 1),
      } as const
      : {}),
    ...(fn === "decode" && random.chance(0.5) ? { early: 1 } as const : {}),
    spread: pick(1, 1, 5),
    splits: pick(0, 1, 3),
    heads_first: pick(0, 1),
    capability: e4m3 ? 90 : pick(80, 90),
    ...(e4m3 ? { kv: "e4m3", descale: pick(0, 1, 2) } as const : {}),
    order: random.int(0, 3),
    seed: random.int(1, 1e6),
  };
}
