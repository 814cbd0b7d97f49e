/**
 * Norm, product, rotation and the storing of keys and values: devices may compute them in one
 * kernel, unless the product is kept. The bits are the same.
 */
import type { KvShape, RopeLayout } from "../../src/backend.ts";
import type { NativeBackend } from "../../ffi/native_backend.ts";
import { deviceTest } from "../support/devices.ts";
import { assertSameBits, type Matrix, randomByteMatrix } from "../support/matrix.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { f32Vector, randomWeight } from "../support/weights.ts";

const COLS = 256, PAGE_TOKENS = 16;

/** A layer's projections: queries, keys and values, each in a part of one type or in one part. */
interface Case {
  readonly types: readonly ("Q4_0" | "Q4_K" | "Q6_K" | "Q8_0" | "F16")[];
  readonly nHeads: number;
  readonly nKvHeads: number;
  readonly headDim: number;
  readonly rotated: number;
  readonly layout: RopeLayout;
  readonly cache: KvShape["type"];
  readonly tokens: number;
}

const CASES: readonly Case[] = [
  {
    ...{ types: ["Q4_0"], nHeads: 6, nKvHeads: 2, headDim: 16, rotated: 16, tokens: 1 },
    ...{ layout: "half", cache: "F16" },
  },
  {
    ...{ types: ["Q4_K", "Q4_K", "Q6_K"], nHeads: 4, nKvHeads: 2, headDim: 32, rotated: 20 },
    ...{ layout: "half", cache: "F32", tokens: 5 },
  },
  {
    ...{ types: ["Q8_0", "F16", "Q8_0"], nHeads: 3, nKvHeads: 3, headDim: 10, rotated: 8 },
    ...{ layout: "interleaved", cache: "BF16", tokens: 9 },
  },
  {
    ...{ types: ["F16", "F16", "F16"], nHeads: 2, nKvHeads: 1, headDim: 64, rotated: 0 },
    ...{ layout: "half", cache: "F16", tokens: 16 },
  },
  {
    ...{ types: ["Q4_0"], nHeads: 2, nKvHeads: 1, headDim: 64, rotated: 64, tokens: 3 },
    ...{ layout: "half", cache: "Q8_0" },
  },
];

/** Queries, or the result of attention, which reads the keys and values. */
function projected(
  device: NativeBackend,
  options: Case & {
    readonly x: Matrix;
    readonly weight: Parameters<NativeBackend["mapWeight"]>[0];
    readonly vectors: { readonly norm: Float32Array; readonly bias: Float32Array };
    readonly keepsProduct: boolean;
    readonly attends: boolean;
  },
): Promise<Matrix> {
  const { x, weight, vectors, nHeads, nKvHeads, headDim, rotated } = options;
  return runStep(device, tokenInputs(x.rows), (graph) => {
    const { recorder } = graph;
    const frequencies = Float32Array.from({ length: rotated / 2 }, (_, i) => 0.7 ** i);
    const rope = rotated > 0
      ? recorder.ropeTable(graph.weight(f32Vector(frequencies)), 1)
      : undefined;
    const kv = graph.kv({
      ...{ type: options.cache, nPages: 1, pageTokens: PAGE_TOKENS, nKvHeads },
      ...{ kHeadDim: headDim, vHeadDim: headDim },
    });
    const normed = recorder.rmsNorm(graph.input(x), graph.weight(f32Vector(vectors.norm)), {
      eps: 1e-5,
    });
    const bias = graph.weight(f32Vector(vectors.bias));
    const product = recorder.matmul(normed, device.mapWeight(weight, COLS), { bias });
    if (options.keepsProduct) recorder.keep(product);
    const q = recorder.ropeAppend(product, kv, {
      ...{ nHeads, eps: 1e-5, rope, ropeLayout: options.layout },
    });
    const out = options.attends ? recorder.attention(q, kv, { nHeads, scale: 0.1 }) : q;
    return { value: out, cols: nHeads * headDim };
  });
}

deviceTest("queries, keys and values with their product, and without", async (device, random) => {
  using folder = new TempFolder();
  for (const [i, each] of CASES.entries()) {
    const { types, nHeads, nKvHeads, headDim } = each;
    const heads = types.length === 1 ? [nHeads + 2 * nKvHeads] : [nHeads, nKvHeads, nKvHeads];
    const weight = heads.map((count, part) => {
      const { type, rows, bytes } = randomWeight(random, types[part]!, count * headDim, COLS);
      const file = folder.at(`${i}-${part}.bin`);
      Deno.writeFileSync(file, bytes);
      const tensor = { name: file, type, shape: [rows, COLS], file, offset: 0 };
      return { tensor: { ...tensor, bytes: bytes.length } };
    });
    const x = randomByteMatrix(random, each.tokens, COLS, 1 / Math.sqrt(COLS));
    const rows = headDim * (nHeads + 2 * nKvHeads);
    const vectors = { norm: random.normals(COLS), bias: random.normals(rows) };
    for (const attends of [false, true]) {
      const options = { ...each, x, weight, vectors, attends };
      const together = await projected(device, { ...options, keepsProduct: false });
      const apart = await projected(device, { ...options, keepsProduct: true });
      assertSameBits(together, apart, `case ${i}, ${attends ? "attention" : "queries"}`);
    }
  }
});
