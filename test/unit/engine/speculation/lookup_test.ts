/** Tests the tokens that prompt lookup proposes, and their odds. */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { ChoiceRates, HitRate, HitRates } from "../../../../src/engine/speculation/hit_rates.ts";
import { LookupDrafter } from "../../../../src/engine/speculation/lookup_drafter.ts";
import { DraftRates } from "../../../../src/engine/speculation/model_drafter.ts";
import { NgramIndex } from "../../../../src/engine/speculation/ngram_index.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { Random } from "../../../support/random.ts";

for (const order of [1, 2, 4]) {
  Deno.test(`an index finds the previous end of each recent ${order}-gram`, () => {
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
      // An entry displaced by another n-gram is missing, but never wrong.
      assertEquals(found, before);
      known++;
    }
    assert(known > 0.7 * repeated && repeated > 5000, `${known} of ${repeated} are known`);
  });
}

function proposed(drafter: LookupDrafter, tokens: TokenList, most: number): number[] {
  return [...drafter.propose(tokens, most, 0).tokens];
}

Deno.test("a proposal continues the earlier match of the text", () => {
  const tokens = new TokenList([1, 2, 3, 4, 5, 6, 9, 9, 1, 2, 3]);
  const drafter = new LookupDrafter();
  assertEquals(proposed(drafter, tokens, 4), [4, 5, 6, 9]);
  tokens.push(4);
  assertEquals(proposed(drafter, tokens, 2), [5, 6]);
  tokens.push(77);
  assertEquals(proposed(drafter, tokens, 2), []);
});

Deno.test("a proposal is the same however many tokens came since the last one", () => {
  const random = new Random("tokens between proposals");
  const tokens = new TokenList([]);
  const [often, rarely] = [new LookupDrafter(), new LookupDrafter()];
  let nProposed = 0;
  for (let i = 0; i < 400; i++) {
    tokens.push(random.chance(0.8) ? i % 7 : random.int(0, 9));
    const proposal = often.propose(tokens, 5, 0);
    nProposed += proposal.tokens.length;
    if (i > 0 && random.chance(0.7)) continue;
    assertEquals(rarely.propose(tokens, 5, 0), proposal);
  }
  assert(nProposed > 100, `${nProposed}`);
});

Deno.test("the longest match wins, and the latest of equal length", () => {
  const tokens = [1, 2, 3, 4, 50, 8, 2, 3, 4, 60, 1, 2, 3, 4];
  assertEquals(proposed(new LookupDrafter(), new TokenList(tokens), 1), [50]);
  const alike = [2, 3, 50, 7, 2, 3, 60, 9, 2, 3];
  assertEquals(proposed(new LookupDrafter(), new TokenList(alike), 1), [60]);
});

Deno.test("a continuing match is kept while a later one is shorter", () => {
  const text = [1, 2, 3, 4, 5, 6, 7, 8, 10];
  const tokens = new TokenList([...text, 5, 6, 7, 8, 20, 1, 2]);
  const drafter = new LookupDrafter();
  for (const next of [3, 4, 5, 6, 7, 8]) {
    assertEquals(proposed(drafter, tokens, 1), [next]);
    tokens.push(next);
  }
  // Later in the text the last four tokens precede 20, but the last eight precede 10.
  assertEquals(proposed(drafter, tokens, 1), [10]);
});

Deno.test("a proposal repeats a cycle past the end of the text", () => {
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
  // Checks an average, because the first match of a new length still has high odds. The mean of a
  // hundred is 0.10, with a deviation of 0.02.
  assert(sum / 100 < 0.3, `${sum / 100} for noise`);
  const odds = ofCycle.propose(cycle, 8, 0).odds;
  assert(odds[0]! > 0.95 && odds[7]! > 0.7, `${odds} for a cycle`);
  assertEquals(odds, odds.toSorted((a, b) => b - a));
  // Only tokens with high enough odds.
  assertEquals(ofCycle.propose(cycle, 8, odds[3]!).tokens.length, 4);
});

Deno.test("matches of 1, 2, 3 to 4, and 5 to 8 tokens have odds of their own", () => {
  const rates = new HitRates();
  const levels = [1, 2, 3, 4, 5, 8, 9].map((length) => rates.of(length));
  const firsts = levels.map((level) => levels.indexOf(level));
  assertEquals(firsts, [0, 1, 2, 2, 4, 4, 6]);
  assert(rates.of(32) !== rates.of(64) && rates.of(64) === rates.of(1000));
});

Deno.test("the odds of a proposal are those of matches that grow by each token", () => {
  const rates = new HitRates();
  const tokens = new TokenList([1, 2, 3, 4, 5, 9, 1]);
  const { odds } = new LookupDrafter(rates).propose(tokens, 4, 0);
  let expected = 1;
  for (const [i, value] of odds.entries()) {
    expected *= rates.of(i + 1).value;
    assertEquals(value, expected);
  }
  assertEquals(odds.length, 4);
});

