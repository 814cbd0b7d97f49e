import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { Random } from "../../../src/bench/random.ts";
import { mean, median, sampleDeviation } from "../../../src/bench/statistics.ts";

Deno.test("statistics: mean and sample standard deviation", () => {
  assertEquals(mean([2, 4, 4, 4, 5, 5, 7, 9]), 5);
  // The squared differences sum to 32; n - 1 = 7.
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

Deno.test("random numbers of each seed differ from each other and from those of other seeds", () => {
  const numbers = [0, 1, 2, 3].flatMap((seed) => {
    const random = new Random(seed);
    return Array.from({ length: 100 }, () => random.uniform());
  });
  // Seeds that differ in their lowest bit alone may share their numbers.
  assert(new Set(numbers).size >= 200, `${new Set(numbers).size}`);
  assert(numbers.every((number) => number >= 0 && number < 1));
});
