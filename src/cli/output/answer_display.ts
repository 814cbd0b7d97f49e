/** Looks of answers on a terminal. */
import type { Piece } from "../../mod.ts";
import { ContentReader } from "../../serve/chat/call_reader.ts";
import type { Part, PartReader } from "../../serve/chat/dialect.ts";
import { ReasoningReader } from "../../serve/chat/reasoning.ts";
import { columnsOf, visibleControls, WordWrap } from "./terminal_text.ts";
import type { Thoughts } from "./thoughts.ts";

/** Turns the pieces of an answer into the text that is shown. */
export interface AnswerDisplay {
  /** Returns what can be shown after the next piece. */
  show(piece: Piece): string;
}

/** Shows an answer on a terminal: control characters visibly, with line breaks between words. */
export class TerminalDisplay implements AnswerDisplay {
  readonly #display: AnswerDisplay;
  readonly #wrap = new WordWrap(() => columnsOf(Deno.stdout) ?? Infinity);

  /** @param display styles the pieces */
  constructor(display: AnswerDisplay) {
    this.#display = display;
  }

  show(piece: Piece): string {
    const styled = this.#display.show({ ...piece, text: visibleControls(piece.text) });
    const shown = this.#wrap.push(styled);
    return piece.end === undefined ? shown : shown + this.#wrap.end();
  }
}

/** Least probability of each colour but the last, and 256-colour codes from green to red. */
const LEVELS = [0.9, 0.6, 0.3, 0.1];
const COLOURS = [34, 106, 178, 208, 160];

/** Colours each token by its probability. Tokens that a constraint forced have no colour. */
export class ProbabilityDisplay implements AnswerDisplay {
  show({ text, logprob }: Piece): string {
    if (logprob === undefined || text === "") return text;
    const level = LEVELS.findIndex((least) => Math.exp(logprob) >= least);
    return `\x1b[38;5;${COLOURS[level < 0 ? LEVELS.length : level]}m${text}\x1b[39m`;
  }
}

const DIM = "\x1b[2m";
const PLAIN = "\x1b[22m";

/** Text of an answer for a terminal, with its thoughts apart from the rest. */
export class ThoughtDisplay implements AnswerDisplay {
  readonly #reader: PartReader;
  readonly #isColoured: boolean;
  #kind: Part["kind"] | undefined;

  /** @param isColoured true to dim thoughts, false to name them */
  constructor(thoughts: Thoughts | undefined, isColoured: boolean) {
    const answer = new ContentReader();
    this.#reader = thoughts === undefined
      ? answer
      : new ReasoningReader(thoughts.marks, thoughts.isOpen, answer);
    this.#isColoured = isColoured;
  }

  show({ text, end }: Piece): string {
    const shown = this.#shown(this.#reader.push(text));
    if (end === undefined) return shown;
    const rest = shown + this.#shown(this.#reader.end());
    return this.#kind === "reasoning" && this.#isColoured ? rest + PLAIN : rest;
  }

  #shown(parts: readonly Part[]): string {
    return parts.map((part) => {
      if (part.kind !== "reasoning" && part.kind !== "content") return "";
      const previous = this.#kind;
      this.#kind = part.kind;
      if (part.kind === previous) return part.text;
      if (part.kind === "reasoning") return (this.#isColoured ? DIM : "Thoughts: ") + part.text;
      if (previous === undefined) return part.text;
      return (this.#isColoured ? `${PLAIN}\n\n` : "\n\nAnswer: ") + part.text;
    }).join("");
  }
}
