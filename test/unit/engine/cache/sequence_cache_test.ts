/** Tests where one sequence enters and leaves the cache, and what others can wait for. */
import { assert, assertEquals } from "@std/assert";
import { KvPages, PageTable } from "../../../../src/engine/cache/kv_pages.ts";
import { Pool } from "../../../../src/engine/cache/pool.ts";
import { PrefixCache } from "../../../../src/engine/cache/prefix_cache.ts";
import { SequenceCache } from "../../../../src/engine/cache/sequence_cache.ts";
import { StateSnapshots } from "../../../../src/engine/cache/state_snapshots.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";

/** Returns a function that makes sequences of one cache, whose pages hold 4 tokens. */
function sequences(hasStates: boolean) {
  const pages = new KvPages(20, 4);
  const slots = hasStates ? new Pool(8, "state slot") : undefined;
  const snapshots = slots && new StateSnapshots(slots, () => {});
  const cache = new PrefixCache(pages, () => {}, snapshots);
  return (length: number, mayReuse = true) => {
    const tokens = new TokenList(Array.from({ length }, (_, i) => i));
    return new SequenceCache({ tokens, mayReuse }, new PageTable(pages, slots), cache);
  };
}

Deno.test("a shared prefix is published with its last page, or at a snapshot", () => {
  const plain = sequences(false)(11);
  assert(!plain.enter(2) && plain.enter(3));
  assertEquals([4, 5, 8, 9, 11].map((shared) => plain.publishedAt(shared)), [4, 8, 8, 11, 11]);
  assertEquals(plain.maxChunk, Infinity);
  const newSequence = sequences(true);
  // The state is kept after the last whole page before the last token.
  for (const [length, at] of [[11, 8], [9, 8], [8, 4], [5, 4], [4, undefined]] as const) {
    const sequence = newSequence(length);
    assert(sequence.enter(20));
    assertEquals(
      [7, 8, 9].map((shared) => sequence.publishedAt(shared)),
      [7, 8, 9].map((shared) => at !== undefined && at <= shared ? at : undefined),
    );
    assertEquals(sequence.maxChunk, at ?? Infinity);
  }
  const single = newSequence(11, false);
  assert(single.enter(20));
  assertEquals([single.publishedAt(11), single.maxChunk], [undefined, Infinity]);
});

Deno.test("the computed tokens of a sequence are cached, and it enters again after them", () => {
  for (const hasStates of [false, true]) {
    const newSequence = sequences(hasStates);
    const first = newSequence(11);
    assert(first.enter(20));
    first.advance(5, [], true);
    assertEquals([first.computed, first.stored], [5, 5]);
    assertEquals(first.maxChunk, hasStates ? 3 : Infinity);
    first.advance(8, [], true);
    assertEquals([first.maxChunk, first.publishedAt(9)], [Infinity, hasStates ? undefined : 11]);
    const second = newSequence(10), third = newSequence(10, false);
    assert(second.enter(20) && third.enter(20));
    assertEquals([second.computed, third.computed], [8, 0]);
    first.advance(11, [], false);
    first.retire();
    assertEquals([first.computed, first.table.pages], [0, []]);
    // The last token is computed again; a state cannot be cut.
    assert(first.enter(20));
    assertEquals([first.computed, first.stored], hasStates ? [8, 8] : [10, 10]);
    const longer = newSequence(12);
    assert(longer.enter(20));
    assertEquals(longer.computed, 11);
    const other = newSequence(11);
    assert(!other.enter(0));
    assertEquals([other.computed, other.table.pages], [0, []]);
  }
});

Deno.test("tokens ahead count up to the first that differs from the task", () => {
  const sequence = sequences(false)(11);
  assert(sequence.enter(20));
  sequence.advance(6, [6, 7, 90], false);
  assertEquals([sequence.computed, sequence.stored], [8, 8]);
  sequence.advance(9, [90], false);
  assertEquals([sequence.computed, sequence.stored], [9, 9]);
});
