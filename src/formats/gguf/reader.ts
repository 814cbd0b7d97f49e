import { ForgeError } from "../../errors.ts";
import type { InputFile } from "../file.ts";
import { GgufStrings } from "./strings.ts";
import type { GgufNumberType } from "./types.ts";
import { LIMITS } from "../limits.ts";
import { quote } from "../quote.ts";

const FIRST_READ_BYTES = 256 * 1024;
const MAX_STRING_BYTES = 2 ** 26;

/**
 * Reads the header of a GGUF file from front to back. It reads only as much of the file as
 * necessary, and checks every length and count against the remaining bytes before it allocates
 * memory. Assumes a little-endian machine, because Deno runs on no other.
 */
export class GgufReader {
  /** Subject of error messages: `the key count`, `key "general.name"`. */
  context = "the header";
  readonly #file: InputFile;
  readonly #strings = new GgufStrings();
  #bytes: Uint8Array<ArrayBuffer>;
  #view: DataView;
  #filled = 0;
  #at = 0;
  #items = 0;

  constructor(file: InputFile) {
    this.#file = file;
    this.#bytes = new Uint8Array(Math.min(file.size, FIRST_READ_BYTES));
    this.#view = new DataView(this.#bytes.buffer);
  }

  /** Offset of the next value. */
  get position(): number {
    return this.#at;
  }

  /** Returns an error about the current context. */
  error(what: string): ForgeError {
    return new ForgeError("bad_model", `${quote(this.#file.path)}: ${this.context} ${what}`);
  }

  /** Reads one number. 64-bit integers that are not safe integers become bigints. */
  number(type: GgufNumberType): number | bigint {
    // `#take` may replace the view, so it is called first.
    switch (type) {
      case "u8": {
        const at = this.#take(1);
        return this.#view.getUint8(at);
      }
      case "i8": {
        const at = this.#take(1);
        return this.#view.getInt8(at);
      }
      case "u16": {
        const at = this.#take(2);
        return this.#view.getUint16(at, true);
      }
      case "i16": {
        const at = this.#take(2);
        return this.#view.getInt16(at, true);
      }
      case "u32":
        return this.u32();
      case "i32": {
        const at = this.#take(4);
        return this.#view.getInt32(at, true);
      }
      case "f32": {
        const at = this.#take(4);
        return this.#view.getFloat32(at, true);
      }
      case "u64":
        return this.u64();
      case "i64": {
        const at = this.#take(8);
        const value = this.#view.getBigInt64(at, true);
        const small = Number(value);
        return Number.isSafeInteger(small) ? small : value;
      }
      case "f64": {
        const at = this.#take(8);
        return this.#view.getFloat64(at, true);
      }
    }
  }

  u32(): number {
    const at = this.#take(4);
    return this.#view.getUint32(at, true);
  }

  u64(): number | bigint {
    const at = this.#take(8);
    const value = this.#view.getUint32(at, true) + this.#view.getUint32(at + 4, true) * 2 ** 32;
    return Number.isSafeInteger(value) ? value : this.#view.getBigUint64(at, true);
  }

  bool(): boolean {
    const at = this.#take(1);
    const value = this.#view.getUint8(at);
    if (value > 1) throw this.error(`has the boolean ${value}; it must be 0 or 1`);
    return value === 1;
  }

  /**
   * Reads a 64-bit count of items that each take at least `minBytes` of the following bytes.
   *
   * @param things the items in the plural, for errors
   * @param limit the maximum, however many bytes follow
   */
  count(things: string, minBytes: number, limit = Infinity): number {
    const value = this.u64();
    const room = Math.min(this.#file.size, LIMITS.ggufHeaderBytes) - this.#at;
    const most = Math.floor(room / minBytes);
    if (value > most) {
      throw this.error(`claims ${value} ${things}, but there is room for at most ${most}`);
    }
    if (value > limit) throw this.error(`claims ${value} ${things}; at most ${limit} are read`);
    return Number(value);
  }

  /** Reads the number of items of an array that becomes an array of separate values. */
  items(type: string, minBytes: number): number {
    const count = this.count(`values of type ${type}`, minBytes);
    this.#items += count;
    if (this.#items > LIMITS.ggufArrayItems) {
      throw this.error(
        `brings the header to ${this.#items} strings, booleans and arrays in arrays; at most ` +
          `${LIMITS.ggufArrayItems} are read`,
      );
    }
    return count;
  }

  /** Reads a length-prefixed UTF-8 string of at most `maxBytes`; invalid bytes become U+FFFD. */
  string(maxBytes = MAX_STRING_BYTES): string {
    const length = this.count("bytes of text", 1);
    if (length > maxBytes) {
      throw this.error(`has a string of ${length} bytes; at most ${maxBytes} are read`);
    }
    const start = this.#take(length);
    return this.#strings.decode(this.#bytes.subarray(start, start + length));
  }

  /** Reads `count` length-prefixed strings, which must be valid UTF-8. */
  strings(count: number): string[] {
    const strings = this.#strings.start(count);
    for (let index = 0; index < count; index++) {
      const at = this.#take(8);
      const length = this.#view.getUint32(at, true);
      if (this.#view.getUint32(at + 4, true) !== 0 || length > this.#file.size - this.#at) {
        const claimed = this.#view.getBigUint64(at, true);
        const left = `the file has ${this.#file.size - this.#at} more`;
        throw this.error(`[${index}] claims ${claimed} bytes of text, but ${left}`);
      }
      const start = this.#take(length);
      strings.add(this.#bytes, start, length);
    }
    const { texts, invalid } = strings.finish();
    if (invalid !== undefined) throw this.error(`[${invalid}] is not UTF-8 text`);
    return texts;
  }

  /** Reads `count` bytes into a new buffer. */
  bytes(count: number): ArrayBuffer {
    const start = this.#take(count);
    return this.#bytes.buffer.slice(start, start + count);
  }

  /** Advances by `count` bytes and returns their offset in the buffer. */
  #take(count: number): number {
    const start = this.#at;
    const end = start + count;
    if (end > this.#filled) this.#fill(end);
    this.#at = end;
    return start;
  }

  /** Reads until the buffer holds the first `end` bytes of the file. */
  #fill(end: number): void {
    const { size } = this.#file;
    if (end > size) {
      const wanted = `${end - this.#at} bytes at offset ${this.#at}`;
      throw this.error(`is cut off: it needs ${wanted}, but the file has ${size} bytes`);
    }
    if (end > LIMITS.ggufHeaderBytes) {
      throw this.error(`makes the header larger than ${LIMITS.ggufHeaderBytes} bytes`);
    }
    if (end > this.#bytes.length) {
      const larger = new Uint8Array(Math.min(size, Math.max(end, 4 * this.#bytes.length)));
      larger.set(this.#bytes.subarray(0, this.#filled));
      this.#bytes = larger;
      this.#view = new DataView(larger.buffer);
    }
    this.#file.readAt(this.#filled, this.#bytes.subarray(this.#filled));
    this.#filled = this.#bytes.length;
  }
}
