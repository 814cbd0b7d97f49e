/** Tests the tokens that prompt lookup proposes, and their odds. */
import { assert, assertEquals } from "@std/assert";
import { HitRates } from "../../../../src/engine/speculation/hit_rates.ts";
import { LookupDrafter } from "../../../../src/engine/speculation/lookup_drafter.ts";
import { NgramIndex } from "../../../../src/engine/speculation/ngram_index.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { Random } from "../../../support/random.ts";

for (const order of [1, 2, 4]) {
  Deno.test(`an index knows where each of the last ${order}-grams ended before`, () => {
    const random = new Random(`index of order ${order}`);
    const tokens = new TokenList([]);
    const index = new NgramIndex(order);
    const ends = new Map<string, number>();
    let known = 0, repeated = 0;
    for (let end = 1; end <= 20000; end++) {
      tokens.push(random.int(0, order === 4 ? 12 : 120) * 1001);
      const found = index.visit(tokens, end);
      if (end < order) {
        assertEquals(found, 0);
        continue;
      }
      const gram = tokens.view(end - order, end).join();
      const before = ends.get(gram);
      ends.set(gram, end);
      if (before !== undefined) repeated++;
      if (found === 0) continue;
      // What another n-gram has displaced is not known, but nothing wrong ever is.
      assertEquals(found, before);
      known++;
    }
    assert(known > 0.7 * repeated && repeated > 5000, `${known} of ${repeated} are known`);
  });
}

function proposed(drafter: LookupDrafter, tokens: TokenList, most: number): number[] {
  return [...drafter.propose(tokens, most, 0).tokens];
}

Deno.test("a text goes on as it did where it looked the same", () => {
  const tokens = new TokenList([1, 2, 3, 4, 5, 6, 9, 9, 1, 2, 3]);
  const drafter = new LookupDrafter();
  assertEquals(proposed(drafter, tokens, 4), [4, 5, 6, 9]);
  tokens.push(4);
  assertEquals(proposed(drafter, tokens, 2), [5, 6]);
  tokens.push(77);
  assertEquals(proposed(drafter, tokens, 2), []);
});

Deno.test("the longest match counts, the latest where they are alike", () => {
  const tokens = [1, 2, 3, 4, 50, 8, 2, 3, 4, 60, 1, 2, 3, 4];
  assertEquals(proposed(new LookupDrafter(), new TokenList(tokens), 1), [50]);
  const alike = [2, 3, 50, 7, 2, 3, 60, 9, 2, 3];
  assertEquals(proposed(new LookupDrafter(), new TokenList(alike), 1), [60]);
});

Deno.test("a match that goes on is kept while a later one is shorter", () => {
  const text = [1, 2, 3, 4, 5, 6, 7, 8, 10];
  const tokens = new TokenList([...text, 5, 6, 7, 8, 20, 1, 2]);
  const drafter = new LookupDrafter();
  for (const next of [3, 4, 5, 6, 7, 8]) {
    assertEquals(proposed(drafter, tokens, 1), [next]);
    tokens.push(next);
  }
  // The last four tokens were followed by 20 later on, but the last eight by 10.
  assertEquals(proposed(drafter, tokens, 1), [10]);
});

Deno.test("proposed tokens continue past the end of the text: a cycle is proposed without end", () => {
  const tokens = new TokenList([8, 1, 2, 3, 1, 2, 3]);
  assertEquals(proposed(new LookupDrafter(), tokens, 7), [1, 2, 3, 1, 2, 3, 1]);
  assertEquals(proposed(new LookupDrafter(), new TokenList([5, 5]), 3), [5, 5, 5]);
});

Deno.test("odds follow the outcome of proposed tokens, computed or not", () => {
  const random = new Random("odds");
  const first = (drafter: LookupDrafter, tokens: TokenList) =>
    drafter.propose(tokens, 1, 0).odds[0] ?? 0;
  const noise = new TokenList([1, 2, 3]), cycle = new TokenList([1, 2, 3]);
  const ofNoise = new LookupDrafter(), ofCycle = new LookupDrafter();
  let sum = 0;
  for (let i = 0; i < 300; i++) {
    noise.push(random.int(0, 9));
    cycle.push(i % 5);
    const odds = first(ofNoise, noise);
    if (i >= 200) sum += odds;
    first(ofCycle, cycle);
  }
  // On average: a long match, by chance the first of its length, is still expected to go on. The mean of
  // a hundred is 0.10, with a deviation of 0.02.
  assert(sum / 100 < 0.3, `${sum / 100} for noise`);
  const odds = ofCycle.propose(cycle, 8, 0).odds;
  assert(odds[0]! > 0.95 && odds[7]! > 0.7, `${odds} for a cycle`);
  assertEquals(odds, odds.toSorted((a, b) => b - a));
  // Only those that are likely enough.
  assertEquals(ofCycle.propose(cycle, 8, odds[3]!).tokens.length, 4);
});

Deno.test("what one text has shown is expected of the next, less than of itself", () => {
  const shared = new HitRates();
  const own = new HitRates(shared);
  const before = own.of(2).value;
  for (let i = 0; i < 100; i++) own.of(2).note(false);
  const next = new HitRates(shared);
  assert(own.of(2).value < next.of(2).value && next.of(2).value < before / 2);
  // Of another length nothing was seen.
  assertEquals(next.of(4).value, new HitRates().of(4).value);
  // Times change.
  for (let i = 0; i < 60; i++) own.of(2).note(true);
  assert(own.of(2).value > 0.6, `${own.of(2).value}`);
});
