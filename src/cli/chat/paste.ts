import { Transform } from "node:stream";
import { StringDecoder } from "node:string_decoder";

/**
 * Stands for a line break in a line that is being edited: a visible sign, with a variation selector so
 * that the sign alone is not taken for it.
 */
export const LINE_BREAK = "␊\ufe0e";

/**
 * How many characters of a paste, and how many lines, are edited as text. The time that the editor takes
 * for a line grows with the square of its length.
 */
const INLINE_LENGTH = 400, INLINE_LINES = 8;

const START = "\x1b[200~";
const END = "\x1b[201~";

/**
 * Passes on what is typed. What a terminal says was pasted becomes one line: its line breaks are turned
 * into {@linkcode LINE_BREAK}, and other control characters, which would be taken for keys, are left out.
 * Of a long paste the editor sees a sign only, such as `[paste 1: 400 lines]`.
 */
export class PasteFilter extends Transform {
  readonly isTTY = true;
  readonly setRawMode: (isRaw: boolean) => void;
  readonly #decoder = new StringDecoder("utf8");
  /** Long pastes by their signs. A line of the history may hold any of them again. */
  readonly #pastes = new Map<string, string>();
  #isPasting = false;
  /** What was pasted so far. */
  #pasted = "";
  /** The end of the input so far, as it may be the beginning of a mark. */
  #held = "";

  /** @param setRawMode switches the terminal's own line editing off and on */
  constructor(setRawMode: (isRaw: boolean) => void) {
    super();
    this.setRawMode = setRawMode;
  }

  override _transform(chunk: Uint8Array, _encoding: string, done: () => void): void {
    this.push(this.translate(this.#decoder.write(chunk)));
    done();
  }

  /** What the editor is to see of the next piece of input. */
  translate(piece: string): string {
    let text = this.#held + piece;
    let passed = "";
    this.#held = "";
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

  /** The message that an edited line stands for. */
  expand(line: string): string {
    return line.replaceAll(LINE_BREAK, "\n")
      .replace(/\[paste [^\]]*\]\ufe0e/g, (sign) => this.#pastes.get(sign) ?? sign);
  }

  /** How much at the end of a text may be the beginning of a mark. */
  #heldLength(text: string): number {
    const mark = this.#isPasting ? END : START;
    // ESC by itself is a key, as are ESC and [.
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

  /** What stands for the paste in the line that is being edited. */
  #endPaste(): string {
    const text = this.#pasted.replace(/\r\n?/g, "\n").replace(/[^\P{Cc}\t\n]/gu, "");
    this.#pasted = "";
    const lines = text.split("\n").length;
    if (text.length <= INLINE_LENGTH && lines <= INLINE_LINES) {
      return text.replaceAll("\n", LINE_BREAK).replaceAll("\t", "    ");
    }
    const extent = lines > 1 ? `${lines} lines` : `${text.length} characters`;
    // The selector keeps the same words, typed, from being taken for it.
    const sign = `[paste ${this.#pastes.size + 1}: ${extent}]\ufe0e`;
    this.#pastes.set(sign, text);
    return sign;
  }
}
