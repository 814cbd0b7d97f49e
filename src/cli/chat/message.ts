const BLOCK = '"""';

/** Puts a message together from lines. */
export class MessageBuilder {
  #parts: string[] = [];
  #inBlock = false;

  /** Whether a message has begun that is not whole. */
  get isOpen(): boolean {
    return this.#parts.length > 0 || this.#inBlock;
  }

  /**
   * Takes the next line. A line that ends with one backslash goes on in the next; so does everything
   * from `"""` at the beginning of a message to `"""` at the end of a line.
   *
   * @returns the message, if the line ends one
   */
  push(line: string): string | undefined {
    if (!this.isOpen && line.startsWith(BLOCK)) {
      this.#inBlock = true;
      line = line.slice(BLOCK.length);
      if (line === "") return undefined;
    }
    if (this.#inBlock) {
      const isEnd = line.endsWith(BLOCK);
      const text = isEnd ? line.slice(0, -BLOCK.length) : line;
      if (!isEnd || text !== "") this.#parts.push(text);
      return isEnd ? this.finish() : undefined;
    }
    if (/(?:^|[^\\])\\$/.test(line)) {
      this.#parts.push(line.slice(0, -1));
      return undefined;
    }
    this.#parts.push(line);
    return this.finish();
  }

  /** What there is of the message; `undefined` when none has begun. */
  finish(): string | undefined {
    const message = this.isOpen ? this.#parts.join("\n") : undefined;
    this.clear();
    return message;
  }

  clear(): void {
    this.#parts = [];
    this.#inBlock = false;
  }
}