Deno.test("the outcomes of a text count more for its own odds than for those of others", () => {
  const rates = new HitRates();
  const [own, other] = [new LookupDrafter(rates), new LookupDrafter(rates)];
  const odds = (drafter: LookupDrafter, text: readonly number[]) =>
    drafter.propose(new TokenList(text), 1, 0).odds[0]!;
  // Each match of one token is followed by another token than before.
  const tokens = new TokenList([1, 2]);
  for (const next of [1, 3, 1, 4, 1, 5, 1]) {
    tokens.push(next);
    own.propose(tokens, 1, 0);
  }
  const before = odds(new LookupDrafter(), [1, 2, 1]);
  const [ofOwn, ofOther] = [own.propose(tokens, 1, 0).odds[0]!, odds(other, [1, 2, 1])];
  assert(ofOwn < ofOther && ofOther < before, `${[ofOwn, ofOther, before]}`);
});

Deno.test("the first outcomes weigh the same, and old ones are forgotten", () => {
  const noted = (outcomes: readonly boolean[]) => {
    const rate = new HitRate(0.5);
    for (const isHit of outcomes) rate.note(isHit);
    return rate.value;
  };
  assertAlmostEquals(noted([true, false, false, false]), (1 + 4 * 0.5) / (4 + 4));
  assertAlmostEquals(noted([false, false, false, true]), (1 + 4 * 0.5) / (4 + 4));
  const change = [...Array(400).fill(true), ...Array(40).fill(false)];
  assert(noted(change) < 0.4, `${noted(change)}`);
});

Deno.test("choices have rates by their probability, the sampled ones apart", () => {
  const rates = new ChoiceRates();
  const of = (probability: number, isFirst = true) => rates.of({ probability, isFirst }).value;
  assertAlmostEquals(of(0), 0.05);
  assertAlmostEquals(of(0.29), 0.25);
  assertEquals([of(1), of(0.99, false)], [of(0.9), of(0.9)]);
  for (const actual of [7, 8, 8]) {
    rates.note({ token: 7, probability: 0.75, isFirst: false }, actual);
  }
  assertAlmostEquals(of(0.7, false), (1 + 4 * 0.75) / (3 + 4));
  assertAlmostEquals(of(0.7), 0.75);
});

Deno.test("the rate of a drafter counts each draft token once, when the text has its place", () => {
  const rates = new DraftRates();
  const tokens = new TokenList([1, 2]);
  assertEquals(rates.of(tokens), 0.7);
  const draft = [3, 4, 5];
  const choice = (token: number, isFirst: boolean) => ({ token, probability: 0.55, isFirst });
  const choices = draft.map((token) => [choice(token, true), choice(token + 10, false)]);
  rates.made(tokens, draft, choices);
  // The draft goes on; the record of it does not.
  draft.shift();
  assertEquals(rates.of(tokens), 0.7);
  tokens.push(3);
  // The other two have no outcome yet.
  const prior = (1 + 4 * 0.7) / (1 + 4);
  const own = (hits: number, tries: number, expected: number) =>
    (hits + 4 * expected) / (tries + 4);
  assertAlmostEquals(rates.of(tokens), own(1, 1, prior));
  assertAlmostEquals(rates.second.value, own(0, 1, 0.05));
  rates.made(tokens, [4, 5, 6], [[choice(4, true), choice(14, false)], ...choices.slice(1)]);
  for (const token of [4, 15, 6]) tokens.push(token);
  const all = own(2, 3, 0.7);
  for (let i = 0; i < 2; i++) assertAlmostEquals(rates.of(tokens), own(2, 3, all));
  // Positions after the first rejected token do not count. There, the second choice was wrong, too.
  assertAlmostEquals(rates.second.value, own(0, 3, 0.05));
  assertAlmostEquals(rates.choices.of(choice(0, true)).value, own(2, 3, 0.55));
  const other = new TokenList([9]);
  assertAlmostEquals(rates.of(other), all);
  rates.made(other, []);
  assertAlmostEquals(rates.of(other), all);
});

Deno.test("no draft token of a draft that was right counts as rejected", () => {
  const rates = new DraftRates();
  const tokens = new TokenList([1]);
  rates.made(tokens, [2, 3]);
  for (const token of [2, 3, 9]) tokens.push(token);
  const prior = (2 + 4 * 0.7) / (2 + 4);
  assertAlmostEquals(rates.of(tokens), (2 + 4 * prior) / (2 + 4));
});

Deno.test("odds of one text carry over to the next with less weight", () => {
  const shared = new HitRates();
  const own = new HitRates(shared);
  const before = own.of(2).value;
  for (let i = 0; i < 100; i++) own.of(2).note(false);
  const next = new HitRates(shared);
  assert(own.of(2).value < next.of(2).value && next.of(2).value < before / 2);
  // Other match lengths keep the initial odds.
  assertEquals(next.of(4).value, new HitRates().of(4).value);
  // New outcomes replace old ones.
  for (let i = 0; i < 60; i++) own.of(2).note(true);
  assert(own.of(2).value > 0.6, `${own.of(2).value}`);
});
