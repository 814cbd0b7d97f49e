import type { Callee, Place } from "../masks/places.ts";
import { type Automaton, step } from "./automaton.ts";
import { ByteTable } from "./byte_table.ts";
import { union } from "./char_set.ts";
import { DepthClasses } from "./depth_classes.ts";
import type { Spelling } from "./spelling.ts";

/** Pseudo-state after the text and its terminator. */
export const DONE = -1;

/** Transitions of one state. */
interface Ways {
  /** Maps the bytes of one character to an index into `targets`. */
  readonly table: ByteTable;
  /** States by index. */
  readonly targets: readonly number[];
}

/** True if the automaton accepts the empty text and its spelling adds no terminator. */
export function canBeEmpty({ accepting, start }: Automaton, { end }: Spelling): boolean {
  return end === "" && accepting[start] === 1;
}

/**
 * Byte-level view of an automaton. Transitions are computed per state on first use, because an
 * automaton may have thousands of states of which a text passes a few.
 */
export class ByteAutomaton implements Callee {
  readonly isNullable: boolean;
  readonly #texts: Automaton;
  readonly #spelling: Spelling;
  readonly #newId: () => number;
  readonly #ways: (Ways | undefined)[] = [];
  /** By transitions of a state; the states of a counted repeat share one table. */
  readonly #tables = new Map<string, ByteTable>();
  readonly #places = new Map<number, BytePlace>();
  #classes: DepthClasses | undefined;

  /** @param newId returns unique ids for places */
  constructor(texts: Automaton, spelling: Spelling, newId: () => number) {
    this.#texts = texts;
    this.#spelling = spelling;
    this.#newId = newId;
    this.isNullable = canBeEmpty(texts, spelling);
  }

  get start(): BytePlace {
    return this.placeAt(this.#texts.start, 0, "");
  }

  /** True if the text and its terminator may end in a state. */
  isEnd(state: number): boolean {
    return state === DONE ||
      (this.#spelling.end === "" && this.#texts.accepting[state] === 1);
  }

  /** @param state any state except {@linkcode DONE} */
  waysFrom(state: number): Ways {
    return this.#ways[state] ??= this.#findWays(state);
  }

  /** @param read the bytes read since `state`; they lead to `node` of its table */
  placeAt(state: number, node: number, read: string): BytePlace {
    const key = (state + 1) * 2 ** 16 + node;
    const known = this.#places.get(key);
    if (known !== undefined) return known;
    const made = new BytePlace(this, this.#newId(), state, node, read);
    this.#places.set(key, made);
    return made;
  }

  /**
   * Returns equal keys for places that allow the same texts of up to `depth` bytes, with the same
   * ends.
   */
  classOf({ state, read }: BytePlace, depth: number): string {
    if (state === DONE) return "";
    this.#classes ??= new DepthClasses(this.#texts);
    return `${this.#classes.of(state, depth)} ${read}`;
  }

  #findWays(state: number): Ways {
    const { classes, accepting } = this.#texts;
    const targets: number[] = [];
    const row = classes.map((_, symbol) => {
      const target = step(this.#texts, state, symbol);
      if (target === 0) return -1;
      const known = targets.indexOf(target);
      return known < 0 ? targets.push(target) - 1 : known;
    });
    const end = accepting[state] === 1 ? this.#spelling.end : "";
    const key = `${row.join()}${end}`;
    let table = this.#tables.get(key);
    if (table === undefined) {
      const spelled = targets.map((_, i) =>
        this.#spelling.spell(classes.filter((_, symbol) => row[symbol] === i).reduce(union))
      );
      table = new ByteTable(spelled, end);
      this.#tables.set(key, table);
    }
    return { table, targets: end === "" ? targets : [...targets, DONE] };
  }
}

/** A position in the bytes of an automaton's texts. */
export class BytePlace implements Place {
  readonly calls: Place["calls"] = [];
  readonly automaton: ByteAutomaton;
  readonly id: number;
  /** The state after the last complete character. */
  readonly state: number;
  /** The node of the state's table after the bytes of an incomplete character. */
  readonly node: number;
  readonly read: string;
  readonly isEnd: boolean;

  constructor(automaton: ByteAutomaton, id: number, state: number, node: number, read: string) {
    this.automaton = automaton;
    this.id = id;
    this.state = state;
    this.node = node;
    this.read = read;
    this.isEnd = node === 0 && automaton.isEnd(state);
  }

  get readsBytes(): boolean {
    return this.state !== DONE && this.automaton.waysFrom(this.state).targets.length > 0;
  }

  step(byte: number): BytePlace | undefined {
    if (this.state === DONE) return undefined;
    const { table, targets } = this.automaton.waysFrom(this.state);
    const next = table.next(this.node, byte);
    if (next === undefined) return undefined;
    if (next.isTarget) return this.automaton.placeAt(targets[next.number]!, 0, "");
    const read = this.read + String.fromCharCode(byte);
    return this.automaton.placeAt(this.state, next.number, read);
  }
}
