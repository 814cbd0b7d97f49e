/** Tests of text on terminals: widths, line breaks, columns. */
import { assert, assertEquals } from "@std/assert";
import {
  displayWidth,
  formatColumns,
  formatTable,
  styled,
  visibleControls,
  WordWrap,
  wrap,
} from "../../../src/cli/output/terminal_text.ts";
import { Random } from "../../support/random.ts";

/** Streams a text in random parts. */
function streamed(text: string, columns: number, random: Random): string {
  const wrapped = new WordWrap(() => columns);
  const characters = [...text];
  let shown = "";
  for (let at = 0; at < characters.length;) {
    const end = at + random.int(1, 7);
    shown += wrapped.push(characters.slice(at, end).join(""));
    at = end;
  }
  return shown + wrapped.end();
}

Deno.test("terminal: the width counts columns, not characters", () => {
  for (
    const [text, width] of [
      ["", 0],
      ["word", 4],
      ["é", 1],
      ["e\u0301", 1],
      ["日本語", 6],
      ["ｶﾅ", 2],
      ["カナ。", 6],
      ["한국어", 6],
      ["🦊", 2],
      ["👩‍👩‍👧", 2],
      ["🇩🇪", 2],
      ["❤️", 2],
      ["ＡＢ", 4],
      ["a\u200bb", 2],
      ["\x1b[38;5;34mred\x1b[39m", 3],
    ] as const
  ) assertEquals(displayWidth(text), width, text);
});

Deno.test("terminal: streamed text breaks between words, whatever its parts", () => {
  const random = new Random("word wrap");
  const words = [
    "a",
    "of",
    "words",
    "é\u0301lan",
    "日本語です。",
    "🦊",
    "x".repeat(9),
    "don't",
    "1,5",
  ];
  for (let round = 0; round < 300; round++) {
    const columns = random.int(12, 30);
    const text = Array.from(
      { length: random.int(1, 40) },
      () => random.pick(words) + random.pick([" ", " ", " ", "  ", "\n", "\n\n"]),
    ).join("");
    const shown = streamed(text, columns, random);
    for (const line of shown.split("\n")) {
      assert(displayWidth(line.trimEnd()) <= columns, `${JSON.stringify(line)} in ${columns}`);
    }
    // Only breaks were inserted, each for the spaces at an edge or between wide characters.
    const plain = (some: string) => some.replace(/[ \n]/g, "");
    assertEquals(plain(shown), plain(text));
    const lines = text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
    for (const line of lines.filter((one) => displayWidth(one) <= columns)) {
      assert(shown.includes(line), `${JSON.stringify(line)} is broken in ${JSON.stringify(shown)}`);
    }
  }
});

Deno.test("terminal: a word moves whole to the next line", () => {
  const random = new Random("fixed cases");
  for (
    const [text, columns, expected] of [
      ["The quick brown fox", 10, "The quick\nbrown fox"],
      ["The quick brown", 9, "The quick\nbrown"],
      ["one two ", 3, "one\ntwo "],
      ["a https://example.com/long b", 10, "a\nhttps://example.com/long b"],
      ["これは長い文章です。", 10, "これは長い\n文章です。"],
      ["長い文章です。", 12, "長い文章で\nす。"],
      ["abc長い", 4, "abc\n長い"],
      ["長いabc", 5, "長い\nabc"],
      ["「長い」文", 6, "「長\nい」文"],
      ["🇩🇪🇫🇷 x", 5, "🇩🇪🇫🇷\nx"],
      ["```\nlong line of code\n```\nlong line", 8, "```\nlong line of code\n```\nlong\nline"],
      ["| a | table | row |\nno table row", 8, "| a | table | row |\nno table\nrow"],
      ["\x1b[2mdim words\x1b[22m end", 9, "\x1b[2mdim words\x1b[22m\nend"],
      ["  indented words", 10, "  indented\nwords"],
      ["abc\tde f", 10, "abc\tde\nf"],
      ["abc\tdef", 10, "abc\ndef"],
      ["abcdefghi\tj k", 19, "abcdefghi\tj k"],
      // The terminal breaks the first word after its fifth column.
      ["abcdefgh ij", 5, "abcdefgh\nij"],
      ["abcdefghij k", 5, "abcdefghij\nk"],
      ["abcdefg hi", 5, "abcdefg hi"],
      ["```sh code of a\nlong line\n```\nab cd", 4, "```sh code of a\nlong line\n```\nab\ncd"],
      ["~~~ a b\nlong line\n~~~\nab cd", 4, "~~~ a b\nlong line\n~~~\nab\ncd"],
      ["\x1b[1m \x1b[22m| a | table", 8, "\x1b[1m \x1b[22m| a | table"],
      ["日本🇩🇪", 4, "日本\n🇩🇪"],
      ["日🇩🇪", 3, "日\n🇩🇪"],
      // A style within a word does not end it.
      ["one \x1b[2mtw\x1b[22mo", 6, "one\n\x1b[2mtw\x1b[22mo"],
    ] as const
  ) assertEquals(streamed(text, columns, random), expected);
});

