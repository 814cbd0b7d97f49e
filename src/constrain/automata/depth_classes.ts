import { type Automaton, stateCount } from "./automaton.ts";

/** Table cells looked at to tell states apart: a tenth of a second of work. */
const MOST_CELLS = 2e6;

/**
 * Which states of an automaton are alike for so many characters: the same of them can be read, and the text
 * can end at the same places. These are the classes of Moore's minimisation after as many rounds. A string of up to 500 characters has 500 states, of which all but
 * the last few are alike to a token of eight.
 */
export class DepthClasses {
  readonly #automaton: Automaton;
  /** By depth. The last is also that of every larger one. */
  readonly #rounds: Int32Array[];
  #isStable = false;
  #count: number;

  constructor(automaton: Automaton) {
    this.#automaton = automaton;
    // What is dead differs from what goes on, though neither accepts the text so far.
    const first = Int32Array.from(
      automaton.accepting,
      (accepts, state) => state === 0 ? 2 : accepts,
    );
    this.#rounds = [first];
    this.#count = new Set(first).size;
  }

  /** The class of a state; the state itself where finding out would take too long. */
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
    // Classes are only ever split.
    this.#isStable = known.size === this.#count;
    this.#count = known.size;
    this.#rounds.push(ids);
  }
}
