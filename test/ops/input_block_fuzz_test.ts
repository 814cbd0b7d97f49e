/** Random and corrupted input blocks give a status, never a crash or a hang. */
import { assert, assertEquals } from "@std/assert";
import type { AttentionMask } from "../../src/backend.ts";
import {
  HEADER_WORDS,
  InputBlock,
  MASK_BITS,
  MASK_FLOATS,
  MASK_NONE,
} from "../../ffi/step_block.ts";
import { isEmulated } from "../support/devices.ts";
import { readHeader } from "../support/header.ts";
import { randomMatrix } from "../support/matrix.ts";
import type { Random } from "../support/random.ts";
import { borderTest, floatWord, oddWords, type RawBorder, status } from "../support/raw_border.ts";
import { greedy, outputRow } from "../support/step_graph.ts";

const vocabulary = 24;

/** Runs with random blocks. */
const RUNS = isEmulated ? 500 : 10_000;

/** Bytes for the results of every good block: 6 outputs with 3 alternatives. */
const ROOM = 6 * 40;

/** A step with a cache, experts and sampling, ready to run. */
async function recordStep(border: RawBorder, random: Random): Promise<number> {
  const { symbols: s, device } = border;
  const weight = (rows: number, cols: number) => border.upload(randomMatrix(random, rows, cols));
  const step = border.make((out) => s.forge_step_begin(device, 8, 4, 3, 4, out));
  const pageBytes = new BigUint64Array(1);
  const kv = border.make((out) => s.forge_kv_create(device, 0, 6, 4, 1, 8, 8, 0, out, pageBytes));
  const record = (operation: string, ...words: readonly number[]) =>
    border.record(step, operation, ...words);
  const one = floatWord(1);
  const x = record("embed", weight(vocabulary, 8), one);
  const qkv = record("matmul", x, weight(32, 8), 0, one, 0, 0);
  const table = record("rope_table", weight(1, 4), one);
  const q = record("rope_append", qkv, kv, 2, 0, 0, floatWord(1e-5), 0, table, 0);
  const attended = record("attention", q, kv, 2, floatWord(0.3), 5, 0, 0, 1, 1, 0);
  const route = record("moe_route", x, 2, 1, one, 0, 0, 0, 1, 1, 0);
  const experts = record("moe_matmul", attended, route, weight(64, 16), 0, 8);
  const mixed = record("moe_combine", experts, route, x);
  const rows = record("gather_outputs", mixed);
  record("sample", record("matmul", rows, weight(vocabulary, 8), 0, one, 0, 0), 3);
  assertEquals(await s.forge_step_end(step, new BigUint64Array(1)), status.ok);
  return step;
}

/** A valid block of inputs for several steps. */
function goodSeries(random: Random): Int32Array<ArrayBuffer> {
  const n = random.int(1, 2);
  const rows = Array.from({ length: n }, (_, row) => row);
  return new InputBlock().pack({
    tokens: rows,
    positions: rows.map(() => random.int(0, 5)),
    sequences: rows,
    pageTables: rows.map((row) => [row, 2 + row]),
    outputs: rows.map((row) => outputRow(row, { history: [1], historySize: random.int(0, 3) })),
    nSteps: random.int(2, 3),
    endTokens: [4, 5],
  }).slice();
}

/** A mask of attention over two pages. */
function randomMask(random: Random, nTokens: number): AttentionMask {
  const nHeads = random.pick([1, 2]);
  const values = random.chance(0.5)
    ? new Uint32Array(nTokens * nHeads).map(() => random.u32())
    : random.normals(nTokens * nHeads * 8).map((bias) => bias < 0 ? -Infinity : bias);
  return { nHeads, nPositions: 8, values };
}

