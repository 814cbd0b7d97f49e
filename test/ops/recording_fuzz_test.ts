/** Random calls that create weights and record steps give a status, never a crash or a hang. */
import { assert, assertEquals } from "@std/assert";
import { ENUMERATIONS } from "../../ffi/abi/numbers.ts";
import type { OperandDescription } from "../../ffi/native_recorder.ts";
import { InputBlock } from "../../ffi/step_block.ts";
import { cString, readText } from "../../ffi/status.ts";
import { ATTENTION_KERNELS, PRODUCT_NUMBERS } from "../../src/backend.ts";
import { matrixOf, randomMatrix } from "../support/matrix.ts";
import { borderTest, floatWord, oddWords, status } from "../support/raw_border.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { computableTypes, typeNumber } from "../support/weights.ts";

borderTest("random parts of weights", (border, random) => {
  using folder = new TempFolder();
  const { symbols: s, device } = border;
  const path = folder.write("weights.bin", random.bytes(5000));
  const size = new BigUint64Array(1);
  const name = new TextEncoder().encode(`${path}\0`);
  const file = border.make((out) => s.forge_file_map(device, name, out, size));
  assertEquals(size[0], 5000n);
  const numbers = [0n, 1n, 2n, 4n, 5n, 31n, 256n, 5000n, 2n ** 32n, 2n ** 63n, 2n ** 64n - 1n];
  const counts = new Map<number, number>();
  for (let i = 0; i < 10000; i++) {
    const nParts = random.int(0, 4);
    const parts = new DataView(new ArrayBuffer(24 * nParts));
    const cols = random.pick([1, 3, 32, 256, 256, 512, 0, 2 ** 28, 2 ** 31]);
    for (let part = 0; part < nParts; part++) {
      const at = 24 * part;
      parts.setUint32(at, random.chance(0.95) ? file : random.pick([...oddWords, device]), true);
      const type = typeNumber(random.pick(computableTypes));
      parts.setUint32(at + 4, random.chance(0.9) ? type : random.pick(oddWords), true);
      const offset = random.chance(0.8) ? BigInt(random.int(0, 4000)) : random.pick(numbers);
      parts.setBigUint64(at + 8, offset, true);
      const rows = random.chance(0.8) ? BigInt(random.int(1, 3)) : random.pick(numbers);
      parts.setBigUint64(at + 16, rows, true);
    }
    const out = new Uint32Array(1);
    const bytes = new Uint8Array(parts.buffer);
    const result = s.forge_weight_create(device, bytes, BigInt(nParts), BigInt(cols), out);
    counts.set(result, (counts.get(result) ?? 0) + 1);
    if (result !== status.ok) continue;
    const row = new Float32Array(cols);
    assertEquals(
      s.forge_weight_read(out[0]!, 0n, 1n, row, BigInt(row.byteLength)),
      status.ok,
    );
    s.forge_release(out[0]!);
  }
  const { ok, invalidArgument, badHandle, unsupported } = status;
  const known = [ok, invalidArgument, badHandle, unsupported];
  assertEquals([...counts.keys()].filter((result) => !known.includes(result as typeof ok)), []);
  assert(counts.get(ok)! > 1000 && counts.get(invalidArgument)! > 1000, Deno.inspect(counts));
});

