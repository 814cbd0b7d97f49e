/**
 * Compares gpt-oss as published, with experts in MXFP4 (tensors of nibbles and of scales), with a
 * folder of the dequantised numbers.
 */
import { readSafetensors } from "../../../src/formats/safetensors.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import { load, type LoadOptions } from "../../../src/mod.ts";
import { Random } from "../../support/random.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { assertClose, readJson, type Reference } from "../reference_check.ts";
import type { Config } from "../tiny_variant.ts";

/** Values of the 16 four-bit codes: a sign, two bits of exponent, one of mantissa. */
const MAGNITUDES = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
const CODES = [...MAGNITUDES, ...MAGNITUDES.map((value) => -value)];

/** Elements that share a scale. */
const BLOCK = 32;

/** Returns random experts `[nExperts, rows, cols]`, stored as floats and in MXFP4. */
function randomExperts(name: string, nExperts: number, rows: number, cols: number) {
  const count = nExperts * rows * cols;
  const random = new Random(name);
  const codes = Uint8Array.from({ length: count }, () => Math.floor(random.uniform() * 16));
  const scales = Uint8Array.from(
    { length: count / BLOCK },
    () => 119 + Math.floor(random.uniform() * 5),
  );
  const values = Float32Array.from(codes, (code, i) => {
    return CODES[code]! * 2 ** (scales[Math.floor(i / BLOCK)]! - 127);
  });
  const transposed = Float32Array.from(values, (_, i) => {
    const row = i % rows;
    const col = Math.floor(i / rows) % cols;
    return values[(Math.floor(i / (rows * cols)) * rows + row) * cols + col]!;
  });
  const nibbles = Uint8Array.from({ length: count / 2 }, (_, i) => {
    return codes[2 * i]! | codes[2 * i + 1]! << 4;
  });
  const packed = [nExperts, rows, cols / BLOCK];
  return {
    floats: [float32Tensor(name, [nExperts, cols, rows], transposed)],
    mxfp4: [
      { name: `${name}_blocks`, type: "U8", shape: [...packed, BLOCK / 2], data: nibbles },
      { name: `${name}_scales`, type: "U8", shape: packed, data: scales },
    ] satisfies TensorData[],
  };
}

function tinyTensors(): TensorData[] {
  const path = sharedPath("models", "tiny", "gpt_oss", "model.safetensors");
  const file = Deno.readFileSync(path);
  return [...readSafetensors(path).tensors.values()].map(({ name, type, shape, offset, bytes }) => {
    return { name, type, shape, data: file.subarray(offset, offset + bytes) };
  });
}

const DEVICES: readonly { options: LoadOptions; tolerance: number; changes?: Config }[] = [
  { options: { device: "reference" }, tolerance: 1e-6 },
  {
    options: { device: "cpu" },
    // Here the CPU rounds activations to eight bits, as with all quantised weights.
    tolerance: 5e-2,
    // Of fewer experts than all, rounding could choose others.
    changes: { num_experts_per_tok: 4 },
  },
];

for (const { options, tolerance, changes } of DEVICES) {
  Deno.test({
    name: `experts in MXFP4 give the logits of their dequantised numbers on ${options.device}`,
    ignore: !sharedAvailable("models", "tiny"),
    fn: async () => {
      const from = (name: string) => sharedPath("models", "tiny", "gpt_oss", name);
      const isExpert = (name: string) => /experts\.(gate_up|down)_proj$/.test(name);
      const rest = tinyTensors().filter(({ name }) => !isExpert(name));
      const experts = tinyTensors().filter(({ name }) => isExpert(name)).map(({ name, shape }) => {
        const [nExperts = 0, cols = 0, rows = 0] = shape;
        return randomExperts(name, nExperts, rows, cols);
      });
      const config = readJson<Config>(from("config.json"));
      const files = {
        "tokenizer.json": readJson(from("tokenizer.json")),
        "tokenizer_config.json": readJson(from("tokenizer_config.json")),
      };
      const { prompt_ids } = readJson<Reference>(from("reference.json"));
      using folder = new TempFolder();
      const logitsOf = async (kind: "floats" | "mxfp4", added: Config) => {
        const path = folder.at(kind);
        writeModelFolder(path, { "config.json": { ...config, ...changes, ...added }, ...files }, [
          ...rest,
          ...experts.flatMap((expert): readonly TensorData[] => expert[kind]),
        ]);
        await using model = await load(path, options);
        return await model.logits(Int32Array.from(prompt_ids));
      };
      const packed = await logitsOf("mxfp4", { quantization_config: { quant_method: "mxfp4" } });
      assertClose(packed, await logitsOf("floats", {}), tolerance);
    },
  });
}
