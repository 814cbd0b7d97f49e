import { assert, assertEquals } from "@std/assert";
import { quote, quoteList, show } from "../../../src/formats/quote.ts";
import { Random } from "../../support/random.ts";

/** Most characters of a text that is quoted whole. */
const LIMIT = 120;

Deno.test("a quoted text is a JSON text of one line, in which no character acts on a terminal", () => {
  assertEquals(quote('a "b" \\ é 日本 😀'), '"a \\"b\\" \\\\ é 日本 😀"');
  assertEquals(quote("\n\r\t\x1b\x07"), '"\\n\\r\\t\\u001b\\u0007"');
  const acting: [string, string][] = [
    ["\x7f", "7f"],
    ["\x9b", "9b"],
    ["\xad", "ad"],
    ["\u200f", "200f"],
    ["\u2028", "2028"],
    ["\u2029", "2029"],
    ["\u202e", "202e"],
    ["\u2066", "2066"],
    ["\ufeff", "feff"],
    ["\u{e0001}", "e0001"],
  ];
  for (const [character, code] of acting) {
    assertEquals(quote(`a${character}b${character}`), `"a\\u{${code}}b\\u{${code}}"`);
  }
  const random = new Random("quote");
  for (let i = 0; i < 200; i++) {
    const points = Array.from({ length: 20 }, () => random.int(0, random.pick([0xff, 0x3000])));
    assert(!/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(quote(String.fromCodePoint(...points))));
  }
});

Deno.test("a long text is quoted without its middle", () => {
  for (const length of [0, 1, LIMIT - 1, LIMIT]) {
    assertEquals(quote("x".repeat(length)), `"${"x".repeat(length)}"`);
  }
  const half = LIMIT / 2;
  for (const middle of ["-", "-".repeat(10_000)]) {
    const text = `${"a".repeat(half)}${middle}${"z".repeat(half)}`;
    assertEquals(quote(text), `"${"a".repeat(half)}…${"z".repeat(half)}"`);
  }
});

Deno.test("of many names the first are quoted and the others counted", () => {
  const names = Array.from({ length: 10 }, (_, i) => `n${i}`);
  const first = (count: number) => names.slice(0, count).map((name) => `"${name}"`).join(", ");
  assertEquals(quoteList([]), "");
  assertEquals(quoteList(names.slice(0, 7)), first(7));
  assertEquals(quoteList(names.slice(0, 8)), first(8));
  assertEquals(quoteList(names.slice(0, 9)), `${first(8)} and 1 more`);
  assertEquals(quoteList(names), `${first(8)} and 2 more`);
  assertEquals(quoteList(names.slice(0, 3), 2), `${first(2)} and 1 more`);
  assertEquals(quoteList(names.slice(0, 2), 2), first(2));
});

Deno.test("a value of any type has a short description", () => {
  const shown: [unknown, string][] = [
    ["a\nb", '"a\\nb"'],
    [["a"], "an array"],
    [{ a: 1 }, "an object"],
    [null, "null"],
    [undefined, "undefined"],
    [-0.5, "-0.5"],
    [NaN, "NaN"],
    [10n, "10"],
    [false, "false"],
    [() => 1, "a function"],
    [new Uint8Array(1), "an object"],
  ];
  for (const [value, text] of shown) assertEquals(show(value), text);
});
