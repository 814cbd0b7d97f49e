/** Models that think before they answer mark their thoughts; these are told apart from the answer. */
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import { heldLength, type Part, type PartReader } from "./part_reader.ts";

/** What a model puts around its thoughts. */
export interface ReasoningMarks {
  readonly open: string;
  readonly close: string;
}

const KNOWN_MARKS: readonly ReasoningMarks[] = [
  { open: "<think>", close: "</think>" },
  { open: "<seed:think>", close: "</seed:think>" },
  { open: "[THINK]", close: "[/THINK]" },
];

/** The marks of a model's thoughts: those its template names or its vocabulary has. */
export function findMarks(
  template: string | undefined,
  tokenizer: Tokenizer,
): ReasoningMarks | undefined {
  return KNOWN_MARKS.find(({ open, close }) =>
    template?.includes(close) ||
    (tokenizer.idOf(open) !== undefined && tokenizer.idOf(close) !== undefined)
  );
}

/** Whether a prompt ends where the model is to go on with its thoughts. */
export function endsInThought(
  { open }: ReasoningMarks,
  tokens: ArrayLike<number>,
  tokenizer: Tokenizer,
): boolean {
  const { length } = tokens;
  const count = Math.min(length, 2 * open.length);
  const last = Array.from({ length: count }, (_, i) => tokens[length - count + i]!);
  const known = last.filter((id) => id < tokenizer.vocabSize);
  return tokenizer.decode(known, { skipSpecial: false }).trimEnd().endsWith(open);
}

/** Tells thoughts at the beginning of an answer from what follows, which another reader takes. */
export class ReasoningReader implements PartReader {
  readonly #marks: ReasoningMarks;
  readonly #rest: PartReader;
  #held = "";
  #state: "start" | "thoughts" | "gap" | "rest";
  #hasThoughts = false;

  /** @param isOpen whether the prompt ends inside of the thoughts */
  constructor(marks: ReasoningMarks, isOpen: boolean, rest: PartReader) {
    this.#marks = marks;
    this.#rest = rest;
    this.#state = isOpen ? "thoughts" : "start";
  }

  push(text: string): Part[] {
    if (this.#state === "rest") return this.#rest.push(text);
    this.#held += text;
    const parts = this.#state === "start" ? this.#readStart() : [];
    if (this.#state === "thoughts") parts.push(...this.#readThoughts());
    if (this.#state === "gap") parts.push(...this.#readGap());
    return parts;
  }

  end(): Part[] {
    const held = this.#held;
    this.#held = "";
    if (this.#state === "thoughts") return this.#thoughts(held.trimEnd());
    return [...(this.#state === "start" ? this.#rest.push(held) : []), ...this.#rest.end()];
  }

  #readStart(): Part[] {
    const text = this.#held.trimStart();
    const { open } = this.#marks;
    if (text.startsWith(open)) {
      this.#held = text.slice(open.length);
      this.#state = "thoughts";
    } else if (!open.startsWith(text)) {
      this.#state = "rest";
      const held = this.#held;
      this.#held = "";
      return this.#rest.push(held);
    }
    return [];
  }

  #readThoughts(): Part[] {
    const { close } = this.#marks;
    const end = this.#held.indexOf(close);
    if (end >= 0) {
      const thoughts = this.#held.slice(0, end).trimEnd();
      this.#held = this.#held.slice(end + close.length);
      this.#state = "gap";
      return this.#thoughts(thoughts);
    }
    // White space before the mark is not part of them.
    const certain = this.#held.slice(0, this.#held.length - heldLength(this.#held, [close]));
    const thoughts = certain.trimEnd();
    this.#held = this.#held.slice(thoughts.length);
    return this.#thoughts(thoughts);
  }

  /** Leaves out the empty lines between thoughts and answer. */
  #readGap(): Part[] {
    const text = this.#held.trimStart();
    if (text === "") return [];
    this.#held = "";
    this.#state = "rest";
    return this.#rest.push(text);
  }

  #thoughts(text: string): Part[] {
    const said = this.#hasThoughts ? text : text.trimStart();
    if (said === "") return [];
    this.#hasThoughts = true;
    return [{ kind: "reasoning", text: said }];
  }
}
