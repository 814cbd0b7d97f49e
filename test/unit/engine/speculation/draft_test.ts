import { assertEquals } from "@std/assert";
import { KvPages, PageTable } from "../../../../src/engine/cache/kv_pages.ts";
import { UNSAMPLED } from "../../../../src/engine/runner.ts";
import { Draft, type DraftPath, type Proposal } from "../../../../src/engine/speculation/draft.ts";
import { Speculator } from "../../../../src/engine/speculation/speculator.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { TokenMask } from "../../../../src/engine/generation/token_mask.ts";
import { Places } from "../../../support/places.ts";
import { Random } from "../../../support/random.ts";
import type { OutputRequest, StepResult } from "../../../../src/backend.ts";
import {
  fitRequest,
  ReducedVocabulary,
} from "../../../../src/engine/speculation/draft_vocabulary.ts";
import { ForgeError } from "../../../../src/errors.ts";

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

Deno.test("the sampled tokens are followed through the branches of a tree", () => {
  const places = new Places([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]);
  const pages = new KvPages(8, 4);
  using table = new PageTable(pages);
  table.reserve(6);
  const draft = draftOf(places);
  for (const token of [1, 3, 5]) draft.add(token);
  const branch = (path: DraftPath, from: number, token: number) =>
    draft.branch(path, from, token, table.branch(6 + from, () => {})!);
  const other = branch(draft, 1, 4)!;
  assertEquals([other.add(3), other.add(6), other.tokens], [false, true, [1, 4, 6]]);
  const deeper = branch(other, 2, 5)!;
  assertEquals([deeper.add(7), deeper.tokens, deeper.depth], [true, [1, 4, 5, 7], 4]);
  assertEquals([branch(draft, 1, 9), branch(draft, 0, 2)?.tokens], [undefined, [2]]);
  const follow = (sampled: readonly number[]) =>
    draft.accepted(({ depth }) => sampled[depth]).at(-1)!;
  assertEquals(follow([1, 3, 6, 7]), { path: draft, depth: 2 });
  assertEquals(follow([1, 4, 6, 7]), { path: other, depth: 3 });
  assertEquals(follow([1, 4, 5, 9]), { path: deeper, depth: 3 });
  assertEquals(follow([7]), { path: draft, depth: 0 });

  draft.select(deeper);
  assertEquals([...draft.tokens], [1, 4, 5, 7]);
  for (const token of [1, 4, 5]) draft.advance(token);
  assertEquals([[...draft.tokens], draft.mask()?.mayAllow(8)], [[7], true]);
  draft[Symbol.dispose]();
  assertEquals([places.open, pages.freePages], [0, 6]);
});

Deno.test("the pages of an accepted branch are copied where they differ", () => {
  const pages = new KvPages(9, 4);
  using table = new PageTable(pages);
  table.reserve(6);
  const copies: number[][] = [];
  const copyPage = (...pages: [from: number, to: number]) => void copies.push(pages);
  {
    using branch = table.branch(6, copyPage)!;
    branch.reserve(9);
    using deeper = branch.branch(8, copyPage)!;
    assertEquals([branch.pages, deeper.pages, copies], [[0, 2, 3], [0, 2, 4], [[1, 2]]]);
    table.reserve(9);
    table.takeBranch(deeper, 9, copyPage);
    assertEquals([table.pages, copies.slice(1)], [[0, 1, 5], [[2, 1], [4, 5]]]);
  }
  assertEquals(pages.freePages, 6);
  table.reserve(36);
  assertEquals(table.branch(6, copyPage), undefined);
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

Deno.test("requests and results are converted to the tokens of a drafter and back", () => {
  const random = new Random("draft vocabulary");
  for (const [nTokens, nOwn] of [[100, 70], [64, 64], [90, 33], [70, 1], [33, 32]] as const) {
    const all = Array.from({ length: nTokens }, (_, token) => token);
    const tokens = all.toSorted(() => random.int(0, 1) - 0.5).slice(0, nOwn);
    const allowed = all.filter(() => random.chance(0.5));
    const bits = (ids: readonly number[], count: number) => {
      const words = new Uint32Array(Math.ceil(count / 32));
      for (const id of ids) words[id >> 5]! |= 1 << (id & 31);
      return words;
    };
    const history = Int32Array.from(all.filter(() => random.chance(0.3)));
    const bias = new Map(all.slice(0, 50).map((token) => [token, token / 8]));
    const late = new Uint32Array(Math.ceil(nTokens / 32));
    const request = (mask: Uint32Array | undefined, fillMask?: () => void): OutputRequest => ({
      ...UNSAMPLED,
      row: 5,
      nTop: 3,
      history,
      sampling: { ...UNSAMPLED.sampling, bias, mask },
      fillMask,
    });
    const heads = [
      {
        size: nOwn,
        idOf: (token: number) => tokens.indexOf(token),
        adapt: (given: OutputRequest) =>
          new ReducedVocabulary(Int32Array.from(tokens), nTokens).request(given),
      },
      {
        size: nOwn,
        idOf: (token: number) => token < nOwn ? token : -1,
        adapt: (given: OutputRequest) => fitRequest(given, nOwn),
      },
    ];
    for (const { size, idOf, adapt } of heads) {
      const own = (ids: Iterable<number>) => [...ids].map(idOf).filter((id) => id >= 0);
      const expected = bits(own(allowed), size);
      const found = adapt(request(bits(allowed, nTokens)));
      assertEquals([found.nTop, found.sampling.mask], [0, expected]);
      assertEquals(Array.from(found.history), own(history));
      const biases = [...bias].map(([token, value]) => [idOf(token), value] as const);
      assertEquals(found.sampling.bias, new Map(biases.filter(([id]) => id >= 0)));
      const filled = adapt(request(late.fill(0), () => late.set(bits(allowed, nTokens))));
      assertEquals(filled.sampling.mask, new Uint32Array(expected.length));
      filled.fillMask!();
      assertEquals(filled.sampling.mask, expected);
      assertEquals(adapt(request(undefined)).sampling.mask, undefined);
    }
    const error = new ForgeError("bad_model", "NaN");
    const last = nOwn - 1;
    const result = { token: last, logprob: -1, top: [{ token: 0, logprob: -2 }] } as StepResult;
    const vocabulary = new ReducedVocabulary(Int32Array.from(tokens), nTokens);
    assertEquals(vocabulary.results([[result, error]]), [[
      { ...result, token: tokens[last]!, top: [{ token: tokens[0]!, logprob: -2 }] },
      error,
    ]]);
  }
});
