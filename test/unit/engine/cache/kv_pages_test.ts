import { assert, assertEquals, assertThrows } from "@std/assert";
import { KvPages, PageTable } from "../../../../src/engine/cache/kv_pages.ts";
import { Random } from "../../../support/random.ts";

Deno.test("the lowest free page is allocated first", () => {
  const pool = new KvPages(3, 16);
  assertEquals([pool.allocate(), pool.allocate()], [0, 1]);
  pool.release(0);
  assertEquals(pool.allocate(), 0);
  assertEquals([pool.allocate(), pool.allocate()], [2, undefined]);
  assertEquals(pool.freePages, 0);
});

Deno.test("a shared page is free once every user has released it", () => {
  const pool = new KvPages(2, 16);
  const page = pool.allocate()!;
  assertEquals(pool.isShared(page), false);
  pool.share(page);
  assertEquals(pool.isShared(page), true);
  pool.release(page);
  assertEquals([pool.isShared(page), pool.freePages], [false, 1]);
  pool.release(page);
  assertEquals(pool.freePages, 2);
});

Deno.test("a free page cannot be shared or released", () => {
  const pool = new KvPages(2, 16);
  const page = pool.allocate()!;
  pool.release(page);
  for (const bad of [page, 1, 2, -1, 0.5]) {
    assertThrows(() => pool.share(bad), RangeError, `KV page ${bad} is not in use`);
    assertThrows(() => pool.release(bad), RangeError, `KV page ${bad} is not in use`);
    assertThrows(() => pool.isShared(bad), RangeError, `KV page ${bad} is not in use`);
  }
  assertEquals(pool.freePages, 2);
});

Deno.test("a table holds as many pages as its positions need", () => {
  const pool = new KvPages(4, 16);
  {
    using table = new PageTable(pool);
    for (const [length, pages] of [[0, 0], [1, 1], [16, 1], [17, 2], [5, 2], [64, 4]] as const) {
      assertEquals([table.reserve(length), table.pages.length], [true, pages]);
    }
  }
  assertEquals(pool.freePages, 4);
});

Deno.test("a table keeps its pages when the cache is full", () => {
  const pool = new KvPages(4, 16);
  using other = new PageTable(pool);
  other.reserve(32);
  using table = new PageTable(pool);
  table.reserve(16);
  assertEquals(table.reserve(64), false);
  assertEquals([table.pages, pool.freePages], [[2], 1]);
  table.release();
  assertEquals([table.pages.length, pool.freePages], [0, 2]);
});

Deno.test("random use of the pool neither leaks nor double-allocates a page", () => {
  const random = new Random("kv pages");
  for (let round = 0; round < 50; round++) {
    const nPages = random.int(1, 20);
    const pool = new KvPages(nPages, random.int(1, 8));
    const tables = Array.from({ length: random.int(1, 5) }, () => new PageTable(pool));
    /** Pages that the test itself holds, one entry per reference. */
    const held: number[] = [];
    for (let step = 0; step < 200; step++) {
      const table = random.pick(tables);
      const action = random.int(0, 3);
      if (action === 0) {
        const length = random.int(0, nPages * pool.pageTokens * 2);
        const [before, free] = [table.pages.length, pool.freePages];
        if (table.reserve(length)) {
          assert(table.pages.length * pool.pageTokens >= length);
        } else {
          assert((before + free) * pool.pageTokens < length, "there was room");
          assertEquals([table.pages.length, pool.freePages], [before, free]);
        }
      } else if (action === 1) {
        table.release();
      } else if (action === 2 && table.pages.length > 0) {
        const page = random.pick(table.pages);
        pool.share(page);
        held.push(page);
      } else if (held.length > 0) {
        pool.release(held.splice(random.int(0, held.length - 1), 1)[0]!);
      }
      const own = tables.flatMap(({ pages }) => pages);
      assertEquals(new Set(own).size, own.length, "a page in two tables");
      const used = new Set([...own, ...held]);
      assertEquals(pool.freePages, nPages - used.size);
      for (const page of used) {
        const users = [...own, ...held].filter((other) => other === page).length;
        assertEquals(pool.isShared(page), users > 1);
      }
    }
    for (const table of tables) table.release();
    for (const page of held) pool.release(page);
    assertEquals(pool.freePages, nPages);
  }
});

Deno.test("taking over a branch copies the pages up to a length that it does not share", () => {
  const table = new PageTable(new KvPages(9, 16));
  assert(table.reserve(64));
  const branch = table.branch(20, () => {})!;
  assert(branch.reserve(64));
  for (const [length, indices] of [[20, [1]], [32, [1]], [33, [1, 2]], [64, [1, 2, 3]]] as const) {
    const copied: (readonly number[])[] = [];
    table.takeBranch(branch, length, (from, to) => copied.push([from, to]));
    assertEquals(copied, indices.map((i) => [branch.pages[i]!, table.pages[i]!]));
  }
});

Deno.test("a branch shares the pages before it and copies the page that it continues", () => {
  const pool = new KvPages(5, 16);
  using table = new PageTable(pool);
  assert(table.reserve(40));
  const branch = (at: number) => {
    const copied: number[][] = [];
    const made = table.branch(at, (...pages) => copied.push(pages));
    return { made, copied };
  };
  const cases: [at: number, pages: number[], copied: number[][]][] = [
    [0, [3], []],
    [1, [3], [[0, 3]]],
    [16, [0, 3], []],
    [17, [0, 3], [[1, 3]]],
    [47, [0, 1, 3], [[2, 3]]],
    [48, [0, 1, 2, 3], []],
  ];
  for (const [at, pages, copied] of cases) {
    const { made, ...rest } = branch(at);
    assertEquals({ pages: made?.pages, ...rest }, { pages, copied });
    made!.release();
    assertEquals(pool.freePages, 2);
  }
  using _other = branch(20).made;
  using _another = branch(20).made;
  assertEquals(branch(20), { made: undefined, copied: [] });
});
