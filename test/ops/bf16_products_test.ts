/** Products of BF16 and F16 weights on processors that multiply BF16. */
import { assert, assertThrows } from "@std/assert";
import type { NativeBackend } from "../../ffi/native_backend.ts";
import type { ProductNumbers } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { devices, openDevice, referenceDevice } from "../support/devices.ts";
import {
  assertClose,
  assertSameBits,
  type Matrix,
  matrixOfRows,
  randomMatrix,
  rowOf,
  rowsOf,
} from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { randomWeight, type TestWeight } from "../support/weights.ts";
import { products } from "./plain_matmul.ts";

const bf16Device = devices.find(({ name }) => name === "cpu:avx512_bf16");
const floatDevice = devices.find(({ name }) => name === "cpu:avx2");
const ignore = bf16Device === undefined;
if (ignore) console.error("skipping products of BF16: no AVX512-BF16");

/**
 * The shapes have odd columns, partial panels, more than a chunk of columns and a tile of tokens.
 */
const SHAPES = [[1, 3, 5], [2, 33, 31], [5, 70, 257], [9, 129, 1030], [300, 40, 64]] as const;

function open(numbers: ProductNumbers): NativeBackend {
  const device = openDevice(bf16Device!);
  device.setProducts(numbers);
  return device;
}

function multiply(device: NativeBackend, x: Matrix, weight: TestWeight): Promise<Matrix> {
  return runStep(device, tokenInputs(x.rows), (graph) => ({
    value: graph.recorder.matmul(graph.input(x), graph.weight(weight)),
    cols: weight.rows,
  }));
}

/** The number nearest to `x` among those of BF16, ties to even. */
function roundToBf16(x: number): number {
  const words = new Uint32Array(new Float32Array([x]).buffer);
  const word = words[0]!;
  words[0] = (word + 0x7fff + (word >>> 16 & 1)) & 0xffff0000;
  return new Float32Array(words.buffer)[0]!;
}

function mapped(matrix: Matrix, round: (x: number) => number): Matrix {
  return { ...matrix, data: matrix.data.map(round) };
}

/** The products in double of numbers rounded by `round`. */
function plain(x: Matrix, weight: TestWeight, round: (x: number) => number): Matrix {
  using reference = openDevice(referenceDevice);
  const { type, rows, cols, bytes } = weight;
  const stored = reference.uploadWeight(type, rows, cols, bytes);
  const values = mapped({
    rows,
    cols,
    data: Float32Array.from(reference.readWeight(stored, 0, rows)),
  }, round);
  const rounded = mapped(x, round);
  return matrixOfRows(x.rows, rows, (token) => products(rowOf(rounded, token), values));
}

const CASES = [
  { numbers: "auto", type: "BF16", round: roundToBf16 },
  { numbers: "auto", type: "F16", round: Math.fround },
  { numbers: "f32", type: "BF16", round: Math.fround },
  { numbers: "bf16", type: "BF16", round: roundToBf16 },
  { numbers: "bf16", type: "F16", round: roundToBf16 },
  { numbers: "bf16", type: "F32", round: Math.fround },
] as const;

for (const { numbers, type, round } of CASES) {
  Deno.test({
    name: `products "${numbers}" of ${type} weights round what they should, alone and in a batch`,
    ignore,
    async fn() {
      const random = new Random(`products ${numbers} ${type}`);
      using device = open(numbers);
      for (const [tokens, rows, cols] of SHAPES) {
        const x = randomMatrix(random, tokens, cols, 1 / Math.sqrt(cols));
        const weight = randomWeight(random, type, rows, cols);
        const actual = await multiply(device, x, weight);
        const tolerance = { absolute: 4e-6, relative: 4e-6 };
        assertClose(actual, plain(x, weight, round), tolerance, `[${tokens}, ${rows}, ${cols}]`);
        const token = random.int(0, tokens - 1);
        assertSameBits(
          await multiply(device, rowsOf(x, token, token + 1), weight),
          rowsOf(actual, token, token + 1),
          `token ${token} alone`,
        );
      }
    },
  });
}

// Tokens of an expert are not neighbours, so that some are copied chunk by chunk.
Deno.test({
  name: "products of experts and heads in BF16 have the same bits alone and in a batch",
  ignore,
  async fn() {
    const random = new Random("experts in BF16");
    const cols = 300, rows = 70, nExperts = 3, topK = 2, nHeads = 2, tokens = 40;
    const experts = randomWeight(random, "BF16", nExperts * rows, cols);
    const router = randomWeight(random, "F32", nExperts, cols);
    const heads = randomWeight(random, "BF16", nHeads * rows, cols / nHeads);
    using device = open("auto");
    const compute = (x: Matrix, ofHeads: boolean) =>
      runStep(device, tokenInputs(x.rows), (graph) => {
        const { recorder } = graph;
        const value = graph.input(x);
        if (ofHeads) {
          return {
            value: recorder.headMatmul(value, graph.weight(heads), nHeads),
            cols: nHeads * rows,
          };
        }
        const logits = recorder.matmul(value, graph.weight(router));
        const route = recorder.moeRoute(logits, { topK, normalize: true });
        const product = recorder.moeMatmul(value, route, graph.weight(experts), nExperts);
        return { value: product, cols: topK * rows };
      });
    const x = randomMatrix(random, tokens, cols);
    for (const ofHeads of [false, true]) {
      const all = await compute(x, ofHeads);
      for (let token = 0; token < tokens; token++) {
        const alone = await compute(rowsOf(x, token, token + 1), ofHeads);
        assertSameBits(rowsOf(all, token, token + 1), alone, `token ${token}`);
      }
    }
  },
});

Deno.test({
  name: "products are chosen before the first step",
  ignore,
  async fn() {
    const random = new Random("products");
    using device = open("auto");
    await multiply(device, randomMatrix(random, 1, 4), randomWeight(random, "BF16", 2, 4));
    assertThrows(() => device.setProducts("f32"), ForgeError, "before the first step");
  },
});

Deno.test({
  name: "products of BF16 need their instructions",
  ignore: floatDevice === undefined,
  fn() {
    using device = openDevice(floatDevice!);
    device.setProducts("f32");
    assertThrows(() => device.setProducts("bf16"), ForgeError, 'kernels "avx2" have no products');
    using reference = openDevice(referenceDevice);
    const error = assertThrows(() => reference.setProducts("f32"), ForgeError);
    assert(error.code === "unsupported");
  },
});
