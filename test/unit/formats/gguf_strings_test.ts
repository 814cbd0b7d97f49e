import { assertEquals } from "@std/assert";
import { GgufStrings } from "../../../src/formats/gguf/strings.ts";

function decodeAll(parts: Uint8Array[]): { texts: string[]; invalid: number | undefined } {
  const strings = new GgufStrings().start(parts.length);
  for (const part of parts) {
    // Surrounding bytes, which must not matter.
    const source = new Uint8Array(part.length + 5).fill(0xff);
    source.set(part, 2);
    strings.add(source, 2, part.length);
  }
  return strings.finish();
}

function encode(...texts: string[]): Uint8Array[] {
  return texts.map((text) => new TextEncoder().encode(text));
}

Deno.test("short and long strings of every UTF-8 length are decoded", () => {
  const texts = ["", "a", "é", "日本", "😀", "a😀é日z", "\ufeff", "\0", "x".repeat(13), ""];
  assertEquals(decodeAll(encode(...texts)), { texts, invalid: undefined });
});

Deno.test("strings that fill, overflow and exceed a chunk are decoded", () => {
  const chunk = 64 * 1024;
  const texts = [
    "a".repeat(chunk),
    "b".repeat(chunk - 1),
    "cc",
    "é".repeat(chunk),
    "d",
    "😀".repeat(chunk / 4),
    "e".repeat(3 * chunk + 1),
    "",
  ];
  assertEquals(decodeAll(encode(...texts)), { texts, invalid: undefined });
});

Deno.test("more strings than fit a chunk are decoded", () => {
  const texts = Array.from({ length: 50_000 }, (_, index) => index % 7 === 0 ? "" : `é${index}`);
  assertEquals(decodeAll(encode(...texts)), { texts, invalid: undefined });
});

Deno.test("the first invalid string is reported at any position", () => {
  const bad = Uint8Array.of(0x61, 0xff);
  assertEquals(decodeAll([...encode("a", "b"), bad, ...encode("c"), bad]).invalid, 2);
  assertEquals(decodeAll([bad]).invalid, 0);
  const longBad = new Uint8Array(100_000).fill(0x61);
  longBad[99_999] = 0xc3;
  assertEquals(decodeAll([...encode("a"), longBad, bad]).invalid, 1);
  assertEquals(decodeAll([bad, longBad, longBad]).invalid, 0);
  assertEquals(decodeAll([longBad, longBad, bad]).invalid, 0);
});

Deno.test("a character split over two strings is not UTF-8, though together they are", () => {
  const [whole] = encode("é");
  const halves = [whole!.subarray(0, 1), whole!.subarray(1)];
  assertEquals(decodeAll(halves).invalid, 0);
  assertEquals(decodeAll([halves[0]!, new Uint8Array(), halves[1]!]).invalid, 0);
  assertEquals(decodeAll([...encode("a"), ...halves]).invalid, 1);
});

Deno.test("a list is not affected by the one before it", () => {
  const strings = new GgufStrings();
  for (const text of ["first", "second"]) {
    const bytes = new TextEncoder().encode(text);
    strings.start(1).add(bytes, 0, bytes.length);
    assertEquals(strings.finish().texts, [text]);
  }
  assertEquals(strings.start(0).finish().texts, []);
  const bytes = Uint8Array.of(0xff);
  strings.start(1).add(bytes, 0, 1);
  assertEquals(strings.finish().invalid, 0);
  assertEquals(strings.start(0).finish().invalid, undefined);
});
