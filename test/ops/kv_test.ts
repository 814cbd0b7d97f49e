/** KV caches as pages: copies, reads, writes and refusals. */
import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import type { Backend, KvCache, KvShape } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { devices, deviceTest, isGpu } from "../support/devices.ts";
import {
  assertSameBits,
  type Matrix,
  matrixOfRows,
  randomMatrix,
  rowOf,
} from "../support/matrix.ts";
import { runStep, type StepGraph, tokenInputs } from "../support/step_graph.ts";

const shape: KvShape = {
  type: "F16",
  nPages: 6,
  pageTokens: 4,
  nKvHeads: 2,
  kHeadDim: 16,
  vHeadDim: 8,
};
const cols = 4 * 16 + 2 * 16 + 2 * 8;
const latent: KvShape = { ...shape, valuesInKeys: true };

/** Appends the rows of qkv at positions from `first` on, and attends over all positions. */
function attend(
  device: Backend,
  kv: KvCache,
  qkv: Matrix,
  pageTable: readonly number[],
  first = 0,
): Promise<Matrix> {
  const positions = Array.from({ length: qkv.rows }, (_, row) => first + row);
  const inputs = { ...tokenInputs(qkv.rows), positions, pageTables: [pageTable] };
  return runStep(device, inputs, (graph) => {
    const options = { nHeads: 4, eps: 1e-6, ropeLayout: "half" } as const;
    const q = graph.recorder.ropeAppend(graph.input(qkv), kv, options);
    return { value: graph.recorder.attention(q, kv, { nHeads: 4, scale: 0.25 }), cols: 4 * 8 };
  });
}

deviceTest("a new cache is all zeros", (device) => {
  for (
    const [type, bytes] of [["F32", 4], ["F16", 2], ["BF16", 2], ["Q8_0", 1], [
      "Q4_0",
      0.5,
    ]] as const
  ) {
    const kv = device.createKv({ ...shape, type });
    const elements = shape.pageTokens * shape.nKvHeads * (shape.kHeadDim + shape.vHeadDim);
    assertEquals(kv.pageBytes >= elements * bytes, true);
    for (let page = 0; page < shape.nPages; page++) {
      assertEquals(kv.readPage(page), new Uint8Array(kv.pageBytes), `page ${page}`);
    }
  }
});

deviceTest("values in keys are kept once", (device) => {
  for (const type of ["F32", "F16", "BF16", "Q8_0", "Q4_0"] as const) {
    const keys = { ...latent, type, nKvHeads: 1, kHeadDim: 576, vHeadDim: 512 };
    const elements = keys.pageTokens * keys.kHeadDim;
    const bytes = { F32: 4 * elements, F16: 2 * elements, BF16: 2 * elements };
    const { pageBytes } = device.createKv(keys);
    if (type in bytes) assertEquals(pageBytes, bytes[type as keyof typeof bytes]);
    assertEquals(pageBytes < device.createKv({ ...keys, valuesInKeys: false }).pageBytes, true);
  }
});

deviceTest("pages are read as they were written", (device, random) => {
  const kv = device.createKv(shape);
  const pages = Array.from({ length: shape.nPages }, () => random.bytes(kv.pageBytes));
  for (const page of random.permutation(shape.nPages)) kv.writePage(page, pages[page]!);
  pages.forEach((bytes, page) => assertEquals(kv.readPage(page), bytes, `page ${page}`));
  kv.copyPage(2, 5);
  kv.copyPage(0, 0);
  pages[5] = pages[2]!;
  pages.forEach((bytes, page) => assertEquals(kv.readPage(page), bytes, `page ${page} after`));
});

deviceTest("tokens go to their sequence's pages and nowhere else", async (device, random) => {
  const kv = device.createKv(shape);
  const untouched = Array.from({ length: shape.nPages }, () => random.bytes(kv.pageBytes));
  untouched.forEach((bytes, page) => kv.writePage(page, bytes));
  await attend(device, kv, randomMatrix(random, 7, cols), [4, 1]);
  untouched.forEach((bytes, page) => {
    const isSame = kv.readPage(page).every((byte, i) => byte === bytes[i]);
    assertEquals(isSame, page !== 4 && page !== 1, `page ${page}`);
  });
});

