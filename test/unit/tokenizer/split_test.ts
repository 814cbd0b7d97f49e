import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { regexFinder, type SplitBehavior, splitText } from "../../../src/tokenizer/steps/split.ts";
import { translateRegex } from "../../../src/tokenizer/regex/translate.ts";
import { random } from "./support.ts";

function split(text: string, pattern: string, behavior: SplitBehavior, invert = false): string[] {
  const parts: string[] = [];
  splitText(text, regexFinder(pattern, "test"), behavior, invert, (start, end) => {
    parts.push(text.slice(start, end));
  });
  return parts;
}

Deno.test("each behaviour cuts as tokenizer.json defines it", () => {
  const text = "the-final--countdown";
  assertEquals(split(text, "-", "Removed"), ["the", "final", "countdown"]);
  assertEquals(split(text, "-", "Isolated"), ["the", "-", "final", "-", "-", "countdown"]);
  assertEquals(split(text, "-", "MergedWithPrevious"), ["the-", "final-", "-", "countdown"]);
  assertEquals(split(text, "-", "MergedWithNext"), ["the", "-final", "-", "-countdown"]);
  assertEquals(split(text, "-", "Contiguous"), ["the", "-", "final", "--", "countdown"]);
  assertEquals(split("-a-", "-", "MergedWithPrevious"), ["-", "a-"]);
  assertEquals(split("-a-", "-", "MergedWithNext"), ["-a", "-"]);
});

Deno.test("an inverted split cuts at the text between the matches", () => {
  assertEquals(split("ab, cd", "\\w+", "Removed", true), ["ab", "cd"]);
  assertEquals(split("ab, cd", "\\w+", "MergedWithPrevious", true), ["ab, ", "cd"]);
  assertEquals(split("ab, cd", "\\w", "Contiguous", true), ["ab", ", ", "cd"]);
});

Deno.test("empty matches cut without removing text", () => {
  assertEquals(split("ab😀c", "(?=\\W|c)", "Isolated"), ["ab", "😀", "c"]);
  assertEquals(split("abc", "x*", "Isolated"), ["a", "b", "c"]);
  assertEquals(split("", "x*", "Isolated"), []);
});

Deno.test("digits are grouped from the right as by the patterns, in linear time", () => {
  const patterns = [
    "(?=(\\d{3})+(?!\\d))",
    "\\d{1,3}(?=(?:\\d{3})*\\b)",
    "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))",
  ];
  const next = random(9);
  const alphabet = [..."0123456789012345678901234567890123456789 ab_,.½²٣𝟘"];
  for (const pattern of patterns) {
    const slow = translateRegex(pattern, "test");
    for (let i = 0; i < 500; i++) {
      const length = Math.floor(next() * 24);
      const text = Array.from({ length }, () => alphabet[Math.floor(next() * alphabet.length)])
        .join("");
      const found: number[][] = [], expected: number[][] = [];
      regexFinder(pattern, "test")(text, (start, end) => found.push([start, end]));
      for (const match of text.matchAll(slow)) {
        expected.push([match.index, match.index + match[0].length]);
      }
      assertEquals(found, expected, `${pattern} in ${JSON.stringify(text)}`);
    }
    const megabyte = "7".repeat(1_000_000);
    assertEquals(split(`${megabyte} `, pattern, "Isolated").slice(0, 2), ["7", "777"]);
  }
});

Deno.test("a pattern that exhausts the engine's stack is an error, not a crash", () => {
  const find = regexFinder("(?:a\\p{M}*(?: a\\p{M}*)*)+b", "x: here");
  assertThrows(() => find("a".repeat(30_000_000), () => {}), ForgeError, "x: here");
});
