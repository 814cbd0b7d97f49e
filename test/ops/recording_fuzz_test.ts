/** Random calls that make weights and record steps: a status each, never a crash or a hang. */
import { assert, assertEquals } from "@std/assert";
import { InputBlock } from "../../ffi/step_block.ts";
import { TENSOR_TYPES, type TensorTypeInfo } from "../../src/formats/tensor_info.ts";
import { randomMatrix } from "../support/matrix.ts";
import { borderTest, oddWords, status } from "../support/raw_border.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { computableTypes } from "../support/weights.ts";

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
      const { ggmlId, nativeId }: TensorTypeInfo = TENSOR_TYPES[random.pick(computableTypes)];
      const type = (ggmlId ?? nativeId)!;
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
  const weights = [[1, 8], [8, 8], [1, 16], [16, 8], [8, 16], [24, 8], [4, 8], [1, 4], [32, 8]]
    .map(([rows = 0, cols = 0]) => border.upload(randomMatrix(random, rows, cols)));
  const pageBytes = new BigUint64Array(1);
  const caches = [[1, 8, 0], [2, 4, 0], [1, 8, 1]].map(([heads = 0, dim = 0, inKeys = 0]) =>
    border.make((out) => {
      const values = inKeys ? dim / 2 : dim;
      return s.forge_kv_create(device, 0, 6, 4, heads, dim, values, inKeys, out, pageBytes);
    })
  );
  let ended = 0, recorded = 0;
  for (let i = 0; i < 1000; i++) {
    const step = new Uint32Array(1), out = new Uint32Array(1);
    assertEquals(s.forge_step_begin(device, 8, 4, 3, 4, step), status.ok);
    let values = 0;
    const w = () =>
      random.chance(0.97) ? random.pick(weights) : random.pick([0, ...caches, ...oddWords]);
    const optional = () => random.chance(0.7) ? 0 : w();
    const kv = () => random.chance(0.97) ? random.pick(caches) : random.pick([0, ...weights]);
    const x = () =>
      random.chance(0.95) ? random.int(1, Math.max(1, values)) : random.pick(oddWords);
    const residual = () => random.chance(0.6) ? 0 : x();
    const small = () => random.chance(0.95) ? random.int(1, 8) : random.pick(oddWords);
    const enumValue = () => random.chance(0.95) ? random.int(0, 3) : random.pick(oddWords);
    const float = () => random.pick([0, 1e-5, 0.5, 1, 2, random.chance(0.05) ? NaN : 1]);
    const h = step[0]!;
    const operations: (() => number)[] = [
      () => s.forge_embed(h, w(), float(), out),
      () => s.forge_rms_norm(h, x(), w(), float(), float(), residual(), out),
      () => s.forge_layer_norm(h, x(), w(), optional(), float(), out),
      () => s.forge_matmul(h, x(), w(), optional(), float(), enumValue(), residual(), out),
      () => s.forge_head_matmul(h, x(), w(), small(), out),
      () => s.forge_rope_table(h, w(), float(), out),
      () =>
        s.forge_rope_append(
          h,
          x(),
          kv(),
          small(),
          optional(),
          optional(),
          float(),
          float(),
          residual(),
          enumValue(),
          out,
        ),
      () =>
        s.forge_attention(
          h,
          x(),
          kv(),
          small(),
          float(),
          random.int(0, 5),
          float(),
          optional(),
          out,
        ),
      () => s.forge_glu(h, x(), small(), enumValue(), out),
      () => {
        const pieces = new Uint32Array(5 * random.int(1, 3));
        for (let i = 0; i < pieces.length; i += 5) {
          pieces.set([x(), small(), random.int(0, 2), random.int(0, 2)], i);
          new Float32Array(pieces.buffer)[i + 4] = float();
        }
        const bytes = new Uint8Array(pieces.buffer);
        return s.forge_gather_columns(h, bytes, BigInt(pieces.length / 5), random.int(1, 2), out);
      },
      () =>
        s.forge_moe_route(
          h,
          x(),
          small(),
          random.int(0, 1),
          float(),
          random.int(0, 1),
          optional(),
          optional(),
          random.chance(0.7) ? 1 : small(),
          random.chance(0.7) ? 1 : small(),
          out,
        ),
      () => s.forge_moe_matmul(h, x(), x(), w(), optional(), random.pick([4, 8, small()]), out),
      () => s.forge_moe_combine(h, x(), x(), residual(), out),
      () => s.forge_gather_outputs(h, x(), out),
      () => s.forge_softcap(h, x(), float(), out),
      () => s.forge_clamp(h, x(), float(), out),
    ];
    for (let n = random.int(1, 40); n > 0; n--) {
      const result = n % 10 === 0 ? operations[0]!() : random.pick(operations)();
      assert([status.ok, status.invalidArgument, status.badHandle].includes(result as 0));
      if (result !== status.ok) continue;
      recorded++;
      values = out[0]!;
      if (random.chance(0.2)) assertEquals(s.forge_step_keep(h, values), status.ok);
    }
    if (random.chance(0.5)) s.forge_sample(h, x(), random.int(0, 3));
    if (await s.forge_step_end(h, new BigUint64Array(1)) === status.ok) {
      ended++;
      const tokens = Array.from({ length: random.int(1, 8) }, (_, position) => position);
      const inputs = new InputBlock().pack({
        tokens: tokens.map(() => 0),
        positions: tokens,
        sequences: tokens.map(() => 0),
        pageTables: [[1, 4]],
        outputs: [],
      });
      assertEquals(await border.run(h, inputs), status.ok);
      for (let value = 0; value <= values; value++) {
        const row = new Float32Array(1 << 12);
        s.forge_step_read(h, value, 0n, 1n, row, BigInt(row.byteLength));
      }
    }
    assertEquals(s.forge_release(h), status.ok);
  }
  assert(ended > 500 && recorded > 5000, `${ended} steps of ${recorded} operations`);
});