const kinds: readonly [what: string, shape: KvShape, cols: number][] = [
  ["F16", shape, cols],
  ["BF16", { ...shape, type: "BF16" }, cols],
  ["Q8_0", { ...shape, type: "Q8_0" }, cols],
  ["Q4_0", { ...shape, type: "Q4_0" }, cols],
  ["latent", latent, cols - 2 * 8],
  ["latent Q8_0", { ...latent, type: "Q8_0" }, cols - 2 * 8],
  ["latent Q4_0", { ...latent, type: "Q4_0" }, cols - 2 * 8],
];
for (const [what, typed, qkvCols] of kinds) {
  deviceTest(
    `copied, saved and restored ${what} pages attend as the originals do`,
    async (device, random) => {
      const kv = device.createKv(typed);
      const prompt = randomMatrix(random, 7, qkvCols), next = randomMatrix(random, 1, qkvCols);
      await attend(device, kv, prompt, [4, 1]);
      const saved = [4, 1].map((page) => kv.readPage(page));
      const expected = await attend(device, kv, next, [4, 1], 7);

      // A fork: the full page is shared, the last one is copied before it is written.
      kv.writePage(1, saved[1]!);
      kv.copyPage(1, 3);
      const forked = await attend(device, kv, next, [4, 3], 7);
      assertSameBits(forked, expected, "fork");
      assertEquals(kv.readPage(1), saved[1]!, "the page that was copied");

      const other = device.createKv(typed);
      saved.forEach((bytes, i) => other.writePage([0, 5][i]!, bytes));
      assertSameBits(await attend(device, other, next, [0, 5], 7), expected, "another cache");
    },
  );
}

deviceTest("pages past the end and wrong sizes are rejected", (device) => {
  const kv = device.createKv(shape);
  const refused: [() => unknown, string][] = [
    [() => kv.readPage(6), "page 6 of 6"],
    [() => kv.writePage(6, new Uint8Array(kv.pageBytes)), "page 6 of 6"],
    [() => kv.writePage(0, new Uint8Array(kv.pageBytes - 1)), `has ${kv.pageBytes} bytes`],
    [() => kv.writePage(0, new Uint8Array(kv.pageBytes + 1)), `has ${kv.pageBytes} bytes`],
    [() => kv.copyPage(0, 6), "page 6 of 6"],
    [() => kv.copyPage(6, 0), "page 6 of 6"],
    [() => kv.copyPage(6, 6), "page 6 of 6"],
    [() => kv.copyPage(0xffffffff, 0), "page 4294967295 of 6"],
  ];
  for (const [call, message] of refused) assertThrows(call, ForgeError, message);
});

deviceTest("of extremes of equal size a Q4_0 cache keeps the positive one", async (device) => {
  const values = [3, -3, 1.5, -0.75, 0, 0, 0, 0];
  // Each head's value is its own scale of these.
  const row = [...Array<number>(cols - 16).fill(0), ...values, ...values.map((value) => 2 * value)];
  const kv = device.createKv({ ...shape, type: "Q4_0" });
  const { data } = await attend(device, kv, { rows: 1, cols, data: Float32Array.from(row) }, [0]);
  const kept = [3, -2.625, 1.5, -0.75, 0, 0, 0, 0], twice = kept.map((value) => 2 * value);
  assertEquals(Array.from(data), [kept, kept, twice, twice].flat());
});

deviceTest("a cache of an unsupported type is rejected", (device) => {
  // The types of TypeScript exclude it, but the border must not rely on them.
  const type = "Q4_K" as KvShape["type"];
  const error = assertThrows(() => device.createKv({ ...shape, type }), ForgeError);
  assertEquals(error.code, "unsupported");
  assertMatch(error.message, /KV cache type 12 .* valid are F32.*F16.*Q8_0/);
});

