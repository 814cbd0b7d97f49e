/** Tests that lines do not depend on how their bytes are split into chunks. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { type LineOptions, readLines } from "../../../src/cli/input/jsonl_lines.ts";

async function* chunksOf(bytes: Uint8Array<ArrayBuffer>, size: number) {
  // One reused buffer, as when reading files.
  const buffer = new Uint8Array(size);
  await Promise.resolve();
  for (let at = 0; at < bytes.length; at += size) {
    const part = bytes.subarray(at, at + size);
    buffer.set(part);
    yield buffer.subarray(0, part.length);
  }
}

async function read(
  content: string | Uint8Array<ArrayBuffer>,
  size: number,
  options?: LineOptions,
) {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  const lines: [number, string | undefined, number, boolean][] = [];
  for await (const { number, text, end, isWhole } of readLines(chunksOf(bytes, size), options)) {
    lines.push([number, text, end, isWhole]);
  }
  return lines;
}

Deno.test("lines: numbers and offsets do not depend on the chunks", async () => {
  const text = "one\n\n  \r\nzwölf\r\nthree";
  for (let size = 1; size <= 24; size++) {
    assertEquals(await read(text, size), [
      [1, "one", 4, true],
      [4, "zwölf\r", 17, true],
      [5, "three", 22, false],
    ]);
  }
  assertEquals(await read("", 4), []);
  assertEquals(await read("a\nb", 4), [[1, "a", 2, true], [2, "b", 3, false]]);
  assertEquals(await read("a\n\n \n", 4, { keepBlank: true }), [
    [1, "a", 2, true],
    [2, "", 3, true],
    [3, " ", 5, true],
  ]);
  assertEquals(await read("\n\n", 4), []);
});

Deno.test("lines: unselected lines are skipped", async () => {
  const text = Array.from({ length: 9 }, (_, i) => `line ${i + 1}\n`).join("");
  const lines = await read(text, 5, { isWanted: (number) => number % 4 === 2 });
  assertEquals(lines.map(([number, line]) => [number, line]), [[2, "line 2"], [6, "line 6"]]);
});

Deno.test("lines: a bad line does not affect the others", async () => {
  const bytes = new Uint8Array([
    0x61,
    0xff,
    0x0a,
    ...new TextEncoder().encode(`${"x".repeat(40)}\nb\n`),
  ]);
  const seen: string[] = [];
  for await (const { text, error } of readLines(chunksOf(bytes, 7), { maxBytes: 32 })) {
    seen.push(text ?? error!.message);
  }
  for (const text of ["", "a", "zwölf", "日本 🦊x"]) {
    const start = new TextEncoder().encode(text);
    for (const bad of [[0xff], [0x80, 0x61], [0xc3], [0xe6, 0x61], [0xf0, 0x9f, 0xa6, 0x0a]]) {
      const line = await readLines(chunksOf(Uint8Array.of(...start, ...bad), 7)).next();
      const message = line.value!.error?.message ?? "";
      assertStringIncludes(message, `the byte at offset ${start.length} cannot`);
    }
  }
  const limits = [];
  for (const length of [31, 32, 33]) {
    limits.push((await read(`${"x".repeat(length)}\n`, 7, { maxBytes: 32 }))[0]![1]);
  }
  assertEquals(limits, ["x".repeat(31), "x".repeat(32), undefined]);
  assertEquals(seen.length, 3);
  assertStringIncludes(seen[0]!, "line 1 is not valid UTF-8");
  assertStringIncludes(seen[1]!, "line 2 has 40 bytes");
  assertEquals(seen[2], "b");
});

Deno.test("lines: a line may have 16 MiB", async () => {
  for (const more of [0, 1]) {
    const line = new Uint8Array(2 ** 24 + more).fill(0x78);
    const { value } = await readLines(ReadableStream.from([line])).next();
    assertEquals([value!.error === undefined, value!.text?.length], [
      more === 0,
      more === 0 ? 2 ** 24 : undefined,
    ]);
  }
});

Deno.test("lines: an endless line is not buffered", async () => {
  const chunk = new Uint8Array(2 ** 20).fill(0x78);
  const endless = async function* () {
    for (let i = 0; i < 64; i++) yield await Promise.resolve(chunk);
  };
  const lines = [];
  for await (const line of readLines(endless(), { maxBytes: 2 ** 21 })) lines.push(line);
  assertEquals(lines.length, 1);
  assert(lines[0]!.error !== undefined && !lines[0]!.isWhole);
});