borderTest("random recordings", async (border, random) => {
  const { symbols: s, device } = border;
  // A device alone rejects exchanges: see exchange_test.ts.
  const operations = [...border.operations().values()]
    .filter(({ name }) => !["sample", "all_reduce", "send", "receive"].includes(name));
  const weights = [[1, 8], [8, 8], [1, 16], [16, 8], [8, 16], [24, 8], [4, 8], [1, 4], [32, 8]]
    .concat([[8, 4], [1, 2], [4, 8]])
    .map(([rows = 0, cols = 0]) => border.upload(randomMatrix(random, rows, cols)));
  const bytes = new BigUint64Array(1);
  const caches = [[1, 8, 0], [2, 4, 0], [1, 8, 1]].map(([heads = 0, dim = 0, inKeys = 0]) =>
    border.make((out) => {
      const values = inKeys ? dim / 2 : dim;
      return s.forge_kv_create(device, 0, 6, 4, heads, dim, values, inKeys, out, bytes);
    })
  );
  const states = [[3, 8], [2, 2], [4, 1], [2, 4]].map(([rows = 0, cols = 0]) =>
    border.make((out) => s.forge_state_create(device, 3, rows, cols, out, bytes))
  );
  const orders = [[1, 8], [1, 16], [8, 8], [4, 8]].map(([rows = 0, cols = 0]) =>
    border.upload(matrixOf(rows, cols, (_, col) => cols - 1 - col))
  );
  const ranks = [[0, 0, 4], [0, 0, 8, 1, 2, 4], [1, 0, 16, 0, 8, 8]].map((numbers) =>
    border.upload(matrixOf(numbers.length / 3, 3, (row, col) => numbers[3 * row + col]!))
  );
  const isOneOf = (handles: readonly number[]) =>
    random.chance(0.97)
      ? random.pick(handles)
      : random.pick([0, ...weights, ...caches, ...oddWords]);
  const small = () => random.chance(0.95) ? random.int(1, 8) : random.pick(oddWords);
  const float = () => floatWord(random.pick([0, 1e-5, 0.5, 1, 2, random.chance(0.05) ? NaN : 1]));
  // Random operands rarely fit adapters, and recurrences still more rarely: what was not recorded
  // yet is tried more often, and every operation but recurrences is recorded.
  const missing = new Set(
    operations.filter(({ name }) => !["gated_delta_rule", "selective_scan"].includes(name)),
  );
  let ended = 0;
  for (let i = 0; i < 1200; i++) {
    const step = border.value((out) => s.forge_step_begin(device, 8, 4, 3, 4, out));
    let values = 0;
    const routes: number[] = [], products: number[] = [];
    const x = () =>
      random.chance(0.95) ? random.int(1, Math.max(1, values)) : random.pick(oddWords);
    const words = ({ name, kind, isOptional }: OperandDescription): number[] => {
      if (isOptional && random.chance(0.65)) return [0];
      if (name === "route" && routes.length > 0 && random.chance(0.8)) return [random.pick(routes)];
      if (name === "qkv" && products.length > 0) return [random.pick(products)];
      if (kind === "value") return [x()];
      if (name === "order") return [isOneOf(orders)];
      if (name === "ranks") return [isOneOf(ranks)];
      if (kind === "weight") return [isOneOf(weights)];
      if (kind === "kv") return [isOneOf(caches)];
      if (kind === "state") return [isOneOf(states)];
      if (kind === "f32") return [float()];
      if (kind === "pieces") {
        const pieces = Array.from(
          { length: 3 },
          () =>
            random.chance(0.5)
              ? [x(), small(), random.int(0, 2), random.int(0, 2), float()]
              : [0, 0, 0, 0, 0],
        );
        return pieces.flat();
      }
      // A table of positions may be shorter than the run.
      if (name === "period") return [random.int(1, 8)];
      // The same in all operations of a step and in its runs, or too few for any ranks.
      if (name === "n_adapters") return [random.chance(0.95) ? 2 : 0];
      if (name === "n_heads") return [random.pick([1, 2, 4, small()])];
      if (name === "n_experts") return [random.pick([4, 8, small()])];
      if (/groups/.test(name)) return [random.chance(0.7) ? 1 : small()];
      if (/activation|unit|layout|order|scores|normalize/.test(name)) {
        return [random.chance(0.95) ? random.int(0, 1) : random.pick(oddWords)];
      }
      return [small()];
    };
    for (let n = random.int(5, 60); n > 0; n--) {
      const operation = n % 10 === 0 || values === 0
        ? operations[0]!
        : random.pick(missing.size > 0 && random.chance(0.3) ? [...missing] : operations);
      const { name, operands } = operation;
      const [result, value] = border.tryRecord(step, name, operands.flatMap(words));
      assert([status.ok, status.invalidArgument, status.badHandle].includes(result as 0));
      if (result !== status.ok) continue;
      missing.delete(operation);
      values = value;
      if (name === "moe_route") routes.push(value);
      if (name === "matmul") products.push(value);
      if (random.chance(0.2)) assertEquals(s.forge_step_keep(step, values), status.ok);
    }
    if (random.chance(0.5)) border.tryRecord(step, "sample", [x(), random.int(0, 3)]);
    if (await s.forge_step_end(step, bytes) === status.ok) {
      ended++;
      const tokens = Array.from({ length: random.int(1, 8) }, (_, position) => position);
      const inputs = new InputBlock().pack({
        tokens: tokens.map(() => 0),
        positions: tokens,
        sequences: tokens.map(() => 0),
        pageTables: [[1, 4]],
        slots: [1],
        adapterScales: [1, 0.5],
        outputs: [],
      });
      assertEquals(await border.run(step, inputs), status.ok);
      for (let value = 0; value <= values; value++) {
        const row = new Float32Array(1 << 12);
        s.forge_step_read(step, value, 0n, 1n, row, BigInt(row.byteLength));
      }
    }
    assertEquals(s.forge_release(step), status.ok);
  }
  assert(ended > 600, `${ended} steps`);
  assertEquals([...missing].map(({ name }) => name), []);
});

