import { ALL, type CharSet, charsOf, intersection } from "./char_set.ts";
import { type Automaton, explore, partition } from "./automaton.ts";
import { checkLimit, countSteps, LIMITS } from "../limits.ts";
import { type Regex, repeat, sequence, set } from "./regex.ts";

/** Accepts the texts that a regular expression matches as a whole. */
export function matching(regex: Regex): Automaton {
  return build(sequence(optional("start"), regex, optional("end")));
}

/** Accepts the texts that contain a match, as `RegExp.test` finds it. */
export function containing(regex: Regex): Automaton {
  const before = repeat(sequence({ kind: "edge", at: "start" }, ANY_TEXT), 0, 1);
  const after = repeat(sequence(ANY_TEXT, { kind: "edge", at: "end" }), 0, 1);
  return build(sequence(before, regex, after));
}

/** Accepts the texts of `min` to `max` characters; no text if `min` is larger. */
export function ofLength(min: number, max: number): Automaton {
  if (min > max) return matching(oneOf([]));
  // State `i + 1` follows `i` characters; 0 is the dead state.
  const last = (max === Infinity ? min : max) + 1;
  const next = Int32Array.from({ length: last + 1 }, (_, state) => state === 0 ? 0 : state + 1);
  next[last] = max === Infinity ? last : 0;
  const accepting = Uint8Array.from(next, (_, state) => state > min ? 1 : 0);
  return { classes: [ALL], next, accepting, start: 1 };
}

const ANY_TEXT: Regex = repeat(set(ALL), 0, Infinity);

function optional(at: "start" | "end"): Regex {
  return repeat({ kind: "edge", at }, 0, 1);
}

/**
 * A state of the non-deterministic automaton. The edges of the text are symbols of their own: each
 * text has a start symbol before it and an end symbol after it, which `^` and `$` match like
 * characters.
 */
interface Node {
  readonly label: CharSet | "start" | "end" | undefined;
  readonly out: number[];
}

const MATCH = 0;

/** Minimum steps counted for building an automaton. */
const BUILD_STEPS = 300;

function build(regex: Regex): Automaton {
  const nodes: Node[] = [{ label: undefined, out: [] }];
  const begin = compile(regex, MATCH, nodes);
  const sets = nodes.flatMap(({ label }) => Array.isArray(label) ? [label] : []);
  const classes = partition(sets);
  countSteps(BUILD_STEPS + sets.length * classes.length);
  // For each node and class: true if the node accepts the class.
  const takes = nodes.map(({ label }) =>
    Array.isArray(label) ? classes.map((c) => intersection(c, label).length > 0) : []
  );
  const close = (seeds: Iterable<number>): number[] => {
    const found = new Set(seeds);
    for (const id of found) {
      const { label, out } = nodes[id]!;
      if (label === undefined) { for (const target of out) found.add(target); }
    }
    countSteps(found.size);
    return [...found].filter((id) => id === MATCH || nodes[id]!.label !== undefined)
      .toSorted((a, b) => a - b);
  };
  const after = (state: readonly number[], takesIt: (id: number) => boolean) => {
    const targets = state.filter(takesIt).flatMap((id) => nodes[id]!.out);
    return targets.length === 0 ? undefined : close(targets);
  };
  const start = after(close([begin]), (id) => nodes[id]!.label === "start");
  return explore<readonly number[]>(
    classes,
    start ?? [],
    (state) => state.join(),
    (state, symbol) => after(state, (id) => takes[id]![symbol] === true),
    (state) => after(state, (id) => nodes[id]!.label === "end")?.includes(MATCH) ?? false,
  );
}

/** Adds the nodes of an expression that continues at `next`; returns its first node. */
function compile(regex: Regex, next: number, nodes: Node[]): number {
  const add = (label: Node["label"], out: number[]) => {
    checkLimit("the number of positions of a pattern", nodes.length, LIMITS.positions);
    return nodes.push({ label, out }) - 1;
  };
  switch (regex.kind) {
    case "set":
      return add(regex.set, [next]);
    case "edge":
      return add(regex.at, [next]);
    case "sequence":
      return regex.items.reduceRight((after, item) => compile(item, after, nodes), next);
    case "choice":
      return add(undefined, regex.options.map((option) => compile(option, next, nodes)));
    case "repeat": {
      const { body, min, max } = regex;
      let begin = next;
      if (max === Infinity) {
        begin = add(undefined, [next]);
        nodes[begin]!.out.push(compile(body, begin, nodes));
      } else {
        for (let i = min; i < max; i++) begin = add(undefined, [next, compile(body, begin, nodes)]);
      }
      for (let i = 0; i < min; i++) begin = compile(body, begin, nodes);
      return begin;
    }
  }
}

/** Matches one of several texts. */
export function oneOf(texts: readonly string[]): Regex {
  const options = texts.map((text): Regex => ({
    kind: "sequence",
    items: Array.from(text, (c) => set(charsOf(c))),
  }));
  return { kind: "choice", options };
}
