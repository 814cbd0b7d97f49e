/** Experts that folders stack in one tensor, compared with the plain order of their elements. */
import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import {
  type ExpertLayout,
  loadStackedBiases,
  loadStackedExperts,
} from "../../../src/models/weights/stacked_experts.ts";
import { WeightLoader } from "../../../src/models/weights/weight_loader.ts";
import { Random } from "../../support/random.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { FakeBackend } from "./fakes.ts";

interface Shape extends ExpertLayout {
  readonly nExperts: number;
  readonly rows: number;
  readonly cols: number;
}

const LAYOUTS: readonly ExpertLayout[] = [
  {},
  { isTransposed: true },
  { isInterleaved: true },
  { isTransposed: true, isInterleaved: true },
];

/** Loads the tensors of a folder, and returns the bytes of the weight if it was uploaded. */
function load<T>(
  tensors: readonly TensorData[],
  read: (weights: WeightLoader) => T,
  config: object = {},
  values: Record<string, number[]> = {},
): { readonly result: T; readonly bytes: Uint8Array | undefined } {
  using folder = new TempFolder();
  const files = { "config.json": { model_type: "llama", ...config } };
  writeModelFolder(folder.path, files, tensors);
  const backend = new FakeBackend(values);
  const result = read(WeightLoader.for(backend, openCheckpoint(folder.path)));
  const [uploaded] = backend.uploaded;
  return { result, bytes: uploaded && new Uint8Array(uploaded.buffer) };
}

/** Place of a stored element `[expert, row, col]` of a layout. */
function placeOf({ rows, cols, isTransposed, isInterleaved }: Shape) {
  return (expert: number, row: number, col: number) => {
    // Gate and up are the halves of the rows.
    const own = isInterleaved ? row % (rows / 2) * 2 + Number(row >= rows / 2) : row;
    return expert * rows * cols + (isTransposed ? col * rows + own : own * cols + col);
  };
}

/** Calls `at` for each element in the order of a loaded weight. */
function inOrder<T>(
  { nExperts, rows, cols }: Shape,
  at: (e: number, row: number, col: number) => T,
) {
  return Array.from({ length: nExperts * rows * cols }, (_, i) => {
    return at(Math.floor(i / (rows * cols)), Math.floor(i / cols) % rows, i % cols);
  });
}

const storedShape = ({ nExperts, rows, cols, isTransposed }: Shape) =>
  isTransposed ? [nExperts, cols, rows] : [nExperts, rows, cols];

Deno.test("experts in floats are loaded from every layout", () => {
  const random = new Random("stacked floats");
  for (const [type, size] of [["F32", 4], ["BF16", 2], ["F16", 2]] as const) {
    for (const layout of LAYOUTS) {
      const shape = { nExperts: 3, rows: 6, cols: 10, ...layout };
      const data = random.bytes(3 * 6 * 10 * size);
      const tensors = [{ name: "model.a", type, shape: storedShape(shape), data }];
      const { result, bytes } = load(tensors, (weights) => loadStackedExperts(weights, "a", shape));
      assertEquals([result.rows, result.cols], [18, 10]);
      const isMapped = !layout.isTransposed && !layout.isInterleaved;
      assertEquals(bytes === undefined, isMapped);
      if (isMapped) continue;
      const place = placeOf(shape);
      const expected = inOrder(shape, (...at) => {
        return [...data.subarray(place(...at) * size, (place(...at) + 1) * size)];
      });
      assertEquals([...bytes!], expected.flat());
    }
  }
});

Deno.test("biases of alternating rows are put in order", () => {
  const values = Array.from({ length: 18 }, (_, i) => i);
  const tensors = [float32Tensor("model.a_bias", [3, 6], values)];
  const shape = { nExperts: 3, rows: 6, cols: 1, isInterleaved: true };
  const { result, bytes } = load(
    tensors,
    (weights) => loadStackedBiases(weights, "a", shape),
    {},
    { "model.a_bias": values },
  );
  assertEquals([result.rows, result.cols], [3, 6]);
  const expert = [0, 2, 4, 1, 3, 5];
  const expected = [0, 6, 12].flatMap((first) => expert.map((row) => first + row));
  assertEquals([...new Float32Array(bytes!.buffer)], expected);
});

/** Encodes numbers that every type of scales holds exactly. */
const ENCODED = {
  F32: (values: Float32Array) => values.slice(),
  F16: (values: Float32Array) => Float16Array.from(values),
  BF16: (values: Float32Array) => {
    return Uint16Array.from(new Uint32Array(values.slice().buffer), (bits) => bits >>> 16);
  },
} as const;

/** Scales of 8-bit floats: their shape, and rows and columns of the tensor that share one. */
type Scales = readonly [shape: readonly number[], rows: number, cols: number];

