/** Tests the division of heads, columns and layers among devices. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import {
  DeviceGroup,
  type DeviceInfo,
  type KvCache,
  type KvShape,
  type StreamedBytes,
} from "../../../src/backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import {
  TENSOR_TYPES,
  type TensorInfo,
  type TensorType,
} from "../../../src/formats/tensor_info.ts";
import {
  checkColumns,
  divideColumns,
  divideHeads,
  divideLayers,
  gather,
  joined,
  rowsOf,
  type Span,
} from "../../../src/models/weights/division.ts";
import { Random } from "../../support/random.ts";
import { computableTypes } from "../../support/weights.ts";
import { FakeBackend } from "./fakes.ts";

const matrix = (type: TensorType, cols: number): TensorInfo => {
  return { name: "w", type, shape: [1, cols], file: "f", offset: 0, bytes: 0 };
};

const ranksOf = (count: number) => Array.from({ length: count }, (_, index) => ({ index, count }));

Deno.test("every query head is on one rank, with the keys and values that it reads", () => {
  for (const [nHeads, nKvHeads] of [[32, 8], [8, 8], [64, 4], [16, 1], [40, 8], [24, 6]] as const) {
    for (const count of [1, 2, 4, 8, 16]) {
      const isShared = count > nKvHeads;
      if (nHeads % count !== 0 || (isShared ? count % nKvHeads : nKvHeads % count) !== 0) {
        assertThrows(
          () => divideHeads(nHeads, nKvHeads, { index: 0, count }),
          ForgeError,
          `${count} devices cannot divide attention with ${nHeads} heads, ${nKvHeads} of keys`,
        );
        continue;
      }
      const heads = ranksOf(count).flatMap((rank) => {
        const { q, kv } = divideHeads(nHeads, nKvHeads, rank);
        assertEquals(kv[1], Math.max(1, nKvHeads / count));
        // A rank maps its own query heads to its own heads of keys and values in equal groups.
        return Array.from(
          { length: q[1] },
          (_, i) => [q[0] + i, kv[0] + Math.floor(i * kv[1] / q[1])],
        );
      });
      const whole = Array.from(
        { length: nHeads },
        (_, i) => [i, Math.floor(i * nKvHeads / nHeads)],
      );
      assertEquals(heads, whole, `${nHeads} and ${nKvHeads} heads on ${count}`);
    }
  }
});

Deno.test("ranks divide columns along the blocks of every type", () => {
  const random = new Random("columns");
  for (const type of computableTypes) {
    const { blockElements } = TENSOR_TYPES[type];
    const step = Math.max(8, blockElements);
    for (const count of [2, 3, 4, 8]) {
      const cols = step * random.int(count, 5 * count);
      const tensor = matrix(type, cols);
      const spans = ranksOf(count).map((rank) => divideColumns(tensor, cols, rank));
      assertEquals(joined(spans), [[0, cols]]);
      for (const span of spans) {
        checkColumns(tensor, span);
        assertEquals([span[0] % step, span[1] % step], [0, 0], type);
      }
      const sizes = spans.map(([, size]) => size);
      assert(Math.max(...sizes) - Math.min(...sizes) <= step, `${type}: ${sizes}`);
      const few = step * (count - 1);
      assertThrows(
        () => divideColumns(matrix(type, few), few, { index: 0, count }),
        ForgeError,
        `${count} devices cannot divide the ${few} columns of the tensor "w" of type ${type}`,
      );
    }
  }
});

Deno.test("columns inside of a block or in an order of their own are refused", () => {
  const span: Span = [128, 128];
  for (const [first, count] of [span, [0, 128], [128, 256]] as const) {
    assertThrows(
      () => checkColumns(matrix("Q4_K", 512), [first, count]),
      ForgeError,
      `the columns ${first} to ${
        first + count
      } of the tensor "w" of type Q4_K: its blocks have 256`,
    );
  }
  // Rows of other lengths than multiples of 8 are not aligned in any case.
  assertEquals(divideColumns(matrix("F32", 12), 12, { index: 1, count: 2 }), [6, 6]);
  const tensor = matrix("Q4_1", 512);
  checkColumns(tensor, span);
  const columnOrder = new Uint32Array(512);
  const packed = {
    packing: "gptq",
    groupRows: 1,
    groupCols: 128,
    codes: tensor,
    columnOrder,
  } as const;
  assertThrows(() => checkColumns({ ...tensor, packed }, span), ForgeError, "desc_act");
});

/** Yields all choices of `count` ends of spans before `n`. */
function* cuts(n: number, count: number, from = 1): Generator<number[]> {
  if (count === 0) yield [];
  else {
    for (let at = from; at < n; at++) {
      for (const rest of cuts(n, count - 1, at + 1)) yield [at, ...rest];
    }
  }
}

