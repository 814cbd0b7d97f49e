/**
 * Reads texts by a grammar. A reading is the set of places the text may be at, each with a frame of
 * continuations. This is Earley's algorithm (Earley 1970), except that items record their
 * continuations, not their origins: readings with equal continuations are one object, whose next
 * steps are computed once.
 */
import { LIMITS, tooLarge } from "../limits.ts";
import { type Callee, isOnlyEnd, type Place } from "./places.ts";

/** Work of visiting a place, and of recording a caller of a rule; stepping an item is 1. */
const VISIT_WORK = 2, CALLER_WORK = 8;

/** A place, and the continuations of its rule. */
export interface Item {
  readonly place: Place;
  readonly frame: Frame;
}

/** Continuations of a rule: any of several places, each with its own frame. */
export interface Frame {
  readonly id: number;
  readonly returns: readonly Item[];
  /** True if the text may end with the rule. */
  readonly endsText: boolean;
}

/** The set of places that a text may be at. */
export class Reading {
  readonly items: readonly Item[];
  /** True if the text may end here. */
  readonly isEnd: boolean;
  readonly #grammar: GrammarReader;
  #next: (Reading | undefined | null)[] | undefined;

  constructor(grammar: GrammarReader, items: readonly Item[], isEnd: boolean) {
    this.#grammar = grammar;
    this.items = items;
    this.isEnd = isEnd;
  }

  /** Returns the reading after a byte, or `undefined` if the byte is not allowed. */
  step(byte: number): Reading | undefined {
    this.#next ??= new Array(256).fill(null);
    const known = this.#next[byte];
    if (known !== null) return known;
    return this.#next[byte] = this.#grammar.step(this.items, byte);
  }

  /** Frees the computed next readings. */
  forget(): void {
    this.#next = undefined;
  }
}

/** A rule entered in the current step, with its callers so far. */
class Entered {
  readonly callers: { readonly place: Place | undefined; readonly frame: Frame | Entered }[] = [];
  frame: Frame | undefined;
}

/** Reads texts by a grammar. */
export class GrammarReader {
  readonly start: Reading;
  readonly #frames = new Map<string, Frame>();
  readonly #readings = new Map<string, Reading>();
  readonly #after = new Map<Frame, Reading | undefined>();
  #nextFrame = 0;
  #work = 0;

  /** @param start the place where the text begins */
  constructor(start: Place) {
    const frame = this.#frame([], true);
    this.start = this.#close([{ place: start, frame }])!;
  }

  /** Number of cached readings. */
  get size(): number {
    return this.#readings.size;
  }

  /** Resets the work counter for one mask or one token. */
  beginWork(): void {
    this.#work = 0;
  }

  /**
   * Counts work of the current mask or token.
   *
   * @throws {ForgeError} `usage` above the limit
   */
  countWork(work: number): void {
    this.#work += work;
    if (this.#work > LIMITS.work) {
      throw tooLarge("too many continuations are possible here; fewer alternatives may help");
    }
  }

  /** Clears the caches. Readings in use stay valid. */
  forget(): void {
    for (const reading of this.#readings.values()) reading.forget();
    this.#readings.clear();
    this.#after.clear();
    this.#frames.clear();
  }

  /** Returns the unique reading of some items. */
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
    const after: Item[] = [];
    for (const { place, frame } of items) {
      const next = place.step(byte);
      if (next !== undefined) after.push({ place: next, frame });
    }
    this.countWork(items.length);
    return this.#close(after);
  }

  /** Returns the reading after the end of the rule that a frame continues. */
  readingAfter(frame: Frame): Reading | undefined {
    if (this.#after.has(frame)) return this.#after.get(frame);
    const made = this.#close(frame.returns, frame.endsText);
    this.#after.set(frame, made);
    return made;
  }

  /**
   * Enters the rules that begin at some places, and leaves those that end there. A rule has one
   * frame however often it is called in a step, so the number of items is bounded by places times
   * positions. Nullable rules are also skipped.
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
      this.countWork(VISIT_WORK);
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
        // The last call of a rule continues with the rule's own continuations.
        rule.callers.push({ place: isOnlyEnd(after) ? undefined : after, frame });
        if (callee.isNullable) work.push({ place: after, frame });
      }
    }
    if (found.length === 0 && !isEnd) return undefined;
    return this.at(
      found.map(({ place, frame }) => ({ place, frame: this.#resolved(frame) })),
      isEnd,
    );
  }

  /** Returns the frame of an entered rule, after resolving those of its callers. */
  #resolved(frame: Frame | Entered): Frame {
    if (!(frame instanceof Entered)) return frame;
    const path = [frame];
    for (let rule = path.at(-1); rule !== undefined; rule = path.at(-1)) {
      const open = rule.callers.map(({ frame }) => frame)
        .find((caller) => caller instanceof Entered && caller.frame === undefined);
      // No rule begins with itself, so some rule always has only resolved callers.
      if (open instanceof Entered) path.push(open);
      else {
        rule.frame ??= this.#frameOf(rule);
        path.pop();
      }
    }
    return frame.frame!;
  }

  #frameOf({ callers }: Entered): Frame {
    this.countWork(CALLER_WORK * callers.length);
    const returns: Item[] = [];
    let endsText = false;
    for (const { place, frame } of callers) {
      const resolved = frame instanceof Entered ? frame.frame! : frame;
      if (place !== undefined) returns.push({ place, frame: resolved });
      else {
        for (const back of resolved.returns) returns.push(back);
        endsText ||= resolved.endsText;
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
