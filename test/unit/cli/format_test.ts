/** The forms of numbers in reports. */
import { assertEquals } from "@std/assert";
import {
  formatBytes,
  formatClock,
  formatCount,
  formatDuration,
  formatSpeed,
  plural,
} from "../../../src/cli/output/format.ts";

Deno.test("numbers have three digits and the unit that keeps them above 1", () => {
  const forms: readonly (readonly [found: string, expected: string])[] = [
    [formatBytes(0), "0 B"],
    [formatBytes(999), "999 B"],
    [formatBytes(344_000), "344 kB"],
    [formatBytes(1_049_000), "1.05 MB"],
    [formatBytes(999_600), "1.00 MB"],
    [formatBytes(2e18), "2000 PB"],
    [formatCount(12), "12"],
    [formatCount(260_000), "260 thousand"],
    [formatCount(7.62e9), "7.62 billion"],
    [formatSpeed(12, 350), "12 tokens in 350 ms (34.3 per second)"],
    [formatSpeed(1, 2000), "1 token in 2.00 s (0.50 per second)"],
    [formatSpeed(3, 0), "3 tokens in 0.00 ms"],
    [formatDuration(350), "350 ms"],
    [formatDuration(999.4), "999 ms"],
    [formatDuration(1240), "1.24 s"],
    [formatClock(4.2), "0:05"],
    [formatClock(754), "12:34"],
    [formatClock(10_800), "3:00:00"],
    [plural(1, "token"), "1 token"],
    [plural(2, "token"), "2 tokens"],
  ];
  for (const [found, expected] of forms) assertEquals(found, expected);
});
