import { assertEquals } from "@std/assert";
import { KvPages, PageTable } from "../../../../src/engine/cache/kv_pages.ts";
import { UNSAMPLED } from "../../../../src/engine/runner.ts";
import { Draft, type Proposal } from "../../../../src/engine/speculation/draft.ts";
import { Speculator } from "../../../../src/engine/speculation/speculator.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { TokenMask } from "../../../../src/engine/generation/token_mask.ts";
import { Places } from "../../../support/places.ts";

/** Tests draft tokens under constraints, and the lifetime of their masks. */

const EOS = 99;

function draftOf(places: Places, limit = 10): Draft {
  const mask = new TokenMask(places.start(), 100);
  mask.update();
  const draft = new Draft(mask, new Set([EOS]));
  draft.limit = limit;
  return draft;
}

Deno.test("a draft token is added if it is allowed and a token may follow it", () => {
  const places = new Places([[1, 2], [3, 4, EOS], [5, 6]]);
  const draft = draftOf(places);
  assertEquals([draft.add(7), draft.add(2), draft.add(5)], [false, true, false]);
  // Nothing is computed after the end of the text or after the end of a constraint.
  assertEquals([draft.add(EOS), draft.add(3), draft.add(5)], [false, true, false]);
  assertEquals([...draft.tokens], [2, 3]);
  assertEquals(draft.mask(1)?.mayAllow(3), true);
  assertEquals(draft.mask(2)?.mayAllow(3), false);
  draft[Symbol.dispose]();
  assertEquals([places.open, draft.tokens.length, draft.mask()], [0, 0, undefined]);
  assertEquals(draft.add(1), false);
});

Deno.test("the limit bounds the draft tokens", () => {
  const draft = new Draft(undefined, new Set());
  assertEquals([draft.room, draft.add(1)], [0, false]);
  draft.limit = 2;
  assertEquals([draft.add(1), draft.add(2), draft.add(3), draft.room], [true, true, false, 0]);
  draft.limit = 1;
  assertEquals(draft.room, 0);
});

Deno.test("draft tokens are kept while they are accepted", () => {
  const places = new Places([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]);
  const draft = draftOf(places);
  for (const token of [1, 3, 5]) draft.add(token);
  assertEquals(places.open, 4);
  draft.advance(1);
  assertEquals([[...draft.tokens], places.open], [[3, 5], 3]);
  assertEquals(draft.mask()?.mayAllow(4), true);
  draft.advance(4);
  draft.mask()?.update();
  assertEquals([[...draft.tokens], places.open], [[], 1]);
  assertEquals([draft.mask()?.mayAllow(5), draft.mask()?.mayAllow(3)], [true, false]);
  draft[Symbol.dispose]();
  assertEquals(places.open, 0);
});

/** Returns the draft of some proposed tokens under a constraint. */
function speculate(places: Places, proposed: readonly number[], limit?: number): number[] {
  const drafter = {
    propose: (_: TokenList, most: number): Proposal => ({
      tokens: proposed.slice(0, most),
      odds: proposed.map(() => 0.9),
    }),
  };
  using draft = draftOf(places, limit);
  const speculator = new Speculator({ length: 8, newDrafter: () => drafter });
  const next = () => ({ ...UNSAMPLED, row: 0 });
  const tokens = new TokenList([1]);
  const table = new PageTable(new KvPages(1, 1));
  const prospect = { tokens, draft, room: draft.room, replayed: 0, table, stored: 0, next };
  speculator.draft([prospect], 1, 100);
  return [...draft.tokens];
}

Deno.test("a forced token is drafted in place of any proposed token", () => {
  const forced = [[1, 2], [30], [31], [32], [4, 5], [6, 7]];
  assertEquals(speculate(new Places(forced), [1, 30, 31, 32, 4]), [1, 30, 31, 32, 4]);
  assertEquals(speculate(new Places(forced), [2, 6, 6]), [2, 30, 31, 32]);
  assertEquals(speculate(new Places(forced), [2], 3), [2, 30, 31]);
  assertEquals(speculate(new Places(forced), [3, 30]), []);
  // Also as the first token, which happens only if the model samples despite the forced token.
  assertEquals(speculate(new Places([[30], [31], [1, 2]]), []), [30, 31]);
});

Deno.test("a constraint that fails or cannot be forked ends drafting only", () => {
  const failing = {
    fillMask: () => false,
    accept: () => {},
    isTerminated: false,
    fork: () => {
      throw new Error("not forked");
    },
    dispose: () => {},
  };
  const draft = new Draft(new TokenMask(failing, 100), new Set());
  draft.limit = 5;
  assertEquals([draft.add(1), draft.tokens.length], [false, 0]);
});
