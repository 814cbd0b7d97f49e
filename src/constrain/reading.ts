/**
 * How far a text has been read by a grammar: the places it may be at, each with the rules that are to be
 * gone on with when its own ends. Earley's algorithm (Earley 1970), but that what is still to come is kept, not
 * where it began: readings that go on alike are one object, whose next steps are found once.
 */
import { LIMITS, tooLarge } from "./limits.ts";
import { type Callee, isOnlyEnd, type Place } from "./places.ts";

/** A place, and what follows the rule it is in. */
export interface Item {
  readonly place: Place;
  readonly frame: Frame;
}

/** What follows a rule, once it has been read: any of several places, each with its own frame. */
export interface Frame {
  readonly id: number;
  readonly returns: readonly Item[];
  /** Whether the text may end with the rule. */
  readonly endsText: boolean;
}

/** The places that a text may be at. */
export class Reading {
  readonly items: readonly Item[];
  /** Whether the text may end here. */
  readonly isEnd: boolean;
  readonly #grammar: GrammarReader;
  #next: (Reading | undefined | null)[] | undefined;

  constructor(grammar: GrammarReader, items: readonly Item[], isEnd: boolean) {
    this.#grammar = grammar;
    this.items = items;
    this.isEnd = isEnd;
  }

  /** How it goes on with a byte; `undefined` where the byte is not allowed. */
  step(byte: number): Reading | undefined {
    this.#next ??= new Array(256).fill(null);
    const known = this.#next[byte];
    if (known !== null) return known;
    return this.#next[byte] = this.#grammar.step(this.items, byte);
  }

  /** Frees what was found out about the bytes that may follow. */
  forget(): void {
    this.#next = undefined;
  }
}

/** A rule that begins in the step at hand, and what it was called by so far. */
class Entered {
  readonly callers: { readonly place: Place | undefined; readonly frame: Frame | Entered }[] = [];
  frame: Frame | undefined;
}

/** Reads texts by a grammar. */
export class GrammarReader {
  readonly start: Reading;
  readonly #frames = new Map<string, Frame>();
  readonly #readings = new Map<string, Reading>();
  readonly #behind = new Map<Frame, Reading | undefined>();
  #nextFrame = 0;
  #work = 0;

  /** @param start where the text begins */
  constructor(start: Place) {
    const frame = this.#frame([], true);
    this.start = this.#close([{ place: start, frame }])!;
  }

  /** How many readings are kept. */
  get size(): number {
    return this.#readings.size;
  }

  /** Begins to count the work for one mask or one token. */
  beginWork(): void {
    this.#work = 0;
  }

  /**
   * Counts places that are looked at.
   *
   * @throws {ForgeError} `usage` when they are too many
   */
  countWork(places: number): void {
    this.#work += places;
    if (this.#work > LIMITS.work) {
      throw tooLarge("there are too many ways to go on here; fewer alternatives may help");
    }
  }

  /** Frees what is not in use. What is in use stays as it is. */
  forget(): void {
    for (const reading of this.#readings.values()) reading.forget();
    this.#readings.clear();
    this.#behind.clear();
    this.#frames.clear();
  }

  /** The reading at some places. */
  at(items: readonly Item[], isEnd: boolean): Reading {
    const sorted = items.toSorted((a, b) => a.place.id - b.place.id || a.frame.id - b.frame.id);
    const key = `${sorted.map(({ place, frame }) => `${place.id}:${frame.id}`).join()}${isEnd}`;
    const known = this.#readings.get(key);
    if (known !== undefined) return known;
    const made = new Reading(this, sorted, isEnd);
    this.#readings.set(key, made);
    return made;
  }

  step(items: readonly Item[], byte: number): Reading | undefined {
    const behind: Item[] = [];
    for (const { place, frame } of items) {
      const next = place.step(byte);
      if (next !== undefined) behind.push({ place: next, frame });
    }
    this.countWork(items.length);
    return this.#close(behind);
  }

  /** Where a text is when the rule has ended that a frame follows. */
  behind(frame: Frame): Reading | undefined {
    if (this.#behind.has(frame)) return this.#behind.get(frame);
    const made = this.#close(frame.returns, frame.endsText);
    this.#behind.set(frame, made);
    return made;
  }

  /**
   * Goes into the rules that begin at some places, and out of those that end there. A rule that begins
   * has one frame however often it is called, so that the number of items stays that of places times
   * positions. The rules that are empty are passed by, not gone through.
   */
  #close(starts: readonly Item[], endsText = false): Reading | undefined {
    let isEnd = endsText;
    const found: { readonly place: Place; readonly frame: Frame | Entered }[] = [];
    const seen = new Map<Frame | Entered, Set<Place>>();
    const entered = new Map<Callee, Entered>();
    const work: { readonly place: Place; readonly frame: Frame | Entered }[] = [...starts];
    for (const item of work) {
      const { place, frame } = item;
      const places = seen.get(frame);
      if (places?.has(place)) continue;
      if (places === undefined) seen.set(frame, new Set([place]));
      else places.add(place);
      this.countWork(1);
      if (place.readsBytes) found.push(item);
      if (place.isEnd && !(frame instanceof Entered)) {
        isEnd ||= frame.endsText;
        for (const back of frame.returns) work.push(back);
      }
      for (const { callee, after } of place.calls) {
        let rule = entered.get(callee);
        if (rule === undefined) {
          entered.set(callee, rule = new Entered());
          work.push({ place: callee.start, frame: rule });
        }
        // A call that ends its rule is followed by what follows the rule.
        rule.callers.push({ place: isOnlyEnd(after) ? undefined : after, frame });
        if (callee.isNullable) work.push({ place: after, frame });
      }
    }
    if (found.length === 0 && !isEnd) return undefined;
    return this.at(
      found.map(({ place, frame }) => ({ place, frame: this.#settled(frame) })),
      isEnd,
    );
  }

  /** The frame of a rule that was entered, whose callers may be entered ones too. */
  #settled(frame: Frame | Entered): Frame {
    if (!(frame instanceof Entered)) return frame;
    const path = [frame];
    for (let rule = path.at(-1); rule !== undefined; rule = path.at(-1)) {
      const open = rule.callers.map(({ frame }) => frame)
        .find((caller) => caller instanceof Entered && caller.frame === undefined);
      // No rule begins with itself, so that there is always one whose callers are known.
      if (open instanceof Entered) path.push(open);
      else {
        rule.frame ??= this.#frameOf(rule);
        path.pop();
      }
    }
    return frame.frame!;
  }

  #frameOf({ callers }: Entered): Frame {
    const returns: Item[] = [];
    let endsText = false;
    for (const { place, frame } of callers) {
      const settled = frame instanceof Entered ? frame.frame! : frame;
      if (place !== undefined) returns.push({ place, frame: settled });
      else {
        for (const back of settled.returns) returns.push(back);
        endsText ||= settled.endsText;
      }
    }
    return this.#frame(returns, endsText);
  }

  #frame(returns: readonly Item[], endsText: boolean): Frame {
    const keyed = new Map(
      returns.map((item) => [`${item.place.id}:${item.frame.id}`, item] as const),
    );
    const key = `${[...keyed.keys()].toSorted().join()}${endsText}`;
    const known = this.#frames.get(key);
    if (known !== undefined) return known;
    const made = { id: this.#nextFrame++, returns: [...keyed.values()], endsText };
    this.#frames.set(key, made);
    return made;
  }
}