/** A valid block of inputs. */
function goodBlock(random: Random): Int32Array<ArrayBuffer> {
  if (random.chance(0.2)) return goodSeries(random);
  const n = random.int(1, 8);
  const outputs = Array.from({ length: random.int(0, 4) }, () =>
    outputRow(random.int(0, n - 1), {
      sampling: {
        ...greedy,
        temperature: random.pick([0, 0.5]),
        topK: random.pick([0, 3]),
        topP: random.pick([1, 0.5]),
        minP: random.pick([0, 0.1]),
        bias: random.chance(0.3) ? new Map([[3, 1], [4, -Infinity]]) : undefined,
        mask: random.chance(0.3) ? Uint32Array.of(random.u32() | 1) : undefined,
        repeatPenalty: random.pick([1, 1.5]),
      },
      history: random.chance(0.5) ? [1, 2, 2] : [],
      nTop: random.int(0, 3),
    }));
  const isTree = random.chance(0.2);
  const position = (row: number) => isTree ? row : random.int(0, 7);
  return new InputBlock().pack({
    tokens: Array.from({ length: n }, () => random.int(0, vocabulary - 1)),
    positions: Array.from({ length: n }, (_, row) => position(row)),
    // The second half of a tree is a branch.
    sequences: Array.from({ length: n }, (_, row) => isTree ? row >> 2 : random.int(0, 1)),
    parents: isTree ? Array.from({ length: n }, (_, row) => row - 1) : [],
    pageTables: [[0, 5], [2, 3]],
    keyLengths: [random.int(0, 8), random.int(0, 8)],
    attentionMask: random.chance(0.3) ? randomMask(random, n) : undefined,
    outputs,
  }).slice();
}

/** A block with some words, or its length, changed. */
function spoiled(random: Random, block: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  const grown = random.chance(0.1) ? random.int(-block.length, 20) : 0;
  const result = new Int32Array(block.length + grown);
  result.set(block.subarray(0, result.length));
  for (let n = random.int(0, 3); n > 0 && result.length > 0; n--) {
    // The header determines the layout of the rest.
    const at = random.int(
      0,
      random.chance(0.3) ? Math.min(HEADER_WORDS, result.length) - 1 : result.length - 1,
    );
    result[at] = random.chance(0.7)
      ? random.pick(oddWords)
      : random.chance(0.5)
      ? random.u32()
      : result[at]! + random.int(-2, 2);
  }
  return result;
}

borderTest("random input blocks", async (border, random) => {
  const step = await recordStep(border, random);
  const counts = new Map<number, number>();
  for (let i = 0; i < RUNS; i++) {
    const block = i % 10 === 0
      ? new Int32Array(random.bytes(4 * random.int(0, 100)).buffer)
      : spoiled(random, goodBlock(random));
    const room = new Uint8Array(random.chance(0.9) ? ROOM : random.int(0, ROOM) & ~3);
    const result = await border.run(step, block, room);
    counts.set(result, (counts.get(result) ?? 0) + 1);
  }
  const ran = counts.get(status.ok) ?? 0, refused = counts.get(status.invalidArgument) ?? 0;
  assertEquals(ran + refused, RUNS, Deno.inspect(counts));
  assert(Math.min(ran, refused) > RUNS / 10, `${ran} ran, ${refused} were refused`);
});

