import { type ByteEdge, byteTree } from "./byte_tree.ts";
import type { Spelled } from "./spelling.ts";

/** Of a byte that is not allowed. */
export const DEAD = -1;

/**
 * The bytes of single characters, each of which leads to a number, and of an end, which leads to one more.
 * Node 0 is between characters.
 */
export class ByteTable {
  /** `[node, byte]`: the next node, {@linkcode DEAD}, or for the number `n` that the last byte leads to -2 - n. */
  readonly cells: Int16Array;

  /**
   * @param targets how the characters that lead to each number are written
   * @param end in ASCII, or nothing
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

  /** Where a byte leads from a node. */
  next(node: number, byte: number): { isTarget: boolean; number: number } | undefined {
    const cell = this.cells[256 * node + byte]!;
    if (cell === DEAD) return undefined;
    return cell >= 0 ? { isTarget: false, number: cell } : { isTarget: true, number: -2 - cell };
  }
}

/** Edges for one byte after another. */
function chain(bytes: readonly (readonly number[])[], target: number): ByteEdge {
  const [ranges, ...rest] = bytes;
  if (rest.length === 0) return { ranges: ranges!, child: target };
  return {
    ranges: ranges!,
    child: { edges: [chain(rest, target)], key: `${JSON.stringify(rest)}>${target}` },
  };
}

/** Makes a table of edges; several edges for one byte lead to a node of all that follows. */
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
