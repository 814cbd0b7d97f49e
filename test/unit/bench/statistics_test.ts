import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { mean, median, quantile, sampleDeviation } from "../../../src/bench/statistics.ts";

Deno.test("statistics: mean and sample standard deviation", () => {
  assertEquals(mean([2, 4, 4, 4, 5, 5, 7, 9]), 5);
  // The squares of the differences sum to 32, of which n - 1 = 7 are free.
  assertAlmostEquals(sampleDeviation([2, 4, 4, 4, 5, 5, 7, 9]), Math.sqrt(32 / 7), 1e-12);
  assertEquals(sampleDeviation([3]), 0);
  assertEquals(sampleDeviation([1e9 + 1, 1e9 + 1, 1e9 + 1]), 0);
  assert(Number.isNaN(mean([])));
});

Deno.test("statistics: the median does not depend on the order, nor change it", () => {
  const values = [10, 9, 100, 8];
  assertEquals(median(values), 9.5);
  assertEquals(values, [10, 9, 100, 8]);
  assertEquals(median([3, 1, 20]), 3);
});

Deno.test("statistics: a quantile is one of the values", () => {
  const values = [5, 1, 4, 2, 3];
  assertEquals([0, 0.25, 0.5, 0.6, 1].map((share) => quantile(values, share)), [1, 2, 3, 3, 5]);
  assertEquals(quantile([], 0.5), NaN);
});
