/**
 * Places in the rules of a grammar, computed on first use. The body of a rule is read as a
 * deterministic automaton over bytes and calls of other rules.
 */
import { ByteAutomaton } from "../automata/byte_automaton.ts";
import type { Expression } from "../grammar/grammar.ts";
import { checkLimit, LIMITS } from "../limits.ts";
import { SPELLINGS } from "../automata/spelling.ts";

/** A position in a rule or in an automaton. */
export interface Place {
  readonly id: number;
  /** True if the rule may end here. */
  readonly isEnd: boolean;
  /** True if a byte outside of calls may follow. */
  readonly readsBytes: boolean;
  readonly calls: readonly Call[];
  /** Returns the place after a byte; ignores bytes read by calls. */
  step(byte: number): Place | undefined;
}

/** A call of a rule or an automaton. */
interface Call {
  readonly callee: Callee;
  readonly after: Place;
}

/** A rule or an automaton. */
export interface Callee {
  readonly start: Place;
  /** True if it can be empty. */
  readonly isNullable: boolean;
}

/** True if only the end of the rule is at a place. */
export function isOnlyEnd({ isEnd, readsBytes, calls }: Place): boolean {
  return isEnd && !readsBytes && calls.length === 0;
}

/** Unread part of a body: `head`, of a text the bytes from `offset` on, and then `tail`. */
interface Rest {
  readonly id: number;
  readonly head: Expression;
  readonly offset: number;
  readonly tail: Rest | undefined;
}

/** Possible rests by the byte or callee read before them; `undefined` is the end of the rule. */
type Ways<T> = Map<T, (Rest | undefined)[]>;

function addWay<T>(ways: Ways<T>, first: T, after: Rest | undefined): void {
  const known = ways.get(first);
  if (known === undefined) ways.set(first, [after]);
  else known.push(after);
}

/** The places of a grammar's rules. */
export class Places {
  readonly #bodies: ReadonlyMap<number, Expression>;
  readonly #nullable: ReadonlySet<number>;
  readonly #callees = new Map<number | Expression, Callee>();
  readonly #expressions = new Map<Expression, number>();
  readonly #texts = new Map<Expression, Uint8Array>();
  readonly #rests = new Map<string, Rest>();
  readonly #places = new Map<string, RulePlace>();
  #ids = 0;

  /** @param nullable the rules that can be empty */
  constructor(bodies: ReadonlyMap<number, Expression>, nullable: ReadonlySet<number>) {
    this.#bodies = bodies;
    this.#nullable = nullable;
  }

  /** Returns the start of an expression that is read on its own. */
  begin(expression: Expression): Place {
    return this.place([this.#rest(expression, undefined)]);
  }

  /** Returns the place before any of several rests; `undefined` is the end of the rule. */
  place(rests: readonly (Rest | undefined)[]): RulePlace {
    const distinct = [...new Set(rests)].sort((a, b) => (a?.id ?? 0) - (b?.id ?? 0));
    const key = distinct.map((rest) => rest?.id ?? 0).join();
    const known = this.#places.get(key);
    if (known !== undefined) return known;
    const made = this.#open(distinct);
    this.#places.set(key, made);
    return made;
  }

  /** Expands rests to the bytes and calls they can begin with. */
  #open(rests: readonly (Rest | undefined)[]): RulePlace {
    const seen = new Set(rests);
    const bytes: Ways<number> = new Map();
    const calls: Ways<Callee> = new Map();
    for (const rest of seen) {
      checkLimit("the number of ways on from a place", seen.size, LIMITS.ways);
      if (rest === undefined) continue;
      const { head, offset, tail } = rest;
      switch (head.kind) {
        case "text": {
          const text = this.#bytesOf(head);
          const byte = text[offset];
          if (byte === undefined) seen.add(tail);
          else {addWay(
              bytes,
              byte,
              offset + 1 < text.length ? this.#rest(head, tail, offset + 1) : tail,
            );}
          break;
        }
        case "sequence":
          seen.add(head.items.reduceRight((after, item) => this.#rest(item, after), tail));
          break;
        case "choice":
          for (const option of head.options) seen.add(this.#rest(option, tail));
          break;
        default:
          addWay(calls, this.#callee(head), tail);
      }
    }
    return new RulePlace(this, this.#ids++, seen.has(undefined), bytes, calls);
  }

  /** Returns the unique object of a rest. */
  #rest(head: Expression, tail: Rest | undefined, offset = 0): Rest {
    let expression = this.#expressions.get(head);
    if (expression === undefined) {
      this.#expressions.set(head, expression = this.#expressions.size);
    }
    const key = `${expression},${offset},${tail?.id ?? 0}`;
    const known = this.#rests.get(key);
    if (known !== undefined) return known;
    const made = { id: this.#rests.size + 1, head, offset, tail };
    this.#rests.set(key, made);
    return made;
  }

  #bytesOf(head: Expression & { readonly kind: "text" }): Uint8Array {
    const known = this.#texts.get(head);
    if (known !== undefined) return known;
    const made = new TextEncoder().encode(head.text);
    this.#texts.set(head, made);
    return made;
  }

  #callee(head: Expression & { readonly kind: "rule" | "automaton" }): Callee {
    const key = head.kind === "rule" ? head.rule : head;
    const known = this.#callees.get(key);
    if (known !== undefined) return known;
    const made = head.kind === "rule"
      ? new Rule(this, this.#bodies.get(head.rule)!, this.#nullable.has(head.rule))
      : new ByteAutomaton(head.texts, SPELLINGS[head.spelling], () => this.#ids++);
    this.#callees.set(key, made);
    return made;
  }
}

class Rule implements Callee {
  readonly isNullable: boolean;
  readonly #places: Places;
  readonly #body: Expression;
  #start: Place | undefined;

  constructor(places: Places, body: Expression, isNullable: boolean) {
    this.#places = places;
    this.#body = body;
    this.isNullable = isNullable;
  }

  get start(): Place {
    return this.#start ??= this.#places.begin(this.#body);
  }
}

class RulePlace implements Place {
  readonly id: number;
  readonly isEnd: boolean;
  readonly readsBytes: boolean;
  readonly #places: Places;
  readonly #bytes: Ways<number>;
  readonly #next = new Map<number, Place>();
  readonly #callees: Ways<Callee>;
  #calls: readonly Call[] | undefined;

  constructor(
    places: Places,
    id: number,
    isEnd: boolean,
    bytes: Ways<number>,
    callees: Ways<Callee>,
  ) {
    this.#places = places;
    this.id = id;
    this.isEnd = isEnd;
    this.readsBytes = bytes.size > 0;
    this.#bytes = bytes;
    this.#callees = callees;
  }

  /** Computed on first use, because the rests after a call can be as large as those before it. */
  get calls(): readonly Call[] {
    return this.#calls ??= Array.from(
      this.#callees,
      ([callee, rests]) => ({ callee, after: this.#places.place(rests) }),
    );
  }

  step(byte: number): Place | undefined {
    const known = this.#next.get(byte);
    if (known !== undefined) return known;
    const after = this.#bytes.get(byte);
    if (after === undefined) return undefined;
    const place = this.#places.place(after);
    this.#next.set(byte, place);
    return place;
  }
}
