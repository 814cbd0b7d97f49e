/** A pattern that is not valid, or uses what JavaScript cannot express. */
export class PatternError extends Error {}

/** Groups and classes nested deeper than this are refused before they exhaust the stack. */
const DEEPEST_NESTING = 100;

/** A place in a pattern, which parsing moves on. */
export class Cursor {
  readonly #characters: readonly string[];
  #at = 0;
  #depth = 0;

  constructor(pattern: string) {
    this.#characters = [...pattern];
  }

  get atEnd(): boolean {
    return this.#at === this.#characters.length;
  }

  /** The character `ahead` of the next one; "" behind the end. */
  peek(ahead = 0): string {
    return this.#characters[this.#at + ahead] ?? "";
  }

  /** Takes the next character. */
  next(): string {
    const character = this.#characters[this.#at];
    if (character === undefined) throw new PatternError("unexpected end of pattern");
    this.#at++;
    return character;
  }

  /** Whether ASCII `text` comes next. */
  startsWith(text: string): boolean {
    for (let i = 0; i < text.length; i++) if (this.peek(i) !== text[i]) return false;
    return true;
  }

  /** Takes ASCII `text` if it comes next. */
  accept(text: string): boolean {
    if (!this.startsWith(text)) return false;
    this.#at += text.length;
    return true;
  }

  /** Takes everything up to and with ASCII `close`; returns what was before it. */
  until(close: string): string {
    let text = "";
    while (!this.accept(close)) text += this.next();
    return text;
  }

  /** Parses what is one level further in. */
  nested<T>(parse: (cursor: Cursor) => T): T {
    if (++this.#depth > DEEPEST_NESTING) {
      throw new PatternError(`nested deeper than ${DEEPEST_NESTING} levels`);
    }
    const result = parse(this);
    this.#depth--;
    return result;
  }
}
