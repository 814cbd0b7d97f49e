import { ForgeError } from "../../errors.ts";

/** Maximum length of a prefix, so that a damaged charsmap cannot take quadratic time. */
const LONGEST_PREFIX = 256;

const encoder = new TextEncoder();

/**
 * The character map of a SentencePiece model ("precompiled_charsmap"): texts and their
 * replacements, such as "fi" for "ﬁ". It consists of the size of a trie in bytes (little-endian),
 * the trie, and the replacements, each with a 0 after it.
 *
 * The trie is a double array as Darts-clone writes it (https://github.com/s-yata/darts-clone): a
 * unit of 32 bits has its label in bits 0 to 7 with bit 31, a flag for "a text ends here" in bit 8,
 * and the offset to its children in bits 10 to 30, times 256 with bit 9. The child for a byte is at
 * the unit's own index XOR offset XOR byte; byte 0 leads to the unit that holds the value.
 */
export class Charsmap {
  readonly #units: Uint32Array;
  readonly #replacements: Uint8Array;
  readonly #where: string;
  readonly #segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });
  /** True if no printable ASCII character is replaced; many texts have no others. */
  readonly #keepsAscii: boolean;

  /**
   * @param where the file and key, for messages
   * @throws ForgeError `bad_model` if the sizes are inconsistent
   */
  constructor(bytes: Uint8Array, where: string) {
    const size = bytes.length < 4
      ? -1
      : new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
    if (size < 4 || size % 4 !== 0 || size + 4 > bytes.length) {
      throw new ForgeError(
        "bad_model",
        `${where} has ${bytes.length} bytes and a trie of ${size}; expected 4 bytes, a trie of a ` +
          "multiple of 4 bytes, and replacements",
      );
    }
    // A copy is aligned to 4 bytes.
    this.#units = new Uint32Array(bytes.slice(4, 4 + size).buffer);
    this.#replacements = bytes.subarray(4 + size);
    this.#where = where;
    let keepsAscii = true;
    for (let code = 0x20; code < 0x7f; code++) {
      if (this.#match(Uint8Array.of(code), 0, false) !== undefined) keepsAscii = false;
    }
    this.#keepsAscii = keepsAscii;
  }

  /**
   * Replaces as Hugging Face's `Precompiled` does: a grapheme of fewer than 6 bytes by the
   * replacement of its shortest prefix, other graphemes character by character. Stops above `limit`
   * characters.
   */
  replaceGraphemes(text: string, limit: number): string {
    if (this.#isUnchanged(text)) return text;
    let replaced = "";
    for (const { segment } of this.#segmenter.segment(text)) {
      if (replaced.length > limit) break;
      const bytes = encoder.encode(segment);
      const whole = bytes.length < 6 ? this.#match(bytes, 0, false)?.text : undefined;
      if (whole !== undefined) {
        replaced += whole;
        continue;
      }
      for (const character of segment) {
        replaced += this.#match(encoder.encode(character), 0, false)?.text ?? character;
      }
    }
    return replaced;
  }

  /**
   * Replaces the longest prefix repeatedly, as SentencePiece does. Stops above `limit` characters.
   */
  replaceLongest(text: string, limit: number): string {
    if (this.#isUnchanged(text)) return text;
    const bytes = encoder.encode(text);
    let replaced = "", kept = 0;
    for (let at = 0; at < bytes.length && replaced.length <= limit;) {
      const match = this.#match(bytes, at, true);
      if (match === undefined) {
        at++;
        while (at < bytes.length && (bytes[at]! & 0xc0) === 0x80) at++;
        continue;
      }
      replaced += utf8.decode(bytes.subarray(kept, at)) + match.text;
      at += match.length;
      kept = at;
    }
    return replaced + utf8.decode(bytes.subarray(kept));
  }

  #isUnchanged(text: string): boolean {
    return this.#keepsAscii && /^[ -~]*$/.test(text);
  }

  /** Finds the shortest or longest prefix of `bytes` from `start` on that has a replacement. */
  #match(
    bytes: Uint8Array,
    start: number,
    longest: boolean,
  ): { text: string; length: number } | undefined {
    const end = Math.min(bytes.length, start + LONGEST_PREFIX);
    let node = offsetOf(this.#unit(0));
    let value = -1, length = 0;
    for (let i = start; i < end; i++) {
      const byte = bytes[i]!;
      if (byte === 0) break;
      node ^= byte;
      const unit = this.#unit(node);
      if ((unit & 0x800000ff) >>> 0 !== byte) break;
      node ^= offsetOf(unit);
      if ((unit & 0x100) === 0) continue;
      value = this.#unit(node) & 0x7fffffff;
      length = i + 1 - start;
      if (!longest) break;
    }
    return value < 0 ? undefined : { text: this.#replacement(value), length };
  }

  #unit(index: number): number {
    const unit = this.#units[index];
    if (unit === undefined) throw this.#damaged(`unit ${index} of ${this.#units.length}`);
    return unit;
  }

  #replacement(start: number): string {
    const end = this.#replacements.indexOf(0, start);
    if (end < 0) throw this.#damaged(`replacement ${start} of ${this.#replacements.length} bytes`);
    return utf8.decode(this.#replacements.subarray(start, end));
  }

  #damaged(what: string): ForgeError {
    return new ForgeError("bad_model", `${this.#where} is damaged: it names ${what}`);
  }
}

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** Offset from a unit to its children. */
function offsetOf(unit: number): number {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}
