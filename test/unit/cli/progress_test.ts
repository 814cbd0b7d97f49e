import { assertEquals } from "@std/assert";
import { DownloadMeter } from "../../../src/cli/model/download.ts";
import { progressLine } from "../../../src/cli/output/progress.ts";

Deno.test("progress: a narrow terminal shows the numbers without the bar", () => {
  const line = (columns: number) => progressLine(columns, "", 30, 40, "12 tokens/s, 0:05 left");
  const words = "30 of 40  12 tokens/s, 0:05 left";
  assertEquals(line(79), `[${"#".repeat(23)}${"-".repeat(7)}] ${words}`);
  assertEquals(line(45), `[########--] ${words}`);
  assertEquals(line(39), words);
  assertEquals(line(10), words);
  assertEquals(progressLine(40, "reading", 0, 2, ""), `reading [${"-".repeat(23)}] 0 of 2`);
  assertEquals(progressLine(40, "reading", 3, 2, ""), `reading [${"#".repeat(23)}] 3 of 2`);
});

Deno.test("progress: a download shows its progress, speed and remaining time", () => {
  const meter = new DownloadMeter();
  assertEquals(meter.line("a.gguf", 1e9, 4e9, 0), "a.gguf: 25% of 4.00 GB");
  assertEquals(meter.line("a.gguf", 1e9 + 39e6, 4e9, 999), "a.gguf: 25% of 4.00 GB");
  assertEquals(meter.line("a.gguf", 1e9, 4e9, 9_000), "a.gguf: 25% of 4.00 GB");
  // Bytes from an earlier download do not count towards the speed.
  assertEquals(
    meter.line("a.gguf", 2e9, 4e9, 20_000),
    "a.gguf: 50% of 4.00 GB, 50.0 MB/s, 0:40 left",
  );
  assertEquals(meter.line("b\x1b", 10, undefined, 30_000), "b\\u{1b}: 10 B");
  assertEquals(meter.line("b\x1b", 1010, undefined, 31_000), "b\\u{1b}: 1.01 kB, 1.00 kB/s");
  assertEquals(meter.line("empty", 0, 0, 40_000), "empty: 0 B");
});