borderTest("blocks that are cut short, unaligned or null", async (border, random) => {
  const step = await recordStep(border, random);
  const { forge_step_run } = border.symbols;
  const block = goodBlock(random);
  const bytes = new Uint8Array(block.buffer);
  const room = new Uint8Array(ROOM);
  const run = (inputs: Uint8Array<ArrayBuffer> | null, size = inputs?.length ?? 0) =>
    forge_step_run(step, inputs, BigInt(size), room, BigInt(room.length), null);
  assertEquals(await run(bytes), status.ok);
  for (let size = 0; size < bytes.length; size++) {
    assertEquals(await run(bytes, size), status.invalidArgument, `${size} of ${bytes.length}`);
  }
  const moved = new Uint8Array(bytes.length + 1);
  moved.set(bytes, 1);
  assertEquals(await run(moved.subarray(1)), status.invalidArgument);
  assertEquals(await run(null, bytes.length), status.invalidArgument);

  const masked = new InputBlock().pack({
    tokens: [0],
    positions: [0],
    sequences: [0],
    pageTables: [[0]],
    attentionMask: { nHeads: 1, nPositions: 4, values: new Float32Array(4) },
    outputs: [],
  }).slice();
  const KIND = 10; // the word attention_mask of forge_step_header
  assertEquals(masked[KIND], MASK_FLOATS);
  assertEquals(await border.run(step, masked, room), status.ok);
  masked[KIND] = MASK_FLOATS + 1;
  assertEquals(await border.run(step, masked, room), status.invalidArgument, "an unknown mask");

  // 2 outputs with room for 3 alternatives take 80 bytes.
  const two = new InputBlock().pack({
    tokens: [0],
    positions: [0],
    sequences: [0],
    pageTables: [[0]],
    outputs: [outputRow(0), outputRow(0)],
  }).slice();
  for (const [size, expected] of [[80, status.ok], [79, status.invalidArgument]] as const) {
    const result = await border.run(step, two, new Uint8Array(size));
    assertEquals(result, expected, `results of ${size} bytes`);
  }
});

borderTest("numbers of a block up to their limits, and those next to them", async (
  border,
  random,
) => {
  const step = await recordStep(border, random);
  const room = new Uint8Array(ROOM);
  const wordOf = (struct: string, field: string) =>
    readHeader().structs.get(struct)!.fields.find(({ name }) => name === field)!.offset / 4;
  const header = (field: string) => wordOf("forge_step_header", field);
  const tokens = { tokens: [0, 1], positions: [0, 1], sequences: [0, 0], pageTables: [[0]] };
  const sampling = { ...greedy, bias: new Map([[3, 1]]), mask: Uint32Array.of(1) };
  const outputs = [outputRow(1, { sampling, history: [1, 2] })];
  const block = new InputBlock().pack({ ...tokens, outputs }).slice();
  const statusWith = (words: readonly (readonly [number, number])[], from = block) => {
    const changed = from.slice();
    for (const [word, value] of words) changed[word] = value;
    return border.run(step, changed, room);
  };
  // The record follows three arrays of 2 tokens, and a page, a slot, a length and a row.
  const record = HEADER_WORDS + 3 * 2 + 4;
  const limits: [field: string, most: number][] = [
    ["history_begin", 2],
    ["history_end", 2],
    ["bias_begin", 1],
    ["bias_end", 1],
    ["mask", 0],
    ["n_top", 3],
    ["forced_token", vocabulary - 1],
  ];
  for (const [field, most] of limits) {
    const word = record + wordOf("forge_sampling", field);
    assertEquals(await statusWith([[word, most]]), status.ok, `${field} is ${most}`);
    const above = await statusWith([[word, most + 1]]);
    assertEquals(above, status.invalidArgument, `${field} is ${most + 1}`);
  }
  const masks = [[MASK_NONE, 1, 0], [MASK_NONE, 0, 4], [MASK_FLOATS, 0, 4], [MASK_BITS, 1, 0]];
  for (const mask of masks) {
    const fields = ["attention_mask", "attention_mask_heads", "attention_mask_cols"];
    const words = fields.map((field, i) => [header(field), mask[i]!] as const);
    assertEquals(await statusWith(words), status.invalidArgument, `an attention mask ${mask}`);
  }
  const tree = new InputBlock().pack({ ...tokens, parents: [-1, 0], outputs: [] }).slice();
  assertEquals(await border.run(step, tree, room), status.ok);
  const parents = HEADER_WORDS + 3 * 2;
  const shorter = Int32Array.from(tree.filter((_, word) => word !== parents + 1));
  const one = [[header("n_parents"), 1]] as const;
  assertEquals(await statusWith(one, shorter), status.invalidArgument, "a parent for two tokens");
});