Deno.test("stages divide layers by the share of their memory that the fullest one uses", () => {
  const random = new Random("layers");
  for (let round = 0; round < 200; round++) {
    const nLayers = random.int(1, 10);
    const sizes = Array.from({ length: nLayers }, () => random.int(1, 50));
    const memory = Array.from(
      { length: random.int(1, Math.min(4, nLayers)) },
      () => random.int(1, 9),
    );
    const shareOf = (ends: readonly number[]) =>
      Math.max(...memory.map((free, stage) => {
        const own = sizes.slice(ends[stage - 1] ?? 0, ends[stage] ?? nLayers);
        return own.reduce((sum, bytes) => sum + bytes, 0) / free;
      }));
    const best = Math.min(...Array.from(cuts(nLayers, memory.length - 1), shareOf));
    const spans = divideLayers(sizes, memory);
    assertEquals(joined(spans), [[0, nLayers]]);
    assert(spans.every(([, count]) => count > 0), `${spans}`);
    assertEquals(shareOf(spans.slice(1).map(([first]) => first)), best, `${sizes} on ${memory}`);
  }
  assertThrows(
    () => divideLayers([1, 1], [1, 1, 1]),
    ForgeError,
    "3 stages cannot divide a model of 2 layers; valid is at most 2",
  );
});

Deno.test("spans of rows", () => {
  assertEquals(rowsOf([2, 3], 64), [128, 192]);
  assertEquals(rowsOf([2, 3], 64, 1000), [1128, 192]);
  assertEquals(joined([[0, 4], [4, 2], [7, 1], [8, 1]]), [[0, 6], [7, 2]]);
  assertEquals(gather(Float32Array.of(5, 6, 7, 8), [[2, 2], [0, 1]]), Float32Array.of(7, 8, 5));
});

/** A device of a group, with random properties and caches of one byte a page for each head. */
class Member extends FakeBackend {
  override readonly info: DeviceInfo;
  readonly memoryBound: number | undefined;
  readonly free: number;
  readonly streamed: StreamedBytes;
  readonly pages = new Map<number, Uint8Array>();
  isClosed = false;

  constructor(random: Random) {
    super();
    this.info = { name: "CPU", threads: random.int(1, 8), features: ["fma"], kernels: "avx2" };
    this.memoryBound = random.chance(0.7) ? undefined : random.int(1, 1000);
    this.free = random.int(0, 1000);
    this.streamed = { all: random.int(0, 99), perToken: random.int(0, 99) };
  }

  override memory() {
    return { total: 1000 + this.free, free: this.free };
  }

  streamedBytes() {
    return this.streamed;
  }

  override createKv(shape?: KvShape): KvCache {
    const { pages } = this;
    return {
      handle: 0,
      pageBytes: shape!.nKvHeads,
      copyPage: (from, to) => void pages.set(to, pages.get(from)!),
      readPage: (page) => Uint8Array.from(pages.get(page)!),
      writePage: (page, data) => void pages.set(page, Uint8Array.from(data)),
    };
  }

  override close() {
    this.isClosed = true;
  }
}

Deno.test("a group of devices adds up or bounds what its devices report", () => {
  const random = new Random("device group");
  for (let round = 0; round < 30; round++) {
    const [nStages, nRanks] = [random.int(1, 3), random.int(1, 4)];
    const members = Array.from({ length: nStages * nRanks }, () => new Member(random));
    const group = new DeviceGroup(members, nStages);
    let [threads, all, perToken] = [0, 0, 0];
    for (const { info, streamed } of members) {
      threads += info.threads;
      all += streamed.all;
      perToken += streamed.perToken;
    }
    assertEquals(group.info, {
      name: `${members.length} x CPU`,
      threads,
      features: ["fma"],
      kernels: nRanks === 1 ? "avx2" : `avx2 x ${nRanks}`,
    });
    assertEquals(group.streamedBytes(), { all, perToken });
    const frees = members.map(({ free }) => free);
    assertEquals(group.memory().free, Math.min(...frees));
    assertEquals(group.memory().total, 1000 + Math.min(...frees));
    const bounds = members.flatMap(({ memoryBound }) => memoryBound ?? []);
    assertEquals(group.memoryBound, bounds.length === 0 ? undefined : Math.min(...bounds));
    members.forEach((_, i) => {
      const { rank, stage } = group.placeOf(i);
      assert(rank < nRanks && stage < nStages);
      assertEquals(stage * nRanks + rank, i);
    });

    // A page of a group is the pages of a stage's ranks, one after another.
    const stage = random.int(0, nStages - 1);
    const nKvHeads = random.int(1, 8);
    const shape = { type: "F32", nPages: 3, pageTokens: 1, kHeadDim: 1, vHeadDim: 1 } as const;
    const kv = group.createKv({ ...shape, nKvHeads, stage });
    assertEquals([kv.stage, kv.ranks.length, kv.pageBytes], [stage, nRanks, nRanks * nKvHeads]);
    const page = random.bytes(kv.pageBytes);
    kv.writePage(1, page);
    kv.copyPage(1, 2);
    assertEquals([kv.readPage(1), kv.readPage(2)], [page, page]);
    members.forEach(({ pages }, i) => {
      const rank = i - stage * nRanks;
      const own = rank >= 0 && rank < nRanks;
      assertEquals(
        pages.get(2),
        own ? page.slice(rank * nKvHeads, (rank + 1) * nKvHeads) : undefined,
      );
    });
    group.close();
    assert(members.every(({ isClosed }) => isClosed));
  }
  assertThrows(() => new DeviceGroup([], 1), RangeError);
  const three = Array.from({ length: 3 }, () => new Member(random));
  assertThrows(() => new DeviceGroup(three, 2), RangeError, "3 devices in 2 stages");
});
