/**
 * A gated unit after the product of its gate and up: devices may compute both in one kernel, unless
 * the product is kept. The bits are the same.
 */
import type { NativeBackend } from "../../ffi/native_backend.ts";
import { deviceTest } from "../support/devices.ts";
import { assertSameBits, type Matrix, randomByteMatrix, randomMatrix } from "../support/matrix.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { f32Vector, randomWeight } from "../support/weights.ts";

const COLS = 256;
const UNITS = ["silu", "gelu_tanh", "gelu_erf", "clamped_swiglu"] as const;

/** Writes the parts of a weight to a file each. */
function writeParts(
  folder: TempFolder,
  name: string,
  weights: readonly ReturnType<typeof randomWeight>[],
): Parameters<NativeBackend["mapWeight"]>[0] {
  return weights.map(({ type, rows, bytes }, part) => {
    const file = folder.at(`${name}-${part}.bin`);
    Deno.writeFileSync(file, bytes);
    const shape = [rows, COLS];
    return { tensor: { name: file, type, shape, file, offset: 0, bytes: bytes.length } };
  });
}

/** A gated unit over a product with a weight, followed by another unit. */
function gated(
  device: NativeBackend,
  x: Matrix,
  weight: Parameters<NativeBackend["mapWeight"]>[0],
  options: { width: number; unit: typeof UNITS[number]; keepsProduct: boolean },
): Promise<Matrix> {
  const { width, unit, keepsProduct } = options;
  return runStep(device, tokenInputs(x.rows), (graph) => {
    const product = graph.recorder.matmul(graph.input(x), device.mapWeight(weight, COLS));
    if (keepsProduct) graph.recorder.keep(product);
    const hidden = graph.recorder.glu(product, width, unit);
    // A later operation must not reuse the memory of the kept value.
    graph.recorder.glu(hidden, width / 2, "silu");
    return { value: hidden, cols: width };
  });
}

deviceTest("a gated unit with its product, and without", async (device, random) => {
  using folder = new TempFolder();
  const cases = [
    { parts: [["Q4_0", 64], ["Q4_0", 64]], tokens: 1 },
    { parts: [["Q8_0", 2 * 96]], tokens: 9 },
    { parts: [["F16", 48], ["Q6_K", 48]], tokens: 300 },
    { parts: [["Q4_K", 176], ["F32", 176]], tokens: 8 },
    { parts: [["IQ2_XXS", 32], ["Q4_0", 32]], tokens: 3 },
    // Parts that end inside the gates, and widths that are not whole panels: two steps.
    { parts: [["Q4_0", 16], ["Q4_0", 112]], tokens: 5 },
    { parts: [["Q4_0", 40], ["F16", 40]], tokens: 70 },
    { parts: [["Q8_0", 32], ["Q8_0", 32], ["Q8_0", 64]], tokens: 20 },
  ] as const;
  for (const [i, { parts, tokens }] of cases.entries()) {
    const weights = parts.map(([type, rows]) => randomWeight(random, type, rows, COLS));
    const weight = writeParts(folder, `${i}`, weights);
    const x = randomByteMatrix(random, tokens, COLS, 1 / Math.sqrt(COLS));
    const width = weights.reduce((sum, { rows }) => sum + rows, 0) / 2;
    const unit = UNITS[i % UNITS.length]!;
    const together = await gated(device, x, weight, { width, unit, keepsProduct: false });
    const apart = await gated(device, x, weight, { width, unit, keepsProduct: true });
    assertSameBits(together, apart, `case ${i}`);
  }
});

deviceTest("a gated unit after a product that does more, or has another reader", async (
  device,
  random,
) => {
  const width = 192, tokens = 20;
  const stored = randomWeight(random, "Q8_0", 2 * width, COLS);
  const bias = f32Vector(random.normals(2 * width));
  const x = randomByteMatrix(random, tokens, COLS, 1 / Math.sqrt(COLS));
  const added = randomMatrix(random, tokens, 2 * width);
  const variants = ["alpha", "bias", "activation", "residual", "another reader"] as const;
  for (const variant of variants) {
    const compute = (keepsProduct: boolean) =>
      runStep(device, tokenInputs(tokens), (graph) => {
        const { recorder } = graph;
        const product = recorder.matmul(graph.input(x), graph.weight(stored), {
          alpha: variant === "alpha" ? 0.5 : undefined,
          bias: variant === "bias" ? graph.weight(bias) : undefined,
          activation: variant === "activation" ? "silu" : undefined,
          residual: variant === "residual" ? graph.input(added) : undefined,
        });
        if (keepsProduct) recorder.keep(product);
        const hidden = recorder.glu(product, width, "gelu_tanh");
        if (variant !== "another reader") return { value: hidden, cols: width };
        const pieces = [{ value: hidden, width }, { value: product, width: 2 * width }];
        return { value: recorder.gatherColumns(pieces, 1), cols: 3 * width };
      });
    assertSameBits(await compute(false), await compute(true), variant);
  }
});

/** A gated unit and the product with its results, of a prompt. */
function multiplied(
  device: NativeBackend,
  x: Matrix,
  weight: Parameters<NativeBackend["mapWeight"]>[0],
  keepsUnit: boolean,
): Promise<Matrix> {
  const width = x.cols / 2;
  return runStep(device, tokenInputs(x.rows), (graph) => {
    const hidden = graph.recorder.glu(graph.input(x), width, "silu");
    if (keepsUnit) graph.recorder.keep(hidden);
    const out = graph.recorder.matmul(hidden, device.mapWeight(weight, width));
    return { value: out, cols: weight.reduce((sum, { tensor }) => sum + tensor.shape[0]!, 0) };
  });
}

deviceTest("a gated unit with the product after it, and without", async (device, random) => {
  using folder = new TempFolder();
  const cases = [["BF16"], ["Q8_0"], ["Q4_K", "BF16"], ["F16", "F32"], ["IQ4_XS"]] as const;
  for (const [i, types] of cases.entries()) {
    const weights = types.map((type) => randomWeight(random, type, 24, COLS));
    const weight = writeParts(folder, `${i}`, weights);
    const x = randomByteMatrix(random, random.int(20, 70), 2 * COLS, 1 / Math.sqrt(COLS));
    const together = await multiplied(device, x, weight, false);
    assertSameBits(together, await multiplied(device, x, weight, true), `case ${i}`);
  }
});
