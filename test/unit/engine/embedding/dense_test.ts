/** Layers after pooling: compared with plain sums, and read from each type of file. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { applyLayers, readDenseModule } from "../../../../src/engine/embedding/dense.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { float32Tensor, type TensorData } from "../../../../src/formats/tensor_data.ts";
import type { DenseLayer } from "../../../../src/models/causal_lm.ts";
import { Random } from "../../../support/random.ts";
import { encodeSafetensors } from "../../../support/safetensors_writer.ts";
import { TempFolder } from "../../../support/temp_folder.ts";

function assertNear(actual: ArrayLike<number>, expected: ArrayLike<number>, what: string): void {
  assertEquals(actual.length, expected.length);
  Array.from(expected).forEach((value, i) => {
    const error = Math.abs(actual[i]! - value);
    assert(error <= 1e-6 * Math.max(1, Math.abs(value)), `${what}: ${actual[i]}, not ${value}`);
  });
}

const INPUTS = [-20, -9, -2, -1, -0.5, 0, 0.5, 1, 2, 9, 20];

/** The normal distribution's probability below each input, from tables. */
const BELOW = [0, 0, 0.0227501319, 0.1586552539, 0.3085375387, 0.5]
  .concat([0.6914624613, 0.8413447461, 0.9772498681, 1, 1]);

const ACTIVATED: Readonly<Record<DenseLayer["activation"], readonly number[]>> = {
  identity: INPUTS,
  tanh: INPUTS.map((x) => 1 - 2 / (Math.exp(2 * x) + 1)),
  gelu: INPUTS.map((x, i) => x * BELOW[i]!),
  relu: INPUTS.map((x) => x < 0 ? 0 : x),
  silu: INPUTS.map((x) => x / (1 + Math.exp(-x))),
};

Deno.test("dense layers: each activation, from large negative to large positive numbers", () => {
  const n = INPUTS.length;
  const unit = Float32Array.from({ length: n * n }, (_, i) => Number(i % (n + 1) === 0));
  for (const [activation, expected] of Object.entries(ACTIVATED)) {
    const layer = { rows: n, cols: n, weight: () => unit, activation } as DenseLayer;
    assertNear(applyLayers([layer], Float32Array.from(INPUTS)), expected, activation);
  }
});

Deno.test("dense layers: sums, biases and norms of several layers", () => {
  const random = new Random("dense layers");
  const [rows, middle, cols] = [3, 5, 4];
  const numbers = (count: number) => Float32Array.from(random.normals(count, 1));
  const [first, second, bias] = [numbers(middle * cols), numbers(rows * middle), numbers(middle)];
  const norm = { weight: numbers(middle), bias: numbers(middle), eps: 1e-5 };
  const x = numbers(cols);
  const product = (weight: Float32Array, vector: readonly number[], nRows: number) =>
    Array.from(
      { length: nRows },
      (_, row) =>
        vector.reduce((sum, value, i) => sum + value * weight[row * vector.length + i]!, 0),
    );
  const inner = product(first, [...x], middle).map((sum, i) => Math.max(0, sum + bias[i]!));
  const mean = inner.reduce((sum, value) => sum + value, 0) / middle;
  const variance = inner.reduce((sum, value) => sum + (value - mean) ** 2, 0) / middle;
  const layers = (own: DenseLayer["norm"]): DenseLayer[] => [
    { rows: middle, cols, weight: () => first, bias, activation: "relu", norm: own },
    { rows, cols: middle, weight: () => second, activation: "identity" },
  ];
  assertNear(applyLayers(layers(undefined), x), product(second, inner, rows), "plain");
  for (const own of [norm, { ...norm, bias: undefined }]) {
    const normed = inner.map((value, i) =>
      (value - mean) / Math.sqrt(variance + norm.eps) * norm.weight[i]! + (own.bias?.[i] ?? 0)
    );
    assertNear(applyLayers(layers(own), x), product(second, normed, rows), "with a norm");
  }
});

Deno.test("dense modules: read from F32, F16 and BF16, and nothing else", () => {
  using folder = new TempFolder();
  Deno.mkdirSync(folder.at("2_Dense"));
  const module = {
    path: "2_Dense",
    inputs: 2,
    outputs: 3,
    bias: true,
    activation: "tanh",
  } as const;
  const values = [0, 1, -1.5, 2, 0.25, -8];
  const bias = float32Tensor("linear.bias", [3], Float32Array.of(1, 2, 3));
  const stored = (type: TensorData["type"], data: ArrayBufferView<ArrayBuffer>): TensorData => {
    return { name: "linear.weight", type, shape: [3, 2], data: new Uint8Array(data.buffer) };
  };
  const read = (...tensors: TensorData[]) => {
    folder.write("2_Dense/model.safetensors", encodeSafetensors({ tensors }));
    return readDenseModule(folder.path, module);
  };
  const bits = new Uint32Array(Float32Array.from(values).buffer);
  const weights = [
    stored("F32", Float32Array.from(values)),
    stored("F16", Float16Array.from(values)),
    stored("BF16", Uint16Array.from(bits, (word) => word >>> 16)),
  ];
  for (const weight of weights) {
    const layer = read(weight, bias);
    assertEquals([...layer.weight()], values, weight.type);
    assertEquals([layer.rows, layer.cols, layer.activation, ...layer.bias!], [
      3,
      2,
      "tanh",
      1,
      2,
      3,
    ]);
  }
  const [weight] = weights as [TensorData];
  const refused: [TensorData[], ForgeError["code"], string][] = [
    [[bias], "bad_model", 'has no tensor "linear.weight"'],
    [[weight], "bad_model", 'has no tensor "linear.bias"'],
    [[{ ...weight, shape: [2, 3] }, bias], "bad_model", "has the shape [2,3]; expected [3,2]"],
    [
      [stored("I32", Int32Array.from(values)), bias],
      "unsupported",
      "is stored as I32; forge reads",
    ],
  ];
  for (const [tensors, code, message] of refused) {
    assertEquals(assertThrows(() => read(...tensors), ForgeError, message).code, code);
  }
});
