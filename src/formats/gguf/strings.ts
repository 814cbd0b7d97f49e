const CHUNK_BYTES = 64 * 1024;
const CHUNK_STRINGS = 16 * 1024;

/**
 * Decodes many short UTF-8 strings at once. A decoder call costs more than the few bytes of a
 * token. Strings are therefore packed into a chunk, the chunk is decoded by one call, and the
 * strings are sliced out by their length in UTF-16 units, which follows from the bytes. For the
 * 408,403 strings of the Llama 3 vocabulary this takes half the time of one call per string.
 */
export class GgufStrings {
  // U+FEFF at the start of a token is part of the token, not a byte-order mark.
  readonly #strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  readonly #lenient = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #chunk = new Uint8Array(CHUNK_BYTES);
  /** End of each packed string, in UTF-16 units and in bytes. */
  readonly #unitEnds = new Uint32Array(CHUNK_STRINGS);
  readonly #byteEnds = new Uint32Array(CHUNK_STRINGS);
  #packed = 0;
  #texts: string[] = [];
  #done = 0;
  #invalid: number | undefined;

  /** Decodes one string; invalid bytes become U+FFFD. */
  decode(bytes: Uint8Array<ArrayBuffer>): string {
    return this.#lenient.decode(bytes);
  }

  /** Starts a list of `count` strings, which are added in order. */
  start(count: number): this {
    this.#texts = new Array<string>(count);
    this.#done = 0;
    this.#packed = 0;
    this.#invalid = undefined;
    return this;
  }

  /** Adds the string in `length` bytes of `source` at `start`. */
  add(source: Uint8Array<ArrayBuffer>, start: number, length: number): void {
    const chunk = this.#chunk;
    let bytes = this.#packed === 0 ? 0 : this.#byteEnds[this.#packed - 1]!;
    if (this.#packed === CHUNK_STRINGS || bytes + length > CHUNK_BYTES) {
      this.#flush();
      bytes = 0;
    }
    if (length > CHUNK_BYTES) {
      this.#texts[this.#done] = this.#decodeStrictly(source.subarray(start, start + length));
      this.#done++;
      return;
    }
    let units = this.#packed === 0 ? 0 : this.#unitEnds[this.#packed - 1]!;
    const end = start + length;
    for (let at = start; at < end; at++) {
      const byte = source[at]!;
      chunk[bytes++] = byte;
      // Continuation bytes add no units; the lead byte of four adds a surrogate pair.
      if ((byte & 0xc0) !== 0x80) units += byte >= 0xf0 ? 2 : 1;
    }
    this.#byteEnds[this.#packed] = bytes;
    this.#unitEnds[this.#packed] = units;
    this.#packed++;
  }

  /** Returns the strings of the list, or the index of the first invalid one, if any. */
  finish(): { texts: string[]; invalid: number | undefined } {
    this.#flush();
    const texts = this.#texts;
    this.#texts = [];
    return { texts, invalid: this.#invalid };
  }

  #flush(): void {
    if (this.#packed === 0) return;
    const bytes = this.#byteEnds[this.#packed - 1]!;
    const whole = this.#tryDecode(this.#chunk.subarray(0, bytes));
    // A chunk can be valid although a character is split between two strings. Then a string starts
    // with a continuation byte.
    if (whole === undefined || this.#splitsCharacter()) this.#findInvalid();
    else this.#slice(whole);
    this.#done += this.#packed;
    this.#packed = 0;
  }

  #slice(whole: string): void {
    let from = 0;
    for (let i = 0; i < this.#packed; i++) {
      const end = this.#unitEnds[i]!;
      this.#texts[this.#done + i] = whole.slice(from, end);
      from = end;
    }
  }

  #findInvalid(): void {
    let from = 0;
    for (let i = 0; i < this.#packed; i++) {
      const end = this.#byteEnds[i]!;
      const text = this.#tryDecode(this.#chunk.subarray(from, end));
      if (text === undefined) this.#invalid ??= this.#done + i;
      from = end;
    }
  }

  #splitsCharacter(): boolean {
    for (let i = 1; i < this.#packed; i++) {
      const start = this.#byteEnds[i - 1]!;
      // An empty string at the end of the chunk has no first byte.
      if (start < this.#byteEnds[i]! && (this.#chunk[start]! & 0xc0) === 0x80) return true;
    }
    return false;
  }

  #decodeStrictly(bytes: Uint8Array<ArrayBuffer>): string {
    const text = this.#tryDecode(bytes);
    if (text === undefined) this.#invalid ??= this.#done;
    return text ?? "";
  }

  #tryDecode(bytes: Uint8Array<ArrayBuffer>): string | undefined {
    try {
      return this.#strict.decode(bytes);
    } catch {
      return undefined;
    }
  }
}
