import { Transform } from "node:stream";
import { StringDecoder } from "node:string_decoder";

/**
 * Represents a line break in an edited line: a visible character, with a variation selector that
 * distinguishes it from the same character when typed.
 */
export const LINE_BREAK = "␊\ufe0e";

/**
 * Limits of characters and lines for a paste that is edited as text. The editor takes quadratic
 * time in the length of a line.
 */
const INLINE_LENGTH = 400, INLINE_LINES = 8;

const START = "\x1b[200~";
const END = "\x1b[201~";

/**
 * Filters the input of the line editor. Typed text passes unchanged. Pasted text, which the
 * terminal marks, becomes one line: line breaks become {@linkcode LINE_BREAK}, and other control
 * characters are removed because they would act as keys. A long paste is replaced by a label, such
 * as `[paste 1: 400 lines]`.
 */
export class PasteFilter extends Transform {
  readonly isTTY = true;
  readonly setRawMode: (isRaw: boolean) => void;
  readonly #decoder = new StringDecoder("utf8");
  /** Long pastes by label. A line of the history may contain any label again. */
  readonly #pastes = new Map<string, string>();
  #isPasting = false;
  /** Pasted text so far. */
  #pasted = "";
  /** End of the input that may be the beginning of a mark. */
  #held = "";

  /** @param setRawMode turns the terminal's own line editing off and on */
  constructor(setRawMode: (isRaw: boolean) => void) {
    super();
    this.setRawMode = setRawMode;
  }

  override _transform(chunk: Uint8Array, _encoding: string, done: () => void): void {
    this.push(this.translate(this.#decoder.write(chunk)));
    done();
  }

  /** Returns the text for the editor of the next piece of input. */
  translate(piece: string): string {
    let text = this.#held + piece;
    let passed = "";
    for (;;) {
      const mark = this.#isPasting ? END : START;
      const at = text.indexOf(mark);
      if (at < 0) break;
      passed += this.#pass(text.slice(0, at));
      text = text.slice(at + mark.length);
      if (this.#isPasting) passed += this.#endPaste();
      this.#isPasting = !this.#isPasting;
    }
    const held = this.#heldLength(text);
    this.#held = text.slice(text.length - held);
    return passed + this.#pass(text.slice(0, text.length - held));
  }

  /** Returns the message of an edited line. */
  expand(line: string): string {
    return line.replaceAll(LINE_BREAK, "\n")
      .replace(/\[paste [^\]]*\]\ufe0e/g, (label) => this.#pastes.get(label) ?? label);
  }

  /** Returns the length of the suffix that may be the beginning of a mark. */
  #heldLength(text: string): number {
    const mark = this.#isPasting ? END : START;
    // ESC alone is a key, and so is ESC followed by [.
    const shortest = this.#isPasting ? 1 : 3;
    for (let length = mark.length - 1; length >= shortest; length--) {
      if (text.endsWith(mark.slice(0, length))) return length;
    }
    return 0;
  }

  #pass(text: string): string {
    if (!this.#isPasting) return text;
    this.#pasted += text;
    return "";
  }

  /** Returns the text or label of a complete paste for the edited line. */
  #endPaste(): string {
    const text = this.#pasted.replace(/\r\n?/g, "\n").replace(/[^\P{Cc}\t\n]/gu, "");
    this.#pasted = "";
    const lines = text.split("\n").length;
    if (text.length <= INLINE_LENGTH && lines <= INLINE_LINES) {
      return text.replaceAll("\n", LINE_BREAK).replaceAll("\t", "    ");
    }
    const extent = lines > 1 ? `${lines} lines` : `${text.length} characters`;
    // The selector distinguishes the label from the same words when typed.
    const label = `[paste ${this.#pastes.size + 1}: ${extent}]\ufe0e`;
    this.#pastes.set(label, text);
    return label;
  }
}
