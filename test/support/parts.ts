/** Model files as arrays of bytes. */
import { type GgufContents, ggufParts } from "../../src/formats/gguf/writer.ts";

/** Returns the bytes of a GGUF file. */
export function encodeGguf(contents: GgufContents): Uint8Array<ArrayBuffer> {
  return joinParts(ggufParts(contents));
}

/** Concatenates parts. */
export function joinParts(parts: Iterable<Uint8Array>): Uint8Array<ArrayBuffer> {
  const kept = [...parts];
  const whole = new Uint8Array(kept.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of kept) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
