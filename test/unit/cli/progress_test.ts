import { assertEquals } from "@std/assert";
import { progressLine } from "../../../src/cli/progress.ts";

Deno.test("progress: the bar gives way to the numbers where the terminal is narrow", () => {
  const line = (columns: number) => progressLine(columns, "", 30, 40, "12 tokens/s, 0:05 left");
  const words = "30 of 40  12 tokens/s, 0:05 left";
  assertEquals(line(79), `[${"#".repeat(23)}${"-".repeat(7)}] ${words}`);
  assertEquals(line(45), `[########--] ${words}`);
  assertEquals(line(39), words);
  assertEquals(line(10), words);
  assertEquals(progressLine(40, "reading", 0, 2, ""), `reading [${"-".repeat(23)}] 0 of 2`);
  assertEquals(progressLine(40, "reading", 3, 2, ""), `reading [${"#".repeat(23)}] 3 of 2`);
});
