import { BytePlace } from "../automata/byte_automaton.ts";
import type { Frame, GrammarReader, Item, Reading } from "./reading.ts";
import { type TokenSet, TokenSetBuilder } from "./token_set.ts";
import type { TokenTree } from "./vocabulary.ts";
import { walkAutomaton, walkReading } from "./walk.ts";

/** Work of one step of a token walk. */
const STEP_WORK = 1 / 16;
/** Bounds of the cache. It is cleared when either is exceeded. */
const MOST_BYTES = 16 * 2 ** 20, MOST_READINGS = 4_000;

/** Tokens of one tree that an automaton reads from a place on. */
interface Inside {
  readonly tokens: TokenSet;
  /** Nodes at which the automaton may end although tokens continue. */
  readonly endings: Int32Array;
  /** Tokens that continue past the end of the automaton, by the frame that follows it. */
  readonly beyond: Map<Frame, TokenSet>;
}

/**
 * Computes the tokens that can follow a text.
 *
 * Inside a string, most tokens lie in the string as a whole, whatever surrounds it. They are found
 * once for all places from which the automaton reads the same texts of a token's length, so a
 * string of up to 4,000 characters costs little more than an unbounded one.
 */
export class Masks {
  readonly #reader: GrammarReader;
  readonly #trees: readonly TokenTree[];
  readonly #words: number;
  readonly #endTokens: readonly number[];
  readonly #inside = new Map<BytePlace["automaton"], Map<string, Inside>>();
  #found = new WeakMap<Reading, readonly TokenSet[]>();
  #bytes = 0;

  /**
   * @param vocabSize of the model
   * @param endTokens tokens allowed where the text may end
   */
  constructor(
    reader: GrammarReader,
    trees: readonly TokenTree[],
    vocabSize: number,
    endTokens: readonly number[],
  ) {
    this.#reader = reader;
    this.#trees = trees;
    this.#words = Math.ceil(vocabSize / 32);
    this.#endTokens = endTokens;
  }

  /**
   * Sets the bits of the tokens that can follow, including the end tokens where the text may end.
   *
   * @throws {ForgeError} `usage` if this takes too long
   */
  fill(reading: Reading, mask: Uint32Array): void {
    mask.fill(0);
    for (const tokens of this.#tokensOf(reading)) tokens.addTo(mask);
    if (!reading.isEnd) return;
    for (const token of this.#endTokens) mask[token >> 5]! |= 1 << (token & 31);
  }

  /** True if a token other than an end token can follow. @throws as {@linkcode fill} */
  allowsMore(reading: Reading): boolean {
    return this.#tokensOf(reading).some((tokens) => !tokens.isEmpty);
  }

  #tokensOf(reading: Reading): readonly TokenSet[] {
    const known = this.#found.get(reading);
    if (known !== undefined) return known;
    this.#reader.beginWork();
    if (this.#bytes > MOST_BYTES || this.#reader.size > MOST_READINGS) this.#forget();
    const sets: TokenSet[] = [];
    const others = reading.items.filter((item) => !this.#addInside(item, sets));
    if (others.length > 0) {
      const rest = others.length === reading.items.length
        ? reading
        : this.#reader.at(others, false);
      sets.push(this.#collect((found) => {
        for (const tree of this.#trees) this.#walk(tree, -1, rest, found);
      }));
    }
    this.#found.set(reading, sets);
    return sets;
  }

  /**
   * Adds the tokens that can follow inside and after an automaton; returns false for other places.
   */
  #addInside({ place, frame }: Item, sets: TokenSet[]): boolean {
    if (!(place instanceof BytePlace)) return false;
    for (const tree of this.#trees) {
      const inside = this.#insideOf(place, tree);
      sets.push(inside.tokens);
      if (inside.endings.length > 0 && frame.returns.length > 0) {
        sets.push(this.#beyond(inside, tree, frame));
      }
    }
    return true;
  }

  #insideOf(place: BytePlace, tree: TokenTree): Inside {
    const { automaton } = place;
    let known = this.#inside.get(automaton);
    if (known === undefined) this.#inside.set(automaton, known = new Map());
    const key = `${this.#trees.indexOf(tree)} ${automaton.classOf(place, tree.depth)}`;
    const found = known.get(key);
    if (found !== undefined) return found;
    let endings = new Int32Array(0);
    const tokens = this.#collect((found) => {
      const walked = walkAutomaton(tree, place, found);
      this.#reader.countWork(STEP_WORK * walked.steps);
      endings = walked.endings;
    });
    this.#bytes += endings.byteLength;
    const made = { tokens, endings, beyond: new Map<Frame, TokenSet>() };
    known.set(key, made);
    return made;
  }

  /** Returns the tokens that continue past the end of an automaton. */
  #beyond({ beyond, endings }: Inside, tree: TokenTree, frame: Frame): TokenSet {
    const known = beyond.get(frame);
    if (known !== undefined) return known;
    const after = this.#reader.readingAfter(frame);
    const made = this.#collect((found) => {
      if (after !== undefined) {
        for (const node of endings) this.#walk(tree, node, after, found);
      }
    });
    beyond.set(frame, made);
    return made;
  }

  #walk(tree: TokenTree, above: number, reading: Reading, found: TokenSetBuilder): void {
    this.#reader.countWork(STEP_WORK * walkReading(tree, above, reading, found));
  }

  #collect(walk: (found: TokenSetBuilder) => void): TokenSet {
    const found = new TokenSetBuilder(this.#words);
    walk(found);
    const made = found.build();
    this.#bytes += made.byteLength;
    return made;
  }

  #forget(): void {
    this.#reader.forget();
    this.#inside.clear();
    this.#found = new WeakMap();
    this.#bytes = 0;
  }
}
