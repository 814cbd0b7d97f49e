/**
 * Finite automata over Unicode text. Patterns, lengths, formats and bounds all become automata, so
 * that they can be intersected. All are deterministic and total; state 0 is the dead state.
 */
import {
  ALL,
  type CharSet,
  charSet,
  intersection,
  MAX_CODE_POINT,
  pairs,
  union,
} from "./char_set.ts";
import { checkLimit, countSteps, LIMITS } from "../limits.ts";

/** States and transitions between them by classes of characters. */
export interface Automaton {
  /** A partition of all characters; no state distinguishes members of one class. */
  readonly classes: readonly CharSet[];
  /** `[state, class]`: the next state. */
  readonly next: Int32Array;
  readonly accepting: Uint8Array;
  readonly start: number;
}

/** Number of states, including the dead state. */
export function stateCount(a: Automaton): number {
  return a.accepting.length;
}

/** Returns the coarsest partition of which each of `sets` is a union. */
export function partition(sets: readonly CharSet[]): CharSet[] {
  const cuts = new Map<number, number[]>();
  const cut = (at: number, set: number) => {
    const list = cuts.get(at);
    if (list === undefined) cuts.set(at, [set]);
    else list.push(set);
  };
  sets.forEach((set, i) => {
    for (const [low, high] of pairs(set)) {
      cut(low, i);
      cut(high + 1, i);
    }
  });
  const groups = new Map<string, [number, number][]>();
  const inside = new Set<number>();
  let from = 0, key = "";
  for (const at of [...cuts.keys()].toSorted((a, b) => a - b)) {
    if (at > from) group(groups, key).push([from, at - 1]);
    for (const i of cuts.get(at)!) if (!inside.delete(i)) inside.add(i);
    key = [...inside].toSorted((a, b) => a - b).join();
    from = at;
  }
  // Empty if the last range of a set ends with the last character.
  group(groups, key).push([from, MAX_CODE_POINT]);
  return [...groups.values()].map((ranges) => charSet(ranges)).filter((set) => set.length > 0);
}

function group(groups: Map<string, [number, number][]>, key: string): [number, number][] {
  const found = groups.get(key);
  if (found !== undefined) return found;
  const made: [number, number][] = [];
  groups.set(key, made);
  return made;
}

/**
 * Builds the minimal automaton of the states reachable from `start`.
 *
 * @param follow returns the next state for a class index, or `undefined` for the dead state
 * @param keyOf returns equal keys for equal states
 */
export function explore<State>(
  classes: readonly CharSet[],
  start: State,
  keyOf: (state: State) => string,
  follow: (state: State, symbol: number) => State | undefined,
  accepts: (state: State) => boolean,
): Automaton {
  const ids = new Map<string, number>([[keyOf(start), 1]]);
  const states = [start];
  const next: number[] = new Array(classes.length).fill(0);
  for (const state of states) {
    countSteps(4 * classes.length);
    for (let symbol = 0; symbol < classes.length; symbol++) {
      const target = follow(state, symbol);
      if (target === undefined) {
        next.push(0);
        continue;
      }
      const key = keyOf(target);
      let id = ids.get(key);
      if (id === undefined) {
        id = states.push(target);
        checkLimit("the number of states of a pattern", id, LIMITS.states);
        checkLimit("the number of transitions of a pattern", next.length, LIMITS.transitions);
        ids.set(key, id);
      }
      next.push(id);
    }
  }
  return minimize({
    classes,
    next: Int32Array.from(next),
    accepting: Uint8Array.from([0, ...states.map((state) => accepts(state) ? 1 : 0)]),
    start: 1,
  });
}

/** Accepts the texts that all automata accept. */
export function intersect(first: Automaton, ...rest: readonly Automaton[]): Automaton {
  return rest.reduce((a, b) => product(a, b, (x, y) => x && y), first);
}

/** Accepts the texts that `a` accepts and `b` rejects. */
export function subtract(a: Automaton, b: Automaton): Automaton {
  return product(a, b, (x, y) => x && !y);
}

function product(
  a: Automaton,
  b: Automaton,
  accepts: (a: boolean, b: boolean) => boolean,
): Automaton {
  const classes: CharSet[] = [];
  const symbols: [number, number][] = [];
  countSteps(a.classes.length * b.classes.length);
  a.classes.forEach((left, i) =>
    b.classes.forEach((right, j) => {
      const both = intersection(left, right);
      if (both.length === 0) return;
      classes.push(both);
      symbols.push([i, j]);
    })
  );
  return explore<readonly [number, number]>(
    classes,
    [a.start, b.start],
    ([x, y]) => `${x},${y}`,
    ([x, y], symbol) => {
      const [i, j] = symbols[symbol]!;
      const left = step(a, x, i);
      return left === 0 ? undefined : [left, step(b, y, j)];
    },
    ([x, y]) => accepts(a.accepting[x] === 1, b.accepting[y] === 1),
  );
}