Deno.test("experts in 8-bit floats keep their codes, each block with its scale", () => {
  const random = new Random("stacked FP8");
  const types = ["F32", "F16", "BF16", "F16"] as const;
  let turn = 0;
  for (const layout of LAYOUTS.slice(1)) {
    const shape = { nExperts: 2, rows: 64, cols: 96, ...layout };
    const stored = storedShape(shape), [, rows = 0, cols = 0] = stored;
    const scales: Scales[] = layout.isTransposed
      ? [[[2, 1, cols], rows, 1], [[2, rows / 32, cols / 32], 32, 32]]
      : [[[2, rows, 1], 1, cols], [[2, rows / 32, cols / 32], 32, 32]];
    for (const [scaleShape, groupRows, groupCols] of [...scales, [[1], 2 * rows, cols] as Scales]) {
      const codes = random.bytes(2 * 64 * 96);
      const count = scaleShape.reduce((product, size) => product * size, 1);
      const factors = Float32Array.from({ length: count }, () => 2 ** random.int(-6, 6));
      const type = types[turn++ % types.length]!;
      const data = new Uint8Array(ENCODED[type](factors).buffer);
      const tensors = [
        { name: "model.a", type: "F8_E4M3", shape: stored, data: codes } as const,
        { name: "model.a_scale", type, shape: scaleShape, data },
      ];
      const settings = { quant_method: "fp8", weight_block_size: [32, 32] };
      const { bytes } = load(tensors, (weights) => loadStackedExperts(weights, "a", shape), {
        quantization_config: settings,
      });
      const place = placeOf(shape);
      const places = inOrder(shape, place);
      const view = new DataView(bytes!.buffer);
      for (let block = 0; block < places.length / 32; block++) {
        const own = places.slice(32 * block, 32 * (block + 1));
        const from = own.map((at) => codes[at]!);
        assertEquals([...bytes!.subarray(36 * block + 4, 36 * (block + 1))], from);
        const row = Math.floor(own[0]! / cols), col = own[0]! % cols;
        const group = Math.floor(row / groupRows) * Math.ceil(cols / groupCols) +
          Math.floor(col / groupCols);
        // A code of NaN makes the block NaN.
        const hasNan = from.some((code) => code % 128 === 127);
        const scale = view.getFloat32(36 * block, true);
        assertEquals(scale, hasNan ? NaN : factors[group]!, `${scaleShape} ${block}`);
      }
    }
  }
});

Deno.test("scales of other groups of 8-bit floats are refused", () => {
  const tensors = [
    { name: "model.a", type: "F8_E4M3", shape: [2, 64, 96], data: new Uint8Array(2 * 64 * 96) },
    float32Tensor("model.a_scale", [2, 4, 2], new Float32Array(16)),
  ] as const;
  const settings = { quant_method: "fp8", weight_block_size: [16, 48] };
  const shape = { nExperts: 2, rows: 64, cols: 96, isInterleaved: true };
  const refused = () =>
    load(tensors, (weights) => loadStackedExperts(weights, "a", shape), {
      quantization_config: settings,
    });
  assertThrows(refused, ForgeError, "are for 48 columns each; expected whole rows, or multiples");
});

Deno.test("experts in MXFP4 have blocks of a scale and 32 elements", () => {
  const random = new Random("stacked MXFP4");
  for (const isInterleaved of [false, true]) {
    const shape = { nExperts: 3, rows: 4, cols: 64, isInterleaved };
    const codes = Array.from({ length: 3 * 4 * 64 }, () => random.int(0, 15));
    const scales = random.bytes(codes.length / 32);
    const nibbles = Uint8Array.from(
      { length: codes.length / 2 },
      (_, i) => codes[2 * i]! | codes[2 * i + 1]! << 4,
    );
    const tensors = [
      { name: "model.a_blocks", type: "U8", shape: [3, 4, 2, 16], data: nibbles },
      { name: "model.a_scales", type: "U8", shape: [3, 4, 2], data: scales },
    ] as const;
    const { bytes } = load(tensors, (weights) => loadStackedExperts(weights, "a", shape));
    const places = inOrder(shape, placeOf(shape));
    const expected = Array.from({ length: places.length / 32 }, (_, block) => {
      const own = places.slice(32 * block, 32 * (block + 1));
      const pairs = Array.from({ length: 16 }, (_, i) => {
        return codes[own[i]!]! | codes[own[i + 16]!]! << 4;
      });
      return [scales[own[0]! / 32]!, ...pairs];
    });
    assertEquals([...bytes!], expected.flat());
  }
  const odd = [
    { name: "model.a_blocks", type: "U8", shape: [1, 1, 1, 16], data: new Uint8Array(16) },
  ] as const;
  const shape = { nExperts: 1, rows: 1, cols: 48 };
  const refused = () => load(odd, (weights) => loadStackedExperts(weights, "a", shape));
  assertThrows(refused, ForgeError, "has 48 columns; valid is a multiple of 32");
});
