/*
 * The byte alphabet of GPT-2 writes each byte as a printable character, so that a vocabulary of
 * byte strings is text. Printable Latin-1 bytes (0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF) stand for
 * themselves; the other 68 are U+0100 and up, in order: "Ġ" is a space, "Ċ" a newline.
 */

const encoder = new TextEncoder();

/** Returns the code point of a byte. */
function byteToCode(byte: number): number {
  if (byte <= 0x20) return byte + 0x100;
  if (byte >= 0x7f && byte <= 0xa0) return byte - 0x7f + 0x121;
  return byte === 0xad ? 0x143 : byte;
}

/** Returns the byte of a code point, or -1. */
function codeToByte(code: number): number {
  if (code > 0xff) {
    if (code <= 0x120) return code - 0x100;
    if (code <= 0x142) return code - 0x121 + 0x7f;
    return code === 0x143 ? 0xad : -1;
  }
  return byteToCode(code) === code ? code : -1;
}

/** Returns the character of a byte. */
export function byteToChar(byte: number): string {
  return String.fromCharCode(byteToCode(byte));
}

/** Writes the UTF-8 bytes of a text in the byte alphabet: " é" becomes "ĠÃ©". */
export function toByteLevel(text: string): string {
  let mapped = "";
  for (const byte of encoder.encode(text)) mapped += byteToChar(byte);
  return mapped;
}

/** Returns the bytes of a piece in the byte alphabet, or `undefined` for other pieces. */
export function fromByteLevel(piece: string): Uint8Array | undefined {
  const bytes = new Uint8Array(piece.length);
  for (let i = 0; i < piece.length; i++) {
    const byte = codeToByte(piece.charCodeAt(i));
    if (byte < 0) return undefined;
    bytes[i] = byte;
  }
  return bytes;
}
