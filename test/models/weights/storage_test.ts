/** Weights stored in several files, and in 16-bit types. */
import { assertEquals } from "@std/assert";
import { load, type LoadOptions } from "../../../src/mod.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import { assertClose, readJson, type Reference } from "../reference_check.ts";

const ignore = !sharedAvailable("models", "tiny");
const source = (family: string) => sharedPath("models", "tiny", family);
const reference = (family: string) => readJson<Reference>(`${source(family)}/reference.json`);

/** Returns the tensors of a model of `tiny`, each stored by `store`. */
function tensorsOf(
  family: string,
  store: (name: string, shape: readonly number[], values: Float32Array) => TensorData,
): TensorData[] {
  return [...openCheckpoint(source(family)).tensors.values()].map(
    ({ name, shape, file, offset, bytes }) => {
      const data = Deno.readFileSync(file).slice(offset, offset + bytes);
      return store(name, shape, new Float32Array(data.buffer));
    },
  );
}

function writeModel(
  family: string,
  folder: string,
  tensors: readonly TensorData[],
  shards = 1,
): void {
  const files = ["config.json", "tokenizer.json", "tokenizer_config.json"].map((name) =>
    [name, Deno.readTextFileSync(`${source(family)}/${name}`)] as const
  );
  writeModelFolder(folder, Object.fromEntries(files), tensors, shards);
}

async function logitsOf(
  family: string,
  folder: string,
  options: LoadOptions,
): Promise<Float32Array> {
  await using model = await load(folder, options);
  return await model.logits(Int32Array.from(reference(family).prompt_ids));
}

Deno.test({
  name: "a model in three files with an index gives the logits of one file",
  ignore,
  fn: async () => {
    using folder = new TempFolder();
    writeModel("llama", folder.path, tensorsOf("llama", float32Tensor), 3);
    const names = [...Deno.readDirSync(folder.path)].map(({ name }) => name);
    assertEquals(names.filter((name) => name.endsWith(".safetensors")).length, 3);
    const whole = await logitsOf("llama", source("llama"), { device: "reference" });
    assertEquals(await logitsOf("llama", folder.path, { device: "reference" }), whole);
  },
});

/** Rounds to bfloat16, ties to even, and returns the bits. */
function bfloat16Bits(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0]!;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

function fromBfloat16(bits: number): number {
  return new Float32Array(Uint32Array.of(bits << 16).buffer)[0]!;
}

/** Encodings of 16-bit types, the values read back, and the tolerance of the logits. */
const TYPES = {
  BF16: {
    encode: (values: Float32Array) => Uint16Array.from(values, bfloat16Bits),
    round: (value: number) => fromBfloat16(bfloat16Bits(value)),
    tolerance: 2e-2,
  },
  F16: {
    encode: (values: Float32Array) => Float16Array.from(values),
    round: (value: number) => Math.f16round(value),
    tolerance: 3e-3,
  },
} as const;

// Some weights of the second model are transposed: see latent_attention.ts.
const FAMILIES = ["llama", "deepseek_v2"];

for (const [type, { encode, round, tolerance }] of Object.entries(TYPES)) {
  for (const family of FAMILIES) {
    Deno.test({
      name: `a ${family} model in ${type} computes with exactly the rounded weights`,
      ignore,
      fn: async () => {
        using folder = new TempFolder();
        const stored = tensorsOf(family, (name, shape, values) => ({
          name,
          type: type as keyof typeof TYPES,
          shape,
          data: new Uint8Array(encode(values).buffer),
        }));
        writeModel(family, folder.at("stored"), stored);
        const rounded = tensorsOf(
          family,
          (name, shape, values) => float32Tensor(name, shape, values.map((value) => round(value))),
        );
        writeModel(family, folder.at("rounded"), rounded);
        const logits = await logitsOf(family, folder.at("stored"), { device: "reference" });
        const exact = await logitsOf(family, folder.at("rounded"), { device: "reference" });
        assertEquals(logits, exact);
        assertClose(logits, reference(family).logits_last, tolerance);
        const onCpu = await logitsOf(family, folder.at("stored"), { device: "cpu" });
        assertClose(onCpu, reference(family).logits_last, 2 * tolerance);
      },
    });
  }
}
