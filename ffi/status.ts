import { type ErrorCode, ForgeError } from "../src/errors.ts";

/** `forge_status` values of `csrc/forge.h`, by number. */
export const STATUS_NAMES = [
  "ok",
  "invalid argument",
  "bad handle",
  "out of memory",
  "input/output error",
  "unsupported",
  "cancelled",
  "device failed",
  "internal error",
] as const;

const CODES: Partial<Record<(typeof STATUS_NAMES)[number], ErrorCode>> = {
  "input/output error": "bad_model",
  unsupported: "unsupported",
  cancelled: "cancelled",
};

/**
 * Throws for any status except `FORGE_OK`. Only then it calls `detail` for the library's error
 * text.
 *
 * @throws {ForgeError} with a code for the status, naming the operation
 */
export function checkStatus(status: number, operation: string, detail: () => string): void {
  if (status === 0) return;
  const name = STATUS_NAMES[status] ?? `status ${status}`;
  const text = detail() || name;
  throw new ForgeError(
    CODES[name as keyof typeof CODES] ?? "device",
    text.startsWith(`${operation}: `) ? text : `${operation}: ${text}`,
  );
}

/** Text across the ABI: NUL-terminated UTF-8 in buffers that the caller owns. */

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Encodes a C string. The text must not contain NUL, which would truncate it. */
export function cString(text: string): Uint8Array<ArrayBuffer> {
  if (text.includes("\0")) throw new TypeError("a C string cannot hold a NUL character");
  return encoder.encode(text + "\0");
}

/** Calls `fill` with a text buffer and returns the text written to it. */
export function readText(
  fill: (buffer: Uint8Array<ArrayBuffer>, capacity: bigint) => void,
  capacity = 1 << 14,
): string {
  const buffer = new Uint8Array(capacity);
  fill(buffer, BigInt(capacity));
  const end = buffer.indexOf(0);
  return decoder.decode(end < 0 ? buffer : buffer.subarray(0, end));
}
