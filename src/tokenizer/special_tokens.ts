import { RUST_WORD } from "./regex/ast.ts";

/** A token that is cut out of text before the rest is tokenized. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** True for a control token, which decoding omits. */
  readonly special: boolean;
  /** True if the whitespace to its left belongs to it. */
  readonly lstrip?: boolean;
  /** True if the whitespace to its right belongs to it. */
  readonly rstrip?: boolean;
  /** True if it matches only without word characters next to it. */
  readonly singleWord?: boolean;
}

/** Number of UTF-16 units: the key of a transition is `state * UNITS + unit`. */
const UNITS = 1 << 16;

/** Finds added tokens in text: the leftmost one, and the longest of those at its position. */
export class AddedTokenFinder {
  readonly #transitions = new Map<number, number>();
  readonly #tokenAtState = new Map<number, AddedToken>();
  readonly #firstUnit: RegExp | undefined;

  constructor(tokens: Iterable<AddedToken>) {
    const firstUnits = new Set<number>();
    let states = 1;
    for (const token of tokens) {
      if (token.content === "") continue;
      firstUnits.add(token.content.charCodeAt(0));
      let state = 0;
      for (let i = 0; i < token.content.length; i++) {
        const key = state * UNITS + token.content.charCodeAt(i);
        let target = this.#transitions.get(key);
        if (target === undefined) {
          target = states++;
          this.#transitions.set(key, target);
        }
        state = target;
      }
      this.#tokenAtState.set(state, token);
    }
    if (firstUnits.size > 0) {
      const units = [...firstUnits].map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`);
      this.#firstUnit = new RegExp(`[${units.join("")}]`, "g");
    }
  }

  /** Cuts `text` into added tokens and the non-empty texts between them, in order. */
  split(
    text: string,
    onToken: (token: AddedToken) => void,
    onText: (text: string, start: number) => void,
  ): void {
    let done = 0;
    for (let at = this.#nextStart(text, 0); at < text.length;) {
      const token = this.#longestAt(text, at);
      if (token === undefined) {
        at = this.#nextStart(text, at + 1);
        continue;
      }
      let start = at, end = at + token.content.length;
      at = end;
      if (!token.singleWord || isAlone(text, start, end)) {
        if (token.lstrip) start = done + text.slice(done, start).replace(TRAILING_SPACE, "").length;
        if (token.rstrip) end = skipSpace(text, end);
        if (start > done) onText(text.slice(done, start), done);
        onToken(token);
        done = end;
      }
      at = this.#nextStart(text, Math.max(at, end));
    }
    if (done < text.length) onText(done === 0 ? text : text.slice(done), done);
  }

  #nextStart(text: string, from: number): number {
    if (this.#firstUnit === undefined) return text.length;
    this.#firstUnit.lastIndex = from;
    return this.#firstUnit.exec(text)?.index ?? text.length;
  }

  #longestAt(text: string, start: number): AddedToken | undefined {
    let longest: AddedToken | undefined;
    for (let state: number | undefined = 0, i = start; i < text.length; i++) {
      state = this.#transitions.get(state * UNITS + text.charCodeAt(i));
      if (state === undefined) break;
      longest = this.#tokenAtState.get(state) ?? longest;
    }
    return longest;
  }
}

// The lookbehind tries a run of spaces only once, at its start: trying each character is quadratic.
const TRAILING_SPACE = /(?<!\p{White_Space})\p{White_Space}+$/u;
const WORD_AT_START = new RegExp(`^${RUST_WORD}`, "u");
// V8 15 does not match `$` after a character beyond the basic plane; `(?![^])` is equivalent.
const WORD_AT_END = new RegExp(`${RUST_WORD}(?![^])`, "u");

function skipSpace(text: string, from: number): number {
  const space = /\p{White_Space}*/uy;
  space.lastIndex = from;
  return from + (space.exec(text)?.[0].length ?? 0);
}

function isAlone(text: string, start: number, end: number): boolean {
  // Two units on either side hold a whole character.
  return !WORD_AT_END.test(text.slice(Math.max(0, start - 2), start)) &&
    !WORD_AT_START.test(text.slice(end, end + 2));
}

/** Pieces that end an answer, for files that do not declare the end of generation. */
export const END_OF_GENERATION: ReadonlySet<string> = new Set([
  "<|eot_id|>",
  "<|eom_id|>",
  "<|end_of_text|>",
  "<|endoftext|>",
  "<|im_end|>",
  "<|end|>",
  "<|return|>",
  "<|call|>",
  "<end_of_turn>",
  "<turn|>",
  "<|tool_response>",
  "<end_of_utterance>",
  "<EOT>",
  "[EOT]",
  "[EOS]",
  "[e~[",
  "<｜end▁of▁sentence｜>",
]);

/**
 * Returns the ids that end generation, recognised by their pieces as in llama.cpp. In o200k_harmony
 * (the vocabulary with "<|return|>" and "<|call|>") "<|end|>" ends a message, not the answer.
 */
export function endOfGenerationIds(specials: Iterable<AddedToken>): number[] {
  const byContent = new Map<string, number>();
  for (const token of specials) {
    if (token.special && END_OF_GENERATION.has(token.content)) {
      byContent.set(token.content, token.id);
    }
  }
  if (byContent.has("<|return|>") && byContent.has("<|call|>")) byContent.delete("<|end|>");
  return [...byContent.values()];
}
