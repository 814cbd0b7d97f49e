import type { Spelled } from "./spelling.ts";
import { type CharSet, pairs } from "./char_set.ts";

/**
 * The UTF-8 bytes of characters as a deterministic tree. From each node, a byte leads to at most
 * one child: a node, or after the last byte the target index of the character.
 */
interface ByteNode {
  readonly edges: readonly ByteEdge[];
  /** Equal for equal trees. */
  readonly key: string;
}

/** A set of bytes that leads to a child. */
interface ByteEdge {
  /** `[low, high, …]` */
  readonly ranges: readonly number[];
  readonly child: ByteNode | number;
}

interface Range {
  /** Bounds of the part of the code point that is not yet encoded, both inclusive. */
  readonly low: number;
  readonly high: number;
  readonly target: number;
}

/**
 * UTF-8 lengths: range of code points, marker of the lead byte, payload bits of the other bytes.
 */
const LENGTHS = [
  { first: 0, last: 0x7f, marker: 0, bits: 0 },
  { first: 0x80, last: 0x7ff, marker: 0xc0, bits: 6 },
  { first: 0x800, last: 0xffff, marker: 0xe0, bits: 12 },
  { first: 0x10000, last: 0x10ffff, marker: 0xf0, bits: 18 },
] as const;

/** Builds the tree of sets of characters with their target indices; the sets must not overlap. */
function byteTree(targets: readonly (readonly [CharSet, number])[]): ByteNode {
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

/** Adds the edges of the byte that encodes the bits above the lowest `bits`. */
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

/** Accepts every continuation of a character with `bits` bits left. */
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

/** Cell of a byte that is not allowed. */
export const DEAD = -1;

/**
 * Byte transitions of single characters, each of which leads to a target index, and of a
 * terminator, which leads to one more. Node 0 is between characters.
 */
export class ByteTable {
  /** `[node, byte]`: the next node, {@linkcode DEAD}, or -2 - n for target index n. */
  readonly cells: Int16Array;

  /**
   * @param targets the spelling of the characters that lead to each index
   * @param end the terminator in ASCII, or ""
   */
  constructor(targets: readonly Spelled[], end: string) {
    const edges = [...byteTree(targets.map(({ plain }, i) => [plain, i])).edges];
    targets.forEach(({ escaped }, i) => edges.push(...escaped.map((bytes) => chain(bytes, i))));
    if (end !== "") {
      const bytes = Array.from(end, (c) => [c.charCodeAt(0), c.charCodeAt(0)]);
      edges.push(chain(bytes, targets.length));
    }
    this.cells = tabulate(edges);
  }

  /** Returns the node or target index after a byte. */
  next(node: number, byte: number): { isTarget: boolean; number: number } | undefined {
    const cell = this.cells[256 * node + byte]!;
    if (cell === DEAD) return undefined;
    return cell >= 0 ? { isTarget: false, number: cell } : { isTarget: true, number: -2 - cell };
  }
}

/** An edge that reads one byte after another. */
function chain(bytes: readonly (readonly number[])[], target: number): ByteEdge {
  const [ranges, ...rest] = bytes;
  if (rest.length === 0) return { ranges: ranges!, child: target };
  return {
    ranges: ranges!,
    child: { edges: [chain(rest, target)], key: `${JSON.stringify(rest)}>${target}` },
  };
}

/** Builds the table of a set of edges; several edges for one byte lead to one merged node. */
function tabulate(edges: readonly ByteEdge[]): Int16Array {
  const nodes: (readonly ByteEdge[])[] = [edges];
  const ids = new Map<string, number>();
  const rows: number[][] = [];
  for (const node of nodes) {
    const children = Array.from({ length: 256 }, (): ByteEdge["child"][] => []);
    for (const { ranges, child } of node) {
      for (let i = 0; i < ranges.length; i += 2) {
        for (let byte = ranges[i]!; byte <= ranges[i + 1]!; byte++) children[byte]!.push(child);
      }
    }
    rows.push(children.map((following) => {
      const [first] = following;
      if (first === undefined) return DEAD;
      if (typeof first === "number") return -2 - first;
      const inner = following.filter((child) => typeof child !== "number");
      const key = inner.map((child) => child.key).join("|");
      let id = ids.get(key);
      if (id === undefined) {
        id = nodes.push(inner.flatMap((child) => child.edges)) - 1;
        ids.set(key, id);
      }
      return id;
    }));
  }
  return Int16Array.from(rows.flat());
}