/** Returns the state that follows `state` for a class index. */
export function step(a: Automaton, state: number, symbol: number): number {
  return a.next[state * a.classes.length + symbol]!;
}

/** True if no text is accepted. */
export function isEmpty(a: Automaton): boolean {
  return a.start === 0;
}

/** True if a text is accepted. */
export function accepts(a: Automaton, text: string): boolean {
  let state = a.start;
  for (const character of text) {
    const code = character.codePointAt(0)!;
    const symbol = a.classes.findIndex((set) => intersection(set, [code, code]).length > 0);
    state = symbol < 0 ? 0 : step(a, state, symbol);
  }
  return a.accepting[state] === 1;
}

/** Accepts all texts. */
export const ANYTHING: Automaton = {
  classes: [ALL],
  next: Int32Array.of(0, 1),
  accepting: Uint8Array.of(0, 1),
  start: 1,
};

/**
 * Returns the smallest equivalent automaton. States start in two blocks, accepting and not, and
 * blocks are split until no class leads from one block into two (Hopcroft, "An n log n algorithm
 * for minimizing states in a finite automaton", 1971).
 */
function minimize(a: Automaton): Automaton {
  const n = stateCount(a), k = a.classes.length;
  const before: number[][] = Array.from({ length: n * k }, () => []);
  for (let state = 0; state < n; state++) {
    for (let symbol = 0; symbol < k; symbol++) {
      before[step(a, state, symbol) * k + symbol]!.push(state);
    }
  }
  const blockOf = new Int32Array(n);
  const blocks: Set<number>[] = [new Set(), new Set()];
  for (let state = 0; state < n; state++) {
    blockOf[state] = a.accepting[state]!;
    blocks[blockOf[state]!]!.add(state);
  }
  const work: [number, number][] = [];
  const waiting = new Set<number>();
  const push = (block: number, symbol: number) => {
    waiting.add(block * k + symbol);
    work.push([block, symbol]);
  };
  for (let symbol = 0; symbol < k; symbol++) {
    push(blocks[0]!.size < blocks[1]!.size ? 0 : 1, symbol);
  }
  for (let item = work.pop(); item !== undefined; item = work.pop()) {
    const [splitter, symbol] = item;
    waiting.delete(splitter * k + symbol);
    const reached = new Map<number, number[]>();
    for (const state of blocks[splitter]!) {
      for (const source of before[state * k + symbol]!) {
        const block = blockOf[source]!;
        const list = reached.get(block);
        if (list === undefined) reached.set(block, [source]);
        else list.push(source);
      }
    }
    for (const [block, members] of reached) {
      const all = blocks[block]!;
      if (members.length === all.size) continue;
      const made = blocks.push(new Set(members)) - 1;
      for (const state of members) {
        all.delete(state);
        blockOf[state] = made;
      }
      for (let other = 0; other < k; other++) {
        const smaller = members.length < all.size ? made : block;
        push(waiting.has(block * k + other) ? made : smaller, other);
      }
    }
  }
  return renumber(a, blockOf);
}

/** Turns each block into a state, numbered in order of reachability; the dead block becomes 0. */
function renumber(a: Automaton, blockOf: Int32Array): Automaton {
  const k = a.classes.length;
  const ids = new Map([[blockOf[0]!, 0]]);
  const states = [0];
  const idOf = (state: number) => {
    const block = blockOf[state]!;
    const known = ids.get(block);
    if (known !== undefined) return known;
    ids.set(block, states.length);
    return states.push(state) - 1;
  };
  const start = idOf(a.start);
  const next: number[] = [];
  for (const state of states) {
    for (let symbol = 0; symbol < k; symbol++) next.push(idOf(step(a, state, symbol)));
  }
  // Merge classes that no state distinguishes any more.
  const columns = new Map<string, { set: CharSet; column: number[] }>();
  a.classes.forEach((set, symbol) => {
    const column = states.map((_, state) => next[state * k + symbol]!);
    const key = column.join();
    const known = columns.get(key);
    columns.set(key, { set: union(known?.set ?? [], set), column });
  });
  const merged = [...columns.values()];
  return {
    classes: merged.map(({ set }) => set),
    next: Int32Array.from(states.flatMap((_, state) => merged.map(({ column }) => column[state]!))),
    accepting: Uint8Array.from(states, (state) => a.accepting[state]!),
    start,
  };
}
