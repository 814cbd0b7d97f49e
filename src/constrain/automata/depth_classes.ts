import { type Automaton, stateCount } from "./automaton.ts";

/** Bound on the table cells read to compare states; takes about 0.1 s. */
const MOST_CELLS = 2e6;

/**
 * Groups states that are equivalent for the next `depth` characters: the same characters can be
 * read, and the text can end at the same positions. These are the classes of Moore's minimization
 * after `depth` rounds. A string of up to 500 characters has 500 states, but all except the last
 * few are equivalent for a token of eight characters.
 */
export class DepthClasses {
  readonly #automaton: Automaton;
  /** By depth. The last entry also holds for every larger depth. */
  readonly #rounds: Int32Array[];
  #isStable = false;
  #count: number;

  constructor(automaton: Automaton) {
    this.#automaton = automaton;
    // The dead state differs from other states that do not accept.
    const first = Int32Array.from(
      automaton.accepting,
      (accepts, state) => state === 0 ? 2 : accepts,
    );
    this.#rounds = [first];
    this.#count = new Set(first).size;
  }

  /**
   * Returns the class of a state, or the state itself if computing the class would take too long.
   */
  of(state: number, depth: number): number {
    const cells = this.#automaton.next.length;
    while (this.#rounds.length <= depth && !this.#isStable) {
      if (this.#rounds.length * cells > MOST_CELLS) return state;
      this.#refine();
    }
    return this.#rounds[Math.min(depth, this.#rounds.length - 1)]![state]!;
  }

  #refine(): void {
    const { classes, next } = this.#automaton;
    const states = stateCount(this.#automaton), symbols = classes.length;
    const before = this.#rounds.at(-1)!;
    let ids = before;
    let known = new Map<number, number>();
    for (let symbol = 0; symbol < symbols; symbol++) {
      known = new Map();
      const after = new Int32Array(states);
      for (let state = 0; state < states; state++) {
        const key = ids[state]! * states + before[next[state * symbols + symbol]!]!;
        let id = known.get(key);
        if (id === undefined) known.set(key, id = known.size);
        after[state] = id;
      }
      ids = after;
    }
    // Classes are only ever split, so an equal count means no change.
    this.#isStable = known.size === this.#count;
    this.#count = known.size;
    this.#rounds.push(ids);
  }
}