borderTest("operations that the table lacks, and wrong numbers of operands", (border, random) => {
  const { symbols: s, device } = border;
  const weight = border.upload(randomMatrix(random, 4, 8));
  const step = border.make((out) => s.forge_step_begin(device, 1, 1, 1, 1, out));
  const message = () => readText((buffer, capacity) => s.forge_error_text(step, buffer, capacity));
  assertEquals(border.tryRecord(step, "embedding", [weight, 0])[0], status.invalidArgument);
  assertEquals(message(), 'unknown operation "embedding"');
  for (const words of [[], [weight], [weight, 0, 0], new Array(65).fill(0)]) {
    assertEquals(border.tryRecord(step, "embed", words)[0], status.invalidArgument);
  }
  assertEquals(border.tryRecord(step, "embed", [weight])[0], status.invalidArgument);
  assertEquals(message(), "embed: 1 words of operands; expected 2 (weight, scale)");
  const out = new Uint32Array(1);
  const words = Uint32Array.of(weight, 0);
  assertEquals(s.forge_record(step, null, words, 2n, out), status.invalidArgument);
  assertEquals(s.forge_record(step, cString("embed"), null, 2n, out), status.invalidArgument);
  assertEquals(s.forge_record(step, cString("embed"), words, 2n, null), status.invalidArgument);
});

borderTest("weights of unknown types", ({ symbols: s, device }) => {
  const bytes = new Uint8Array(1024), out = new Uint32Array(1);
  // Types that GGUF no longer has, and types past its last.
  for (const type of [4, 5, 36, 99, 255, 258, 0xffffffff]) {
    const upload = s.forge_weight_upload(device, type, 1n, 256n, bytes, 1024n, out);
    assertEquals(upload, status.unsupported, `type ${type}`);
  }
});

borderTest("members of enumerations are accepted, and other numbers refused", (border, random) => {
  const { symbols: s, device } = border;
  const weight = (rows: number, cols: number) => border.upload(randomMatrix(random, rows, cols));
  const bytes = new BigUint64Array(1);
  const kv = border.make((out) => s.forge_kv_create(device, 0, 1, 4, 1, 4, 4, 0, out, bytes));
  const state = border.make((out) => s.forge_state_create(device, 1, 8, 4, out, bytes));
  const one = floatWord(1), rate = weight(1, 2), matrix = weight(3, 16);
  // The operands before and after the enumeration; x has 16 columns, y 4.
  type Words = (x: number, y: number) => readonly number[];
  const operations: [name: string, enumeration: string, before: Words, after: number[]][] = [
    ["matmul", "activation", (x) => [x, matrix, 0, one], [0]],
    ["glu", "unit", (x) => [x, 8], []],
    ["rope_append", "rope_layout", (x) => [x, kv, 2, 0, 0, one, 0, 0], []],
    ["gated_delta_rule", "head_order", (x, y) => [x, y, rate, rate, state, 1], [one, one]],
    ["moe_route", "scores", (x) => [x, 1, 1, one], [0, 0, 1, 1, one]],
  ];
  const [x16, x4] = [weight(3, 16), weight(3, 4)];
  for (const [name, enumeration, before, after] of operations) {
    const members = Object.values(ENUMERATIONS[enumeration]!);
    for (const number of [0, 1, 2, 3, 4, 5, 6, 7, 0x80000000, 0xffffffff]) {
      const step = border.make((out) => s.forge_step_begin(device, 1, 1, 1, 1, out));
      const x = border.record(step, "embed", x16, one), y = border.record(step, "embed", x4, one);
      const [result] = border.tryRecord(step, name, [...before(x, y), number, ...after]);
      const expected = members.includes(number) ? status.ok : status.invalidArgument;
      assertEquals(result, expected, `${name}: ${enumeration} ${number}`);
    }
  }
});

borderTest("kinds of kernels past the last, and too many NUMA nodes", ({ symbols: s, device }) => {
  const settings = [
    ["attention", s.forge_set_attention, ATTENTION_KERNELS.length - 1],
    ["products", s.forge_set_products, PRODUCT_NUMBERS.length - 1],
    ["nodes", s.forge_set_nodes, 64],
  ] as const;
  for (const [what, set, last] of settings) {
    // A device without a choice accepts the default or says that it is unsupported.
    assert([status.ok, status.unsupported].includes(set(device, last) as 0), `${what} ${last}`);
    assertEquals(set(device, last + 1), status.invalidArgument, `${what} ${last + 1}`);
  }
});
