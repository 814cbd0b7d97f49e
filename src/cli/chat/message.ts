const BLOCK = '"""';

/** Builds a message from lines. */
export class MessageBuilder {
  #parts: string[] = [];
  #inBlock = false;

  /** True while a message is incomplete. */
  get isOpen(): boolean {
    return this.#parts.length > 0 || this.#inBlock;
  }

  /**
   * Takes the next line. A line that ends with one backslash continues on the next. A message that
   * begins with `"""` continues to a line that ends with `"""`.
   *
   * @returns the message, if the line completes it
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

  /** Returns the message so far; `undefined` if none has begun. */
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
