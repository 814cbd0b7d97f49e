import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { MergeTable, readMerges } from "../../../src/tokenizer/models/merges.ts";
import { MergeQueue } from "../../../src/tokenizer/models/bpe.ts";
import { Vocabulary } from "../../../src/tokenizer/vocabulary.ts";
import { random } from "./support.ts";

Deno.test("a vocabulary finds pieces whole, in ranges and joined", () => {
  const words = Array.from({ length: 5000 }, (_, i) => `w${i.toString(36)}é`);
  const vocabulary = new Vocabulary([...words, undefined, "", "😀"], "test");
  assertEquals(vocabulary.size, 5003);
  for (const [id, word] of words.entries()) {
    assertEquals(vocabulary.idOf(word), id);
    assertEquals(vocabulary.text(id), word);
    assertEquals(vocabulary.idOfRange(`<${word}>`, 1, 1 + word.length), id);
    assertEquals(vocabulary.idOfJoined(word.slice(0, 2), word.slice(2)), id);
  }
  assertEquals(vocabulary.idOf("😀"), 5002);
  assertEquals(vocabulary.idOf("w"), -1);
  assertEquals(vocabulary.idOf(""), -1);
  assertEquals(vocabulary.text(5000), undefined);
});

Deno.test("a vocabulary rejects a piece with two ids and names both", () => {
  const error = assertThrows(
    () => new Vocabulary(["a", "b", "a"], "x.gguf: tokens"),
    ForgeError,
    `x.gguf: tokens has the token "a" twice, as ids 0 and 2`,
  );
  assertEquals(error.code, "bad_model");
  for (let second = 1; second < 5; second++) {
    for (let first = 0; first < second; first++) {
      const pieces = ["a", "b", "c", "d", "e"];
      pieces[second] = pieces[first]!;
      const ids = `as ids ${first} and ${second}`;
      assertThrows(() => new Vocabulary(pieces, "it"), ForgeError, ids);
    }
  }
});

Deno.test("a vocabulary has at most 2^24 tokens", () => {
  const error = assertThrows(
    () => new Vocabulary(new Array(2 ** 24 + 1), "x.gguf: tokens"),
    ForgeError,
    "x.gguf: tokens has 16777217 tokens; at most 16777216 are supported",
  );
  assertEquals(error.code, "bad_model");
});

Deno.test("a merge table finds added pairs, and grows", () => {
  for (const capacity of [0, 2, 100, 1024]) {
    const table = new MergeTable(capacity);
    const next = random(3);
    const pairs = new Map<string, [number, number, number]>();
    for (let rank = 0; rank < 4000; rank++) {
      const left = Math.floor(next() * 200) - 50, right = Math.floor(next() * 200);
      if (!pairs.has(`${left} ${right}`)) pairs.set(`${left} ${right}`, [left, right, rank]);
      table.add(left, right, rank, rank * 2);
    }
    assertEquals(table.size, pairs.size);
    for (const [left, right, rank] of pairs.values()) {
      const handle = table.find(left, right);
      assertEquals([table.rank(handle), table.merged(handle)], [rank, rank * 2]);
    }
    assertEquals(table.find(1000, 1), -1);
  }
});

Deno.test("a merge queue gives the lowest rank first, leftmost on ties", () => {
  const queue = new MergeQueue(1);
  const next = random(5);
  const entries = Array.from({ length: 2000 }, () => ({
    rank: Math.floor(next() * 40),
    position: Math.floor(next() * 2 ** 26),
  }));
  for (const { rank, position } of entries) queue.push(rank, position);
  entries.sort((a, b) => a.rank - b.rank || a.position - b.position);
  for (const { rank, position } of entries) {
    const entry = queue.pop();
    assertEquals([MergeQueue.rankOf(entry), MergeQueue.positionOf(entry)], [rank, position]);
  }
  assertEquals(queue.isEmpty, true);
});

Deno.test("merges are read in both spellings; invalid ones are rejected by name", () => {
  const vocabulary = new Vocabulary([
    "a",
    "b",
    " b",
    "ab",
    "a b",
    "a b b",
    " bb",
    "#version",
    "#versiona",
  ], "test");
  const read = (merges: unknown[], isApart = (_: number) => false) =>
    readMerges(merges, vocabulary, isApart, "x: merges");
  for (const merges of [["a b", ["a", " b"]], ["#version: 0.2", "a b", ["a", " b"]]]) {
    const { table } = read(merges);
    assertEquals(table.merged(table.find(0, 1)), 3);
    assertEquals(table.merged(table.find(0, 2)), 4);
    assertEquals(table.rank(table.find(0, 2)), merges.length - 1);
  }
  // Any line may be a version, as in Hugging Face's tokenizers; a pair is none.
  assertEquals(read(["a b", "#version a"]).table.size, 1);
  const { table } = read(["a b", ["#version", "a"]]);
  assertEquals(table.merged(table.find(7, 0)), 8);
  // Text must not merge into a control token.
  assertEquals(read(["a b"], (id) => id === 3).table.size, 0);
  // A piece may begin with a space.
  const spaced = read([" b b", "a  b"]).table;
  assertEquals(spaced.merged(spaced.find(2, 1)), 6);
  assertEquals(spaced.merged(spaced.find(0, 2)), 4);
  const bad: [unknown, string][] = [
    ["a c", `x: merges[0] names the token "c", which is not in the vocabulary`],
    ["b a", `x: merges[0] names the token "ba"`],
    ["a", `x: merges[0] is "a"; expected "left right"`],
    [["a"], "expected"],
    [["a", "b", "b"], "expected"],
    [["a", 1], "expected"],
    [7, "x: merges[0] is not a pair of strings"],
    [null, "x: merges[0] is not a pair of strings"],
  ];
  for (const [merge, message] of bad) {
    assertEquals(assertThrows(() => read([merge]), ForgeError, message).code, "bad_model");
  }
});

Deno.test("readMerges reports merges across the start of a word", () => {
  const vocabulary = new Vocabulary(["▁", "a", "▁▁", "▁a", "a▁"], "test");
  const keeps = (merges: string[]) =>
    readMerges(merges, vocabulary, () => false, "x").keepsMarkersApart;
  assertEquals(keeps(["▁ a", "▁ ▁"]), true);
  assertEquals(keeps(["▁ a", "a ▁"]), false);
});
