/** Text across the border: NUL-terminated UTF-8 in buffers the caller owns. */

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** A C string. A NUL inside the text would cut it short, so there must be none. */
export function cString(text: string): Uint8Array<ArrayBuffer> {
  if (text.includes("\0")) throw new TypeError("a C string cannot hold a NUL character");
  return encoder.encode(text + "\0");
}

/** Calls `fill` with a text buffer and returns what was written to it. */
export function readText(
  fill: (buffer: Uint8Array<ArrayBuffer>, capacity: bigint) => void,
  capacity = 1 << 14,
): string {
  const buffer = new Uint8Array(capacity);
  fill(buffer, BigInt(capacity));
  const end = buffer.indexOf(0);
  return decoder.decode(end < 0 ? buffer : buffer.subarray(0, end));
}
