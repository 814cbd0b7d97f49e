import { type CharSet, pairs } from "./char_set.ts";

/**
 * The UTF-8 bytes of characters as a deterministic tree: from each node, every byte leads to at most
 * one child, which is a node or, behind the last byte, the number that the character leads to.
 */
export interface ByteNode {
  readonly edges: readonly ByteEdge[];
  /** Equal for equal trees. */
  readonly key: string;
}

/** The bytes that lead to a child. */
export interface ByteEdge {
  /** `[low, high, …]` */
  readonly ranges: readonly number[];
  readonly child: ByteNode | number;
}

interface Range {
  /** The part of the code point that is not yet written, both ends included. */
  readonly low: number;
  readonly high: number;
  readonly target: number;
}

/** First bytes by the number of bytes behind them: the first code point, and what marks the byte. */
const LENGTHS = [
  { first: 0, last: 0x7f, marker: 0, bits: 0 },
  { first: 0x80, last: 0x7ff, marker: 0xc0, bits: 6 },
  { first: 0x800, last: 0xffff, marker: 0xe0, bits: 12 },
  { first: 0x10000, last: 0x10ffff, marker: 0xf0, bits: 18 },
] as const;

/** The tree of characters that lead to numbers; the sets must not overlap. */
export function byteTree(targets: readonly (readonly [CharSet, number])[]): ByteNode {
  const edges: Edges = new Map();
  for (const { first, last, marker, bits } of LENGTHS) {
    const ranges = targets.flatMap(([set, target]) =>
      pairs(set).map(([low, high]) => ({
        low: Math.max(low, first),
        high: Math.min(high, last),
        target,
      })).filter(({ low, high }) => low <= high)
    );
    addBytes(edges, ranges, marker, bits);
  }
  return toNode(edges);
}

type Edges = Map<string, { readonly child: ByteNode | number; readonly bytes: [number, number][] }>;

/** Adds the edges for the byte that holds what is above the lowest `bits` bits. */
function addBytes(edges: Edges, ranges: readonly Range[], marker: number, bits: number): void {
  const size = 2 ** bits;
  const partial = new Map<number, Range[]>();
  for (const { low, high, target } of ranges) {
    const from = Math.floor(low / size), to = Math.floor(high / size);
    const firstFull = low === from * size ? from : from + 1;
    const lastFull = high === (to + 1) * size - 1 ? to : to - 1;
    if (firstFull <= lastFull) {
      addEdge(edges, full(bits, target), marker + firstFull, marker + lastFull);
    }
    for (const block of new Set([from, to])) {
      if (block >= firstFull && block <= lastFull) continue;
      const start = block * size;
      const clipped = {
        low: Math.max(low, start) - start,
        high: Math.min(high, start + size - 1) - start,
        target,
      };
      partial.set(block, [...partial.get(block) ?? [], clipped]);
    }
  }
  for (const [block, inside] of partial) {
    const below: Edges = new Map();
    addBytes(below, inside, 0x80, bits - 6);
    addEdge(edges, toNode(below), marker + block, marker + block);
  }
}

/** All continuations of a character with `bits` bits to come. */
function full(bits: number, target: number): ByteNode | number {
  if (bits === 0) return target;
  const edges: Edges = new Map();
  addEdge(edges, full(bits - 6, target), 0x80, 0xbf);
  return toNode(edges);
}

function addEdge(edges: Edges, child: ByteNode | number, low: number, high: number): void {
  const key = typeof child === "number" ? String(child) : child.key;
  const edge = edges.get(key) ?? { child, bytes: [] };
  edge.bytes.push([low, high]);
  edges.set(key, edge);
}

function toNode(edges: Edges): ByteNode {
  const list = [...edges.values()].map(({ child, bytes }) => ({ child, ranges: merged(bytes) }));
  list.sort((a, b) => a.ranges[0]! - b.ranges[0]!);
  const key = list.map(({ ranges, child }) =>
    `${ranges.join(".")}>${typeof child === "number" ? child : child.key}`
  ).join(";");
  return { edges: list, key: `(${key})` };
}

function merged(bytes: readonly [number, number][]): number[] {
  const ranges: number[] = [];
  for (const [low, high] of bytes.toSorted(([a], [b]) => a - b)) {
    if (ranges.length > 0 && ranges.at(-1) === low - 1) ranges[ranges.length - 1] = high;
    else ranges.push(low, high);
  }
  return ranges;
}
