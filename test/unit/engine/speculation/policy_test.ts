/** Tests the number of draft tokens, chosen by their odds and the durations of steps. */
import { assert, assertAlmostEquals, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { KvPages, PageTable } from "../../../../src/engine/cache/kv_pages.ts";
import { UNSAMPLED } from "../../../../src/engine/runner.ts";
import { chooseDrafts } from "../../../../src/engine/speculation/choose_drafts.ts";
import { Draft, type Drafter } from "../../../../src/engine/speculation/draft.ts";
import type { ModelDrafter } from "../../../../src/engine/speculation/model_drafter.ts";
import {
  Speculator,
  type SpeculatorOptions,
} from "../../../../src/engine/speculation/speculator.ts";
import { MOST_ROWS, StepCosts } from "../../../../src/engine/speculation/step_costs.ts";
import {
  draftsTokens,
  maxBranches,
  openSpeculator,
} from "../../../../src/engine/speculation/open_speculator.ts";
import { TokenMask } from "../../../../src/engine/generation/token_mask.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { ForgeError } from "../../../../src/errors.ts";
import type { CausalLm } from "../../../../src/models/causal_lm.ts";
import { Places } from "../../../support/places.ts";
import { Random } from "../../../support/random.ts";

const powers = (odds: number, count: number) => ({
  odds: Array.from({ length: count }, (_, i) => odds ** (i + 1)),
  takesRounds: false,
  replayed: 0,
});

Deno.test("draft tokens are computed while they give more tokens per millisecond", () => {
  const flat = (rows: number) => 10 + 0.1 * rows;
  assertEquals(chooseDrafts([powers(0.9, 6)], 1, 31, flat), [6]);
  assertEquals(chooseDrafts([powers(0.9, 6)], 1, 4, flat), [4]);
  assertEquals(chooseDrafts([powers(0.05, 6)], 1, 31, (rows) => 10 + rows), [0]);
  // If each row costs the same, no uncertain draft token is worth computing.
  assertEquals(chooseDrafts([powers(0.99, 6)], 1, 31, (rows) => rows), [0]);
  assertEquals(chooseDrafts([], 0, 31, flat), []);
});

Deno.test("no other choice of draft tokens gives more tokens per millisecond", () => {
  const random = new Random("choice of draft tokens");
  for (let round = 0; round < 200; round++) {
    const candidates = Array.from({ length: random.int(1, 3) }, () => ({
      odds: Array.from({ length: random.int(0, 3) }, () => random.uniform())
        .sort((a, b) => b - a),
      takesRounds: random.chance(0.5),
      replayed: 0,
    }));
    const rows = candidates.length, most = random.int(0, 7);
    const steps = Array.from({ length: rows + 10 }, () => 10 + random.int(0, 8));
    steps.sort((a, b) => a - b);
    const ofRound = random.int(0, 2);
    const cost = (n: number, rounds: number) => steps[n]! + ofRound * rounds;
    const rate = (counts: readonly number[]) => {
      const rounds = Math.max(...counts.map((n, i) => candidates[i]!.takesRounds ? n : 0));
      const right = counts.map((n, i) =>
        candidates[i]!.odds.slice(0, n).reduce((sum, odds) => sum + odds, 1)
      );
      const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
      return sum(right) / cost(rows + sum(counts), rounds);
    };
    const choices = candidates.reduce<number[][]>(
      (all, { odds }) =>
        all.flatMap((counts) => Array.from({ length: odds.length + 1 }, (_, n) => [...counts, n])),
      [[]],
    ).filter((counts) => counts.reduce((a, b) => a + b, 0) <= most);
    const none = rate(candidates.map(() => 0)), best = Math.max(...choices.map(rate));
    const chosen = chooseDrafts(candidates, rows, most, cost);
    // Without draft tokens a step may be up to 5% slower than the best one.
    assertAlmostEquals(rate(chosen), best > 1.05 * none ? best : none, 1e-9);
  }
});

Deno.test("a jump in the costs is accepted if later rows make up for it", () => {
  const costs = (rows: number) => rows <= 8 ? 10 + 0.2 * rows : 20 + 0.2 * rows;
  assertEquals(chooseDrafts([powers(0.9, 31)], 1, 31, costs), [7]);
  assertEquals(chooseDrafts([powers(0.999, 31)], 1, 31, costs), [31]);
});

Deno.test("the most probable draft tokens of all sequences come first", () => {
  const odds = [powers(0.9, 5), powers(1, 0), powers(0.5, 5), powers(0.9, 2)];
  assertEquals(chooseDrafts(odds, 4, 5, () => 10), [3, 0, 0, 2]);
  assertEquals(chooseDrafts(odds, 4, 6, () => 10), [4, 0, 0, 2]);
});

Deno.test("a draft-model round costs the same for all sequences, a look-up is free", () => {
  const drafted = { ...powers(0.9, 8), takesRounds: true };
  const cost = (round: number) => (rows: number, rounds: number) =>
    10 + 0.1 * rows + round * rounds;
  assertEquals(chooseDrafts([drafted], 1, 31, cost(0)), [8]);
  const [some = 0] = chooseDrafts([drafted], 1, 31, cost(2.5));
  assert(some > 0 && some < 8, `${some}`);
  assertEquals(chooseDrafts([drafted], 1, 31, cost(10)), [0]);
  assertEquals(chooseDrafts([drafted, powers(0.8, 2)], 2, 31, cost(20)), [0, 2]);
  const [alone, ...several] = [1, 3].flatMap((n) =>
    chooseDrafts(Array(n).fill(drafted), n, 31, (_, rounds) => 10 + 2.5 * rounds)
  );
  assertEquals(several, [alone, alone, alone]);
});

Deno.test("tokens that are computed again after a rejection count as rows", () => {
  const cost = (rows: number) => 10 + rows;
  const count = (odds: number, replayed: number) =>
    chooseDrafts([{ ...powers(odds, 6), replayed }], 1, 31, cost)[0]!;
  assert(count(0.8, 1) > 0 && count(0.8, 1) < count(0.8, 0));
  // After several rejections, a step without draft tokens comes first.
  assertEquals([count(0.5, 0) > 0, count(0.5, 8)], [true, 0]);
  assertEquals(count(1, 8), 6);
  // A second draft token that is almost as probable as the first adds few of them.
  const candidate = { odds: [0.9, 0.89], takesRounds: false, replayed: 4 };
  assertEquals(chooseDrafts([candidate], 1, 31, (rows) => rows <= 3 ? 10 : 1000), [2]);
});

Deno.test("the cost of a step is measured or interpolated", () => {
  const costs = new StepCosts();
  assert(costs.of(2) > costs.of(1) && costs.of(2) < 1.2 * costs.of(1));
  costs.measure(1, 10);
  assert(costs.of(1) === 10 && costs.of(4) > 10 && costs.of(4) < 15);
  costs.measure(5, 30);
  assertEquals([costs.of(1), costs.of(3), costs.of(5)], [10, 20, 30]);
  assert(costs.of(MOST_ROWS) > 30);
  // A faster step of more rows lowers the cost of fewer rows.
  costs.measure(8, 12);
  assertEquals([costs.of(5), costs.of(8)], [12, 12]);
  assertAlmostEquals(costs.of(1), 10, 0.1);

  const uneven = new StepCosts();
  uneven.measure(2, 10);
  uneven.measure(6, 18);
  assertEquals([uneven.of(3), uneven.of(5)], [12, 16]);
  const large = new StepCosts();
  large.measure(MOST_ROWS, 34.8);
  assertEquals(large.of(MOST_ROWS), 34.8);
  assertAlmostEquals(large.of(1), 10);
});

Deno.test("costs that were not measured are in proportion, and old ones count half after 64 steps", () => {
  const costs = new StepCosts();
  // Each row adds 8% of a step of one row.
  assertEquals([1, 2, 26].map((rows) => costs.of(rows)), [1, 1.08, 3]);
  costs.measure(26, 60);
  for (const [rows, cost] of [[1, 20], [2, 21.6]] as const) {
    assertAlmostEquals(costs.of(rows), cost);
  }
  costs.measure(1, 10);
  costs.measure(1, 20);
  assertAlmostEquals(costs.of(1), 10.8);
  costs.measure(1, 5.8);
  assertAlmostEquals(costs.of(1), 6.8);
  const large = new StepCosts();
  large.measure(26, 60);
  assertAlmostEquals(large.of(32), 60 * 3.48 / 3);
  large.measure(26, 250);
  for (let i = 0; i < 64; i++) large.measure(2, 21.6);
  assertAlmostEquals(large.of(26), 60 + (60 + 0.08 * 190 - 60) / 2);
  const old = new StepCosts();
  old.measure(8, 200);
  for (const share of [0.5, 0.25]) {
    for (let i = 0; i < 64; i++) old.measure(1, 10);
    assertAlmostEquals(old.of(8), 15.6 + share * (200 - 15.6));
  }
});

Deno.test("draft tokens are computed on processors, or if asked for; trees without a state", async () => {
  const cases = [
    [{}, "cpu", true],
    [{}, "cuda", false],
    [{ speculate: "auto" }, "reference", false],
    [{ speculate: "on" }, "cuda", true],
    [{ speculate: 1 }, "metal", true],
    [{ speculate: "off" }, "cpu", false],
    [{ draftModel: "m" }, "cuda", true],
  ] as const;
  for (const [options, kind, expected] of cases) {
    assertEquals(draftsTokens(options, { kind }), expected, JSON.stringify([options, kind]));
  }
  const target = { backend: { kind: "cpu" } } as Parameters<typeof openSpeculator>[1];
  const memory = { weights: 0, kvCache: 0, states: 0, activations: 0 };
  assertEquals(await openSpeculator({ speculate: "off" }, target), {
    speculator: undefined,
    memory,
  });
  const both = () => openSpeculator({ speculate: "off", draftModel: "m" }, target);
  await assertRejects(both, ForgeError, "speculate is off, but a draft model is given");
  const stateLayers = [{ rows: 1, cols: 1 }];
  const draft = {} as NonNullable<CausalLm["draft"]>;
  const most = maxBranches({}, { draft, stateLayers: [] });
  assert(most > 0);
  assertEquals(maxBranches({ draftTree: 2 }, { draft, stateLayers: [] }), most);
  assertEquals(maxBranches({ draftTree: 1 }, { draft, stateLayers: [] }), 0);
  assertEquals(maxBranches({}, { draft, stateLayers }), 0);
  assertEquals(maxBranches({ draftTree: 2 }, { draft: undefined, stateLayers: [] }), 0);
  for (const draftTree of [0, 1.5, 1000]) {
    const asked = () => maxBranches({ draftTree }, { draft: undefined, stateLayers: [] });
    assertThrows(asked, ForgeError, `draftTree is ${draftTree}`);
  }
});

Deno.test("a slow outlier counts little, a fast step much, and lasting change is followed", () => {
  const costs = new StepCosts();
  costs.measure(1, 10);
  costs.measure(1, 1000);
  assert(costs.of(1) < 100);
  for (let i = 0; i < 8; i++) costs.measure(1, 10);
  assert(costs.of(1) < 11, `${costs.of(1)}`);
  for (let i = 0; i < 60; i++) costs.measure(1, 20);
  assert(costs.of(1) > 19, `${costs.of(1)}`);
  for (const [rows, ms] of [[0, 5], [MOST_ROWS + 1, 5], [1, 0], [1, NaN]] as const) {
    costs.measure(rows, ms);
  }
  assert(costs.of(1) > 19);
});

Deno.test("an old high cost is measured again", () => {
  const costs = new StepCosts();
  costs.measure(1, 10);
  costs.measure(8, 200);
  assert(costs.of(8) > 190, `${costs.of(8)}`);
  for (let i = 0; i < 500; i++) costs.measure(1, 10);
  assert(costs.of(8) < 20 && costs.of(8) > 10, `${costs.of(8)}`);
  // A confirmed high cost returns at once; a confirmed low cost stays.
  costs.measure(8, 200);
  costs.measure(1, 10);
  assert(costs.of(8) > 190, `${costs.of(8)}`);
  for (let i = 0; i < 500; i++) costs.measure(1, 10);
  for (let i = 0; i < 3; i++) costs.measure(8, 15);
  assert(costs.of(8) < 18, `${costs.of(8)}`);
});

/** Returns the tokens drafted for a repeating text at given costs of steps. */
function drafted(cost: (rows: number) => number, rows: number, length?: number): number {
  const speculator = new Speculator({ length });
  for (let i = 1; i <= MOST_ROWS; i++) speculator.measure(i, cost(i));
  const tokens = new TokenList(Array.from({ length: 200 }, (_, i) => i % 10));
  const draft = new Draft(undefined, new Set());
  draft.limit = 100;
  const next = () => ({ ...UNSAMPLED, row: 0 });
  const table = new PageTable(new KvPages(1, 1));
  const prospect = { tokens, draft, room: 50, replayed: 0, table, stored: 0, next };
  speculator.draft([prospect], rows, 64 - rows);
  return draft.tokens.length;
}

Deno.test("unprofitable draft tokens are not computed unless a number is given", () => {
  assert(drafted((rows) => 20 + rows, 1) >= 5);
  assertEquals(drafted((rows) => 20 * rows, 1), 0);
  assertEquals(drafted((rows) => 20 * rows, 1, 3), 3);
  // Draft tokens gain nothing if many sequences share a step.
  assertEquals(drafted((rows) => 20 + rows, MOST_ROWS), 0);
  assertEquals(drafted((rows) => 20 + rows, MOST_ROWS + 5), 0);
});

Deno.test("a draft token that pays only with a branch next to it is drafted", () => {
  const cost = (rows: number) => 10 + rows;
  const head = { ...powers(0.13, 2), takesRounds: true };
  assertEquals(chooseDrafts([head], 1, 31, cost), [0]);
  assertEquals(chooseDrafts([{ ...head, secondRate: 0.13 }], 1, 31, cost), [1]);
  assertEquals(chooseDrafts([{ ...head, secondRate: 0.02 }], 1, 31, cost), [0]);
});

Deno.test("a speculator stops and forgets with its model", () => {
  const calls: unknown[] = [];
  const { model } = fakeModel(() => Promise.resolve());
  const speculator = new Speculator({
    model: {
      ...model,
      cancel: () => void calls.push("cancel"),
      forget: (tokens) => void calls.push(tokens),
    },
  });
  const tokens = new TokenList([1]);
  speculator.cancel();
  speculator.forget(tokens);
  assertEquals(calls, ["cancel", tokens]);
});

Deno.test("trees grow while a row more pays, or as wide as asked", async () => {
  const taken = async (milliseconds: number, treeWidth?: number) => {
    const rows: number[] = [];
    const draft: ModelDrafter["draft"] = (_prospects, _counts, tree) => {
      for (const odds of [0.5, 0.1, 0.02]) if (tree?.takeRow(odds)) rows.push(odds);
      rows.push(tree?.width ?? 0);
      return Promise.resolve();
    };
    const { model, prospect } = fakeModel(draft);
    const speculator = new Speculator({ model, treeWidth });
    // Three rows without branches.
    for (const rows of [1, 3]) speculator.measure(rows, 10);
    for (const more of [4, 5, 6]) speculator.measure(more, 10 + (more - 3) * milliseconds);
    await speculator.draft([prospect], 1, 4);
    return rows;
  };
  // 2.71 tokens in 10 ms: half a token more may take 1.8 ms.
  assertEquals(await taken(0.01), [0.5, 0.1, 1]);
  assertEquals(await taken(1), [0.5, 1]);
  assertEquals(await taken(3), [1]);
  assertEquals(await taken(3, 4), [0.5, 0.1, 4]);
  assertEquals(await taken(0.01, 1), [0]);
});

/** Returns the number of draft tokens of each prospect whose drafter proposes these tokens. */
function drafts(
  proposals: readonly (readonly number[])[],
  mostRows: number,
  options: SpeculatorOptions,
  drafts = proposals.map(() => freeDraft()),
) {
  const asked: number[][] = [];
  const prospects = proposals.map((proposal, i) => {
    const { prospect } = fakeModel(() => Promise.resolve());
    const draft = drafts[i]!;
    return { ...prospect, tokens: new TokenList(proposal), draft, room: draft.room };
  });
  const newDrafter = (): Drafter => ({
    propose: (tokens, most, leastOdds) => {
      asked.push([most, leastOdds]);
      const proposed = [...tokens.view(0)].slice(0, most);
      return { tokens: proposed, odds: proposed.map((_, i) => 0.9 ** (i + 1)) };
    },
  });
  const speculator = new Speculator({ newDrafter, ...options });
  for (let rows = 1; rows <= MOST_ROWS; rows++) speculator.measure(rows, 10);
  speculator.draft(prospects, prospects.length, mostRows);
  return { counts: drafts.map(({ tokens }) => tokens.length), asked };
}

function freeDraft(limit = 9): Draft {
  const draft = new Draft(undefined, new Set());
  draft.limit = limit;
  return draft;
}

Deno.test("sequences divide the rows of a step in order, forced tokens included", () => {
  const [a, b, c] = [[1, 2, 3, 4], [5, 6, 7], [8, 9]];
  assertEquals(drafts([a, b, c], 100, { length: 3 }).counts, [3, 3, 2]);
  assertEquals(drafts([a, b, c], 5, { length: 3 }).counts, [3, 2, 0]);
  assertEquals(drafts([a, b, c], 0, { length: 3 }).counts, [0, 0, 0]);
  assertEquals(drafts([a, b, c], 100, {}).counts, [4, 3, 2]);
  const forced = () => {
    const places = new Places([[30], [31], [32], [1, 2]]);
    const mask = new TokenMask(places.start(), 100);
    mask.update();
    const draft = new Draft(mask, new Set());
    draft.limit = 9;
    return draft;
  };
  assertEquals(drafts([[], b], 4, { length: 8 }, [forced(), freeDraft()]).counts, [3, 1]);
  assertEquals(drafts([[], b], 2, { length: 8 }, [forced(), freeDraft()]).counts, [2, 0]);
});

Deno.test("a drafter is asked for what fits, and for any odds if a number is given", () => {
  const text = [1, 2, 3, 4, 5];
  assertEquals(drafts([text], 100, { length: 3 }).asked, [[3, 0]]);
  assertEquals(drafts([text], 2, { length: 3 }).asked, [[2, 0]]);
  const limited = [freeDraft(1)];
  assertEquals(drafts([text], 100, { length: 3 }, limited).asked, [[1, 0]]);
  const [[most, leastOdds]] = drafts([text], 100, {}).asked as [number[]];
  assert(most === 9 && leastOdds! > 0 && leastOdds! < 0.2, `${[most, leastOdds]}`);
});

Deno.test("a step of more rows than are measured gets no draft tokens", () => {
  const prospects = Array.from({ length: MOST_ROWS + 8 }, () => [1, 2, 3]);
  assertEquals(drafts(prospects, 100, {}).counts, prospects.map(() => 0));
});

Deno.test("a draft model that does not pay is tried again if it lags little", async () => {
  const run = async (nSteps: number, lag: number, room = 2, cost = 1000, rate = 0.9) => {
    const counts: (readonly number[])[] = [];
    const { model, prospect } = fakeModel((_, asked) => {
      counts.push([...asked]);
      return Promise.resolve();
    });
    const speculator = new Speculator({
      model: { ...model, cost: () => cost, lag: () => lag, rate: () => rate },
    });
    for (let rows = 1; rows <= MOST_ROWS; rows++) speculator.measure(rows, 10);
    for (let step = 0; step < nSteps; step++) await speculator.draft([{ ...prospect, room }], 1, 8);
    return counts;
  };
  assertEquals([await run(64, 0), await run(65, 0), await run(130, 128)], [[], [[1]], [[1], [1]]]);
  assertEquals([await run(130, 129), await run(130, 0, 0)], [[], []]);
  assertEquals(await run(2, 0, 2, 0), [[2], [2]]);
  // The second draft token is right with a probability of 0.25 only.
  assertEquals(await run(1, 0, 2, 3, 0.5), [[1]]);
});

function fakeModel(draft: ModelDrafter["draft"]) {
  const model: ModelDrafter = {
    rate: () => 0.9,
    cost: () => 0,
    lag: () => 0,
    draft,
    cancel: () => {},
    forget: () => {},
  };
  const own = new Draft(undefined, new Set());
  own.limit = 4;
  const prospect = {
    tokens: new TokenList([1, 2]),
    draft: own,
    room: 2,
    replayed: 0,
    table: new PageTable(new KvPages(1, 64)),
    stored: 1,
    next: () => ({ ...UNSAMPLED, row: 0 }),
  };
  return { model, prospect };
}