Deno.test("terminal: breaks follow the width as it changes, and long words are not held back", () => {
  let columns = 20;
  const wrapped = new WordWrap(() => columns);
  const shown = wrapped.push("one two three four ");
  columns = 9;
  assertEquals(
    shown + wrapped.push("five six seven") + wrapped.end(),
    "one two three four\nfive six\nseven",
  );
  assert(new WordWrap(() => 80).push("x".repeat(1000)).length > 500);
});

Deno.test("terminal: columns stand next to each other, or below on a narrow terminal", () => {
  const rows = [["--flag X", "sets the flag to a number"], ["-h", "help"]] as const;
  assertEquals(formatColumns(rows), "--flag X  sets the flag to a number\n-h        help");
  assertEquals(
    formatColumns(rows, { columns: 36, indent: 2 }),
    "  --flag X  sets the flag to a\n            number\n  -h        help",
  );
  assertEquals(
    formatColumns(rows, { columns: 24, indent: 2 }),
    "  --flag X\n      sets the flag to a\n      number\n  -h\n      help",
  );
  assertEquals(formatColumns([["日本", "x"], ["abc", "y"]]), "日本  x\nabc   y");
  // Twenty columns are left for the texts, or one less.
  const [beside, below] = [30, 29].map((columns) => formatColumns(rows, { columns }));
  assertEquals([beside!.split("\n").length, below!.split("\n")[0]], [3, "--flag X"]);
  assertEquals(wrap("a b\ncc dd", 3), ["a b", "cc", "dd"]);
  assertEquals(wrap("ab cd ", 4), ["ab", "cd "]);
  assertEquals(wrap("  indented  twice", 10), ["  indented", " twice"]);
  assertEquals(wrap("  a   b\n\n c ", Infinity), ["  a   b", "", " c "]);
});

Deno.test("terminal: a table is aligned, and its first cells stand above where it is too wide", () => {
  const rows = [["name", "1", "日本"], ["longer name", "20", "x"]];
  const isRight = (column: number) => column === 1;
  assertEquals(formatTable(rows, isRight), "name          1  日本\nlonger name  20  x\n");
  assertEquals(
    formatTable(rows, isRight, 20),
    "name\n   1  日本\nlonger name\n  20  x\n",
  );
  const fits = formatTable(rows, isRight);
  assertEquals(formatTable(rows, isRight, "longer name  20  日本".length + 2), fits);
  assertEquals(formatTable([], isRight), "");
});

Deno.test("terminal: styles need a terminal, and controls are visible", () => {
  assertEquals(styled({ isTerminal: () => false }, "dim", "text\n"), "text\n");
  const dim = styled({ isTerminal: () => true }, "dim", "text\n");
  assertEquals(dim, Deno.noColor ? "text\n" : "\x1b[2mtext\x1b[22m\n");
  assertEquals(visibleControls("a\x1b[2J\tb\n\x07c\u009bd\x7f"), "a␛[2J\tb\n␇c�d␡");
  assertEquals(visibleControls("\0\r\x1f ~é"), "␀␍␟ ~é");
});
