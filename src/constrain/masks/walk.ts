/** Walks through trees of tokens. */
import { type BytePlace, DONE } from "../automata/byte_automaton.ts";
import { DEAD } from "../automata/byte_table.ts";
import type { Reading } from "./reading.ts";
import type { TokenSetBuilder } from "./token_set.ts";
import type { TokenTree } from "./vocabulary.ts";

/** Result of walking through an automaton. */
interface Walked {
  /** Nodes at which the automaton may end although tokens continue. */
  readonly endings: Int32Array<ArrayBuffer>;
  /** Number of visited nodes. */
  readonly steps: number;
}

/** Collects the tokens that an automaton can read from a place on. */
export function walkAutomaton(
  tree: TokenTree,
  place: BytePlace,
  found: TokenSetBuilder,
): Walked {
  const { automaton } = place;
  const endings: number[] = [];
  const { bytes, depths, ends, first, tokens } = tree;
  const states = new Int32Array(tree.depth + 1), nodes = new Int32Array(tree.depth + 1);
  let steps = 0;
  states[0] = place.state;
  nodes[0] = place.node;
  for (let at = 0; at < bytes.length;) {
    steps++;
    const depth = depths[at]!;
    const state = states[depth - 1]!;
    const { table, targets } = automaton.waysFrom(state);
    const cell = table.cells[256 * nodes[depth - 1]! + bytes[at]!]!;
    if (cell === DEAD) {
      at = ends[at]!;
      continue;
    }
    for (let i = first[at]!; i < first[at + 1]!; i++) found.add(tokens[i]!);
    const isLeaf = ends[at] === at + 1;
    if (cell >= 0) {
      // Inside a character.
      states[depth] = state;
      nodes[depth] = cell;
    } else {
      const target = targets[-2 - cell]!;
      if (!isLeaf && automaton.isEnd(target)) endings.push(at);
      if (target === DONE) {
        at = ends[at]!;
        continue;
      }
      states[depth] = target;
      nodes[depth] = 0;
    }
    at++;
  }
  return { endings: Int32Array.from(endings), steps };
}

/**
 * Collects the tokens below a node that can be read.
 *
 * @param above the node, or -1 for the root
 * @param reading the reading at that node
 * @returns the number of visited nodes
 */
export function walkReading(
  tree: TokenTree,
  above: number,
  reading: Reading,
  found: TokenSetBuilder,
): number {
  const { bytes, depths, ends, first, tokens } = tree;
  const last = above < 0 ? bytes.length : ends[above]!;
  const base = above < 0 ? 0 : depths[above]!;
  const path: Reading[] = [reading];
  let steps = 0;
  for (let at = above + 1; at < last;) {
    steps++;
    const depth = depths[at]! - base;
    const next = path[depth - 1]!.step(bytes[at]!);
    if (next === undefined) {
      at = ends[at]!;
      continue;
    }
    path[depth] = next;
    for (let i = first[at]!; i < first[at + 1]!; i++) found.add(tokens[i]!);
    at++;
  }
  return steps;
}