deviceTest("caches of impossible shapes are rejected", (device) => {
  const refused: [Partial<KvShape>, string][] = [
    [{ nPages: 0 }, "0 pages"],
    [{ nPages: 2 ** 24 + 1 }, "pages; valid is"],
    [{ pageTokens: 0 }, "pages of 0 tokens"],
    [{ pageTokens: 4097 }, "pages of 4097 tokens"],
    [{ nKvHeads: 0 }, "0 heads"],
    [{ nKvHeads: 4097 }, "4097 heads"],
    [{ kHeadDim: 0 }, "heads of 0"],
    [{ kHeadDim: 4097 }, "heads of 4097"],
    [{ vHeadDim: 5000 }, "heads of 5000"],
    [{ vHeadDim: 17, valuesInKeys: true }, "values of 17 in keys of 16"],
    [{ nPages: 2 ** 24, pageTokens: 4096, nKvHeads: 4096, kHeadDim: 4096, vHeadDim: 4096 }, ""],
    // One size of many elements too many.
    ...[
      { nPages: 2 ** 24, pageTokens: 2048, nKvHeads: 1, kHeadDim: 256, vHeadDim: 257 },
      { nPages: 2 ** 23, pageTokens: 4096, nKvHeads: 256, kHeadDim: 1, vHeadDim: 2 },
      { nPages: 2 ** 20, pageTokens: 4096, nKvHeads: 4096, kHeadDim: 1, vHeadDim: 1 },
    ].map((sizes): [Partial<KvShape>, string] => [
      sizes,
      `a KV cache of ${sizes.nPages} pages of ${sizes.pageTokens} tokens is too large`,
    ]),
  ];
  for (const [change, message] of refused) {
    const error = assertThrows(() => device.createKv({ ...shape, ...change }), ForgeError, message);
    assertEquals(error.message.includes("internal error"), false, error.message);
  }
  const small = { ...shape, nPages: 1, pageTokens: 1, nKvHeads: 1 };
  const limits: readonly Partial<KvShape>[] = [
    { kHeadDim: 1, vHeadDim: 1 },
    { pageTokens: 4096 },
    { nKvHeads: 4096 },
    { kHeadDim: 4096, vHeadDim: 4096 },
    { kHeadDim: 16, vHeadDim: 16, valuesInKeys: true },
  ];
  for (const change of limits) assert(device.createKv({ ...small, ...change }).pageBytes > 0);
});

// Wine keeps a byte for each page of reserved memory, which are 16 GiB for such a cache.
const isInWine = Deno.env.get("FORGE_TEST_WINDOWS_LIBRARY") !== undefined;
const reserving = devices.filter(({ kind }) => kind === "cpu" && !isInWine);

deviceTest("caches larger than the address space are out of memory", (device) => {
  // 64 TiB each, which a system may grant to a few.
  const sizes = { nPages: 2 ** 24, pageTokens: 1024, nKvHeads: 1, kHeadDim: 512, vHeadDim: 512 };
  const create = () => device.createKv({ ...shape, ...sizes, type: "F32" });
  assertThrows(() => Array.from({ length: 5 }, create), ForgeError, "out of memory");
}, reserving);

deviceTest("a NaN in an F16 cache stays a NaN of its sign", async (device, random) => {
  const kv = device.createKv(shape);
  const qkv = randomMatrix(random, 1, cols), bits = new Uint32Array(qkv.data.buffer);
  const nans = [0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffbfe000];
  bits.set(nans, cols - nans.length);
  await attend(device, kv, qkv, [0]);
  const stored = [...new Uint16Array(kv.readPage(0).buffer)];
  const ofSign = (sign: number) =>
    stored.filter((half) => (half & 0x7fff) > 0x7c00 && half >> 15 === sign).length;
  assertEquals([ofSign(0), ofSign(1)], [3, 2]);
}, devices.filter((device) => !isGpu(device)));

deviceTest("one step attends with heads of several sizes as steps of their own do", async (
  device,
  random,
) => {
  const nTokens = 20, nHeads = 2;
  const inputs = { ...tokenInputs(nTokens), pageTables: [[4, 0, 3, 1, 2]] };
  const layers = [16, 128, 64].map((dim) => ({
    dim,
    qkv: randomMatrix(random, nTokens, (nHeads + 2) * dim),
  }));
  const record = (graph: StepGraph, { dim, qkv }: typeof layers[number]) => {
    const kv = graph.kv({ ...shape, nPages: 5, nKvHeads: 1, kHeadDim: dim, vHeadDim: dim });
    const options = { nHeads, eps: 1e-6, ropeLayout: "half" } as const;
    const q = graph.recorder.ropeAppend(graph.input(qkv), kv, options);
    return {
      value: graph.recorder.attention(q, kv, { nHeads, scale: dim ** -0.5 }),
      cols: nHeads * dim,
    };
  };
  const alone: Matrix[] = [];
  for (const layer of layers) {
    alone.push(await runStep(device, inputs, (graph) => record(graph, layer)));
  }
  const together = await runStep(device, inputs, (graph) => {
    const results = layers.map((layer) => record(graph, layer));
    const pieces = results.map(({ value, cols }) => ({ value, width: cols }));
    const cols = results.reduce((sum, { cols }) => sum + cols, 0);
    return { value: graph.recorder.gatherColumns(pieces, 1), cols };
  });
  const expected = matrixOfRows(
    nTokens,
    together.cols,
    (row) => alone.flatMap((each) => Array.from(rowOf(each, row))),
  );
  assertSameBits(together, expected, "heads of 16, 128 and 64");
});
