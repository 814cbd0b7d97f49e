/**
 * Division of a model among devices. Stages hold consecutive layers (pipeline parallelism). Each
 * rank of a stage holds the rows or the columns of each matrix that belong to its heads or to its
 * part of an MLP (tensor parallelism); the rest of a layer is on all ranks.
 */
import { ForgeError } from "../../errors.ts";
import { TENSOR_TYPES, type TensorInfo } from "../../formats/tensor_info.ts";
import { quote } from "../../formats/quote.ts";

/** One of the devices that divide the layers of a stage. */
export interface Rank {
  readonly index: number;
  /** Number of ranks. */
  readonly count: number;
}

/** One of the groups of devices that divide the layers of a model. */
interface Stage {
  readonly index: number;
  /** Bytes that the device of each stage with the least memory has free. */
  readonly memory: readonly number[];
}

/** Part of a model that a device holds. */
export interface ModelPart {
  readonly rank: Rank;
  readonly stage: Stage;
}

/** The part of the only device of a model. */
export const WHOLE: ModelPart = { rank: { index: 0, count: 1 }, stage: { index: 0, memory: [1] } };

/**
 * Divides consecutive layers among stages, so that the largest share of a stage's memory that its
 * layers take is as small as possible. Each stage has a layer at least.
 *
 * @param sizes bytes of each layer
 * @param memory bytes that each stage has free
 * @throws {ForgeError} `unsupported` if there are fewer layers than stages
 */
export function divideLayers(sizes: readonly number[], memory: readonly number[]): Span[] {
  if (sizes.length < memory.length) {
    throw new ForgeError(
      "unsupported",
      `${memory.length} stages cannot divide a model of ${sizes.length} layers; valid is at most ` +
        sizes.length,
    );
  }
  const nLayers = sizes.length;
  const before = [0];
  for (const bytes of sizes) before.push(before.at(-1)! + bytes);
  // The best divisions among the stages so far, by the end of the last one: the largest share, and
  // the begin of the last one.
  let shares = before.map((bytes) => bytes / memory[0]!);
  const begins: Int32Array[] = [new Int32Array(nLayers + 1)];
  for (const free of memory.slice(1)) {
    const first = new Int32Array(nLayers + 1);
    shares = before.map((bytes, end) => {
      let least = Infinity;
      for (let begin = 1; begin < end; begin++) {
        const share = Math.max(shares[begin]!, (bytes - before[begin]!) / free);
        if (share < least) [least, first[end]] = [share, begin];
      }
      return least;
    });
    begins.push(first);
  }
  const spans: Span[] = [];
  for (let end = nLayers; begins.length > 0;) {
    const begin = begins.pop()![end]!;
    spans.unshift([begin, end - begin]);
    end = begin;
  }
  return spans;
}

/** Consecutive heads, rows or columns: the first one, and their number. */
export type Span = readonly [first: number, count: number];

/** Heads of queries and of keys and values of one rank. */
interface HeadSpans {
  readonly q: Span;
  readonly kv: Span;
}

/**
 * Divides the heads of attention. Keys and values with fewer heads than ranks are on several ranks
 * each.
 *
 * @throws {ForgeError} `unsupported` if the heads do not divide evenly
 */
export function divideHeads(nHeads: number, nKvHeads: number, rank: Rank): HeadSpans {
  const { index, count } = rank;
  if (nHeads % count !== 0 || (count > nKvHeads ? count % nKvHeads : nKvHeads % count) !== 0) {
    throw new ForgeError(
      "unsupported",
      `${count} devices cannot divide attention with ${nHeads} heads, ${nKvHeads} of keys and values: ` +
        "each device takes as many of them as the others",
    );
  }
  const own = nHeads / count;
  return { q: [index * own, own], kv: divideKvHeads(nKvHeads, rank) };
}

/**
 * Returns the heads of keys and values of a rank, for numbers that {@linkcode divideHeads} accepts.
 */
export function divideKvHeads(nKvHeads: number, { index, count }: Rank): Span {
  return [Math.floor(index * nKvHeads / count), Math.max(1, Math.floor(nKvHeads / count))];
}

/** Columns that float matrices are divided by, so that their rows stay aligned for vector loads. */
const FLOAT_COLUMNS = 8;

/**
 * Divides the columns of a matrix along the blocks of its type. Ranks differ by one block at most.
 *
 * @throws {ForgeError} `unsupported` if there are fewer blocks than ranks
 */
export function divideColumns(tensor: TensorInfo, cols: number, { index, count }: Rank): Span {
  const block = columnBlock(tensor, cols);
  const nBlocks = cols / block;
  if (nBlocks < count) {
    throw new ForgeError(
      "unsupported",
      `${count} devices cannot divide the ${cols} columns of ${
        describe(tensor)
      } in blocks of ${block}`,
    );
  }
  const [first, own] = divideEvenly(nBlocks, { index, count });
  return [first * block, own * block];
}

/** Returns the columns that {@linkcode divideColumns} does not divide. */
export function columnBlock(tensor: TensorInfo, cols: number): number {
  return Math.max(blockOf(tensor), cols % FLOAT_COLUMNS === 0 ? FLOAT_COLUMNS : 1);
}

/** Divides rows or blocks. Ranks differ by one at most. */
export function divideEvenly(size: number, { index, count }: Rank): Span {
  const start = (rank: number) => Math.floor(size * rank / count);
  return [start(index), start(index + 1) - start(index)];
}

/**
 * Checks that columns of a matrix can be read apart from the others.
 *
 * @throws {ForgeError} `unsupported` if they are not whole blocks, or do not lie in the order of
 * the others
 */
export function checkColumns(tensor: TensorInfo, [first, count]: Span): void {
  const block = blockOf(tensor);
  if (first % block !== 0 || count % block !== 0) {
    throw new ForgeError(
      "unsupported",
      `a device cannot take the columns ${first} to ${first + count} of ${describe(tensor)}: its ` +
        `blocks have ${block} columns`,
    );
  }
  if (tensor.packed?.columnOrder !== undefined) {
    throw new ForgeError(
      "unsupported",
      `${
        describe(tensor)
      } has columns in an order of its own (desc_act), which devices cannot divide`,
    );
  }
}

function blockOf({ type }: TensorInfo): number {
  return TENSOR_TYPES[type].blockElements;
}

function describe({ name, type }: TensorInfo): string {
  return `the tensor ${quote(name)} of type ${type}`;
}

/** Returns the rows of a span of heads or other units of `size` rows each, after `offset` rows. */
export function rowsOf([first, count]: Span, size: number, offset = 0): Span {
  return [offset + first * size, count * size];
}

/** Joins neighbouring spans. */
export function joined(spans: readonly Span[]): Span[] {
  const result: Span[] = [];
  for (const [first, count] of spans) {
    const last = result.at(-1);
    if (last !== undefined && last[0] + last[1] === first) {
      result[result.length - 1] = [last[0], last[1] + count];
    } else {
      result.push([first, count]);
    }
  }
  return result;
}

/** Returns the elements of a vector in some spans, one after another. */
export function gather(values: Float32Array, spans: readonly Span[]): Float32Array<ArrayBuffer> {
  return Float32Array.from(
    spans.flatMap(([first, count]) => Array.from(values.subarray(first, first + count))),
  );
}
