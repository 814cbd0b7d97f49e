/**
 * Compares folders with packed matrices with folders of the unpacked numbers: 8-bit floats with
 * each kind of scales, NVFP4, and 4-bit integers of GPTQ, AWQ and compressed-tensors.
 */
import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import { syntheticTokenizer } from "../../../src/bench/synthetic/tokenizer.ts";
import { load, quantize } from "../../../src/mod.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import { ROOT } from "../../support/checkout.ts";
import { devices } from "../../support/devices.ts";
import { encodeGguf } from "../../support/parts.ts";
import { Random } from "../../support/random.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import { generated, generatedTensors } from "../families/generated.ts";
import { assertClose, readJson } from "../reference_check.ts";

/** The packed tensors of a matrix, and its numbers, row by row. */
interface Packed {
  readonly tensors: readonly TensorData[];
  readonly values: Float32Array;
}

interface Format {
  readonly name: string;
  readonly settings: Readonly<Record<string, unknown>>;
  /** @param base the name of a matrix without `.weight` */
  readonly pack: (base: string, rows: number, cols: number) => Packed;
}

/** Rows and columns per group of scales; divides the projections of the tiny model. */
const GROUP = 32;

const ofBytes = (array: Float32Array | Int32Array) => new Uint8Array(array.buffer.slice(0));

/** Decodes an E4M3 code. */
function e4m3(code: number): number {
  const exponent = code >> 3 & 15, fraction = code & 7;
  const value = exponent === 0 ? fraction / 8 * 2 ** -6 : (1 + fraction / 8) * 2 ** (exponent - 7);
  return code >= 128 ? -value : value;
}

/** Packs random 8-bit floats with `scaleRows x scaleCols` scales that are exact in F32 and BF16. */
function f8(
  base: string,
  rows: number,
  cols: number,
  suffix: string,
  [scaleRows, scaleCols]: readonly [number, number],
  type: "F32" | "BF16" = "F32",
): Packed {
  const random = new Random(base, 1);
  const codes = Uint8Array.from({ length: rows * cols }, () => {
    return 40 + random.int(0, 30) + 128 * random.int(0, 1);
  });
  const scales = Float32Array.from({ length: scaleRows * scaleCols }, () => {
    return random.int(128, 255) / 256 / Math.sqrt(4 ** Math.round(Math.log2(cols) / 2));
  });
  const scaleBytes = type === "F32"
    ? ofBytes(scales)
    : new Uint8Array(Uint16Array.from(new Uint32Array(scales.buffer), (bits) => bits >> 16).buffer);
  const groupRows = scaleRows === 1 ? rows : scaleRows === rows ? 1 : GROUP;
  const groupCols = scaleCols === 1 ? cols : GROUP;
  const values = Float32Array.from(codes, (code, i) => {
    const row = Math.floor(i / cols / groupRows), col = Math.floor(i % cols / groupCols);
    return e4m3(code) * scales[row * scaleCols + col]!;
  });
  const shape = [scaleRows, scaleCols];
  return {
    values,
    tensors: [
      { name: `${base}.weight`, type: "F8_E4M3", shape: [rows, cols], data: codes },
      { name: `${base}.${suffix}`, type, shape, data: scaleBytes },
      { name: `${base}.input_scale`, type: "F32", shape: [1], data: new Uint8Array(4) },
    ],
  };
}

/** The numbers of E2M1 without signs. */
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

/** Packs random numbers in NVFP4 as compressed-tensors ("divided") or Model Optimizer does. */
function nvfp4(base: string, rows: number, cols: number, isDivided: boolean): Packed {
  const random = new Random(base, 1);
  const codes = Uint8Array.from({ length: rows * cols }, () => random.int(0, 15));
  const scales = Uint8Array.from({ length: rows * cols / 16 }, () => 40 + random.int(0, 30));
  const whole = (0.5 + random.uniform()) / Math.sqrt(cols) / 16;
  const factor = Float32Array.of(isDivided ? 1 / whole : whole);
  const values = Float32Array.from(codes, (code, i) => {
    const value = e4m3(scales[i >> 4]!) * E2M1[code % 8]! * (code < 8 ? 1 : -1);
    return isDivided ? value / factor[0]! : value * factor[0]!;
  });
  const bytes = Uint8Array.from(
    { length: codes.length / 2 },
    (_, i) => codes[2 * i]! | codes[2 * i + 1]! << 4,
  );
  const names = isDivided
    ? ["weight_packed", "weight_global_scale", "input_global_scale"]
    : ["weight", "weight_scale_2", "input_scale"];
  const shape = isDivided ? [1] : [];
  return {
    values,
    tensors: [
      { name: `${base}.${names[0]}`, type: "U8", shape: [rows, cols / 2], data: bytes },
      { name: `${base}.weight_scale`, type: "F8_E4M3", shape: [rows, cols / 16], data: scales },
      float32Tensor(`${base}.${names[1]}`, shape, factor),
      float32Tensor(`${base}.${names[2]}`, shape, Float32Array.of(1)),
    ],
  };
}

/** Packs eight 4-bit codes into a word; the i-th is `at(i)`. */
function word(at: (i: number) => number): number {
  let bits = 0;
  for (let i = 0; i < 8; i++) bits |= at(i) << 4 * i;
  return bits;
}

const AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7];

/**
 * Packs random 4-bit integers with scales and zero points for groups of `group` columns.
 *
 * @param order the columns in the order in which they form groups
 */
function int4(
  kind: "gptq" | "awq" | "int4",
  base: string,
  rows: number,
  cols: number,
  group = GROUP,
  order?: readonly number[],
): Packed {
  const random = new Random(base, 1);
  const nGroups = cols / group;
  const groupOf = Array.from({ length: cols }, (_, i) => Math.floor(i / group));
  order?.forEach((column, i) => groupOf[column] = Math.floor(i / group));
  const code = new Random(`${base} codes`, 1);
  const codes = Uint8Array.from({ length: rows * cols }, () => code.int(0, 15));
  // GPTQ stores zero points less one, so that they reach 16.
  const less = kind === "gptq" ? 1 : 0;
  const zeros = Uint8Array.from(
    { length: nGroups * rows },
    () => kind === "int4" ? 8 : random.int(less, 15 + less),
  );
  // Powers of two are exact in F16 and F32.
  const scales = Float32Array.from({ length: nGroups * rows }, () => 2 ** -random.int(5, 6));
  const values = Float32Array.from(codes, (code, i) => {
    const at = groupOf[i % cols]! * rows + Math.floor(i / cols);
    return (code - zeros[at]!) * scales[at]!;
  });
  const words = (name: string, shape: readonly [number, number], at: (i: number) => number) => {
    const data = ofBytes(Int32Array.from({ length: shape[0] * shape[1] }, (_, i) => at(i)));
    return { name: `${base}.${name}`, type: "I32", shape, data } as const;
  };
  const floats = (name: string, shape: readonly number[], values: Float32Array): TensorData => {
    return float32Tensor(`${base}.${name}`, shape, values);
  };
  if (kind === "int4") {
    const ofRows = Float32Array.from(
      scales,
      (_, i) => scales[i % nGroups * rows + Math.floor(i / nGroups)]!,
    );
    return {
      values,
      tensors: [
        words("weight_packed", [rows, cols / 8], (i) => word((k) => codes[8 * i + k]!)),
        floats("weight_scale", [rows, nGroups], ofRows),
        { name: `${base}.weight_shape`, type: "I64", shape: [2], data: new Uint8Array(16) },
      ],
    };
  }
  const places = kind === "awq" ? AWQ_ORDER : [...AWQ_ORDER].sort();
  const zeroWords = words(
    "qzeros",
    [nGroups, rows / 8],
    (i) => word((k) => zeros[8 * i + places[k]!]! - less),
  );
  const codeWords = kind === "gptq"
    ? words(
      "qweight",
      [cols / 8, rows],
      (i) => word((k) => codes[i % rows * cols + 8 * Math.floor(i / rows) + k]!),
    )
    : words("qweight", [cols, rows / 8], (i) => {
      const col = Math.floor(i / (rows / 8)), row = i % (rows / 8) * 8;
      return word((k) => codes[(row + places[k]!) * cols + col]!);
    });
  const rest: TensorData[] = kind === "awq" ? [] : [
    words("g_idx", [1, cols], (i) => groupOf[i]!),
    floats("bias", [rows], new Float32Array(rows)),
  ].map((tensor) => tensor.name.endsWith("g_idx") ? { ...tensor, shape: [cols] } : tensor);
  return {
    values,
    tensors: [codeWords, zeroWords, floats("scales", [nGroups, rows], scales), ...rest],
  };
}

const compressed = (weights: object) => {
  return { quant_method: "compressed-tensors", config_groups: { group_0: { weights } } };
};

const FORMATS: readonly Format[] = [
  {
    name: "FP8 with blocks",
    settings: { quant_method: "fp8", weight_block_size: [GROUP, GROUP] },
    pack: (base, rows, cols) =>
      f8(base, rows, cols, "weight_scale_inv", [rows / GROUP, cols / GROUP]),
  },
  {
    name: "FP8 with a scale a row",
    settings: compressed({ num_bits: 8, type: "float", strategy: "channel" }),
    pack: (base, rows, cols) => f8(base, rows, cols, "weight_scale", [rows, 1], "BF16"),
  },
  {
    name: "FP8 with one scale",
    settings: { quant_method: "modelopt", quant_algo: "FP8" },
    pack: (base, rows, cols) => f8(base, rows, cols, "weight_scale", [1, 1]),
  },
  {
    name: "NVFP4 of Model Optimizer",
    settings: { quant_method: "modelopt", quant_algo: "NVFP4", group_size: 16 },
    pack: (base, rows, cols) => nvfp4(base, rows, cols, false),
  },
  {
    name: "NVFP4 of compressed-tensors",
    settings: compressed({ num_bits: 4, type: "float", strategy: "tensor_group", group_size: 16 }),
    pack: (base, rows, cols) => nvfp4(base, rows, cols, true),
  },
  {
    name: "GPTQ",
    settings: { quant_method: "gptq", bits: 4, group_size: GROUP, desc_act: false },
    pack: (base, rows, cols) => int4("gptq", base, rows, cols),
  },
  {
    name: "GPTQ that chose an order of columns, with a scale a row",
    settings: { quant_method: "gptq", bits: 4, group_size: -1, desc_act: true },
    pack: (base, rows, cols) => int4("gptq", base, rows, cols, cols),
  },
  {
    name: "GPTQ in an order of columns",
    settings: { quant_method: "gptq", bits: 4, group_size: GROUP, desc_act: true },
    pack: (base, rows, cols) =>
      int4("gptq", base, rows, cols, GROUP, new Random(`order ${cols}`, 1).permutation(cols)),
  },
  {
    name: "GPTQ in an order of columns of each matrix",
    settings: { quant_method: "gptq", bits: 4, group_size: GROUP, desc_act: true },
    pack: (base, rows, cols) =>
      int4("gptq", base, rows, cols, GROUP, new Random(`order ${base}`, 1).permutation(cols)),
  },
  {
    name: "AWQ",
    settings: { quant_method: "awq", bits: 4, group_size: GROUP, version: "gemm" },
    pack: (base, rows, cols) => int4("awq", base, rows, cols),
  },
  {
    name: "compressed-tensors in 4 bits",
    settings: compressed({ num_bits: 4, type: "int", strategy: "group", group_size: GROUP }),
    pack: (base, rows, cols) => int4("int4", base, rows, cols),
  },
];

/**
 * A prompt so short that GPUs multiply in float32. For longer prompts, and for many sequences, they
 * round operands to 16 bits.
 */
const PROMPT = Int32Array.from({ length: 12 }, (_, i) => 2 + 7 * i % 90);

/** Prefixes of a multimodal model's decoder and output matrix. */
type Prefixes = readonly [decoder: string, head: string];

const PREFIXES: readonly Prefixes[] = [
  ["language_model.model.", "language_model."],
  ["model.language_model.", ""],
  ["language_model.model.model.", "language_model."],
];

/**
 * Writes a random Llama, packed or in floats. With prefixes, writes it as the text part of a
 * multimodal model.
 */
function writeLlama(path: string, { settings, pack }: Format, isPacked: boolean, under?: Prefixes) {
  const config = isPacked ? { quantization_config: settings } : {};
  const rename = (name: string) => {
    if (under === undefined) return name;
    const [decoder, head] = under;
    return name.startsWith("model.") ? decoder + name.slice(6) : head + name;
  };
  writeRandomLlama(path, {
    config,
    change: (tensors) =>
      tensors.flatMap((tensor) => {
        const base = /^(.*_proj)\.weight$/.exec(tensor.name)?.[1];
        const [rows = 0, cols = 0] = tensor.shape;
        if (base === undefined) return [tensor];
        const packed = pack(base, rows, cols);
        if (isPacked) return packed.tensors;
        return [float32Tensor(tensor.name, tensor.shape, packed.values)];
      }).map((tensor) => ({ ...tensor, name: rename(tensor.name) })),
  });
  if (under === undefined) return;
  const { quantization_config, ...text } = readJson<Record<string, unknown>>(`${path}/config.json`);
  const whole = { model_type: "llava", quantization_config, text_config: text };
  Deno.writeTextFileSync(`${path}/config.json`, JSON.stringify(whole));
}

/** Tolerance for float32 products: packed matrices are exact. */
const EXACT = 1e-5;

/**
 * Tolerance for CUDA, which rounds activations and unpacked weights to F16 or BF16, but not weights
 * in F32. A factor of 11 bits has an error of up to 2^-11; those of a model's products add up.
 */
const ROUNDED_FACTORS = 4e-3;

/** Tolerance for integers on the CPU, which rounds activations to eight bits. */
const ROUNDED_ACTIVATIONS = 0.15;

const kinds = [...new Set(devices.map(({ kind }) => kind))];

for (const format of FORMATS) {
  for (const device of kinds) {
    const isRounded = device === "cpu" && !format.name.startsWith("FP8");
    const tolerance = isRounded ? ROUNDED_ACTIVATIONS : device === "cuda" ? ROUNDED_FACTORS : EXACT;
    Deno.test(`a folder in ${format.name} gives the logits of its unpacked numbers (${device})`, async () => {
      using folder = new TempFolder();
      const logitsOf = async (isPacked: boolean) => {
        const path = folder.at(isPacked ? "packed" : "floats");
        writeLlama(path, format, isPacked);
        await using model = await load(path, { device, kvType: "F32", parallel: 1 });
        return await model.logits(PROMPT);
      };
      assertClose(await logitsOf(true), await logitsOf(false), tolerance);
    });
  }

  if (!kinds.includes("reference")) continue;
  Deno.test(`a folder in ${format.name} is written as a GGUF file of its numbers`, async () => {
    using folder = new TempFolder();
    const [path, file] = [folder.at("packed"), folder.at("model.gguf")];
    writeLlama(path, format, true);
    // GGUF files need a name for the way in which text is cut.
    const tokenizer = readJson<Record<string, unknown>>(join(path, "tokenizer.json"));
    const { pre_tokenizer } = readJson<Record<string, unknown>>(
      join(ROOT, "models", "demo", "tokenizer.json"),
    );
    folder.write("packed/tokenizer.json", { ...tokenizer, pre_tokenizer });
    await quantize(path, file, { type: "F32" });
    const logitsOf = async (path: string) => {
      await using model = await load(path, { device: "reference" });
      return await model.logits(PROMPT);
    };
    assertClose(await logitsOf(file), await logitsOf(path), EXACT);
  });

  Deno.test(`the text part of a multimodal folder in ${format.name} is the same under any prefix`, async () => {
    using folder = new TempFolder();
    const logitsOf = async (name: string, under?: Prefixes) => {
      writeLlama(folder.at(name), format, true, under);
      await using model = await load(folder.at(name), { device: "reference", kvType: "F32" });
      return await model.logits(PROMPT);
    };
    const alone = await logitsOf("alone");
    for (const [i, under] of PREFIXES.entries()) {
      assertEquals(await logitsOf(`part${i}`, under), alone);
    }
  });
}

/** Returns a tensor of random blocks of GGUF's NVFP4, its scales, and the numbers. */
function nvfp4Blocks(name: string, shape: readonly number[], isPacked: boolean): TensorData[] {
  const random = new Random(name, 1);
  const cols = shape.at(-1)!, rows = shape.at(-2)!, nMatrices = shape.length > 2 ? shape[0]! : 1;
  const count = nMatrices * rows * cols;
  const blocks = random.bytes(count / 64 * 36);
  for (let at = 0; at < blocks.length; at += 36) {
    for (let i = 0; i < 4; i++) blocks[at + i] = 40 + random.int(0, 30);
  }
  const scales = Float32Array.from(
    { length: nMatrices },
    () => (0.5 + random.uniform()) / Math.sqrt(cols) / 16,
  );
  if (isPacked) {
    return [
      { name, type: "NVFP4", shape, data: blocks },
      float32Tensor(name.replace(".weight", ".scale"), [nMatrices], scales),
    ];
  }
  const values = Float32Array.from({ length: count }, (_, i) => {
    const block = Math.floor(i / 64) * 36, part = Math.floor(i % 64 / 16), place = i % 16;
    const code = blocks[block + 4 + 8 * part + place % 8]! >> (place < 8 ? 0 : 4) & 15;
    const scale = e4m3(blocks[block + part]!) * scales[Math.floor(i / (rows * cols))]!;
    return scale * E2M1[code % 8]! * (code < 8 ? 1 : -1);
  });
  return [float32Tensor(name, shape, values)];
}

/** A Mixtral in GGUF whose matrices have scales of their own. */
function nvfp4File(isPacked: boolean): Uint8Array<ArrayBuffer> {
  const floats = (name: string, ...shape: number[]) => {
    const random = new Random(name, 1);
    const count = shape.reduce((product, size) => product * size, 1);
    return float32Tensor(name, shape, Float32Array.from({ length: count }, () => random.normal()));
  };
  const packed = (name: string, ...shape: number[]) =>
    nvfp4Blocks(`blk.0.${name}.weight`, shape, isPacked);
  const sizes = {
    block_count: 1,
    context_length: 64,
    embedding_length: 64,
    feed_forward_length: 128,
    expert_count: 2,
    expert_used_count: 1,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
  };
  const named = Object.entries(sizes).map(([key, size]) => [`llama.${key}`, ["u32", size]]);
  return encodeGguf({
    metadata: {
      "general.architecture": ["string", "llama"],
      ...Object.fromEntries(named),
      "llama.attention.layer_norm_rms_epsilon": ["f32", 1e-5],
      ...syntheticTokenizer(128),
    },
    tensors: [
      floats("token_embd.weight", 128, 64),
      floats("output_norm.weight", 64),
      floats("blk.0.attn_norm.weight", 64),
      floats("blk.0.ffn_norm.weight", 64),
      floats("blk.0.ffn_gate_inp.weight", 2, 64),
      ...packed("attn_q", 64, 64),
      ...packed("attn_k", 32, 64),
      ...packed("attn_v", 32, 64),
      ...packed("attn_output", 64, 64),
      ...packed("ffn_gate_exps", 2, 128, 64),
      ...packed("ffn_up_exps", 2, 128, 64),
      ...packed("ffn_down_exps", 2, 64, 128),
    ],
  });
}

for (const device of kinds) {
  Deno.test(`a GGUF file in NVFP4 gives the logits of its numbers (${device})`, async () => {
    using folder = new TempFolder();
    const logitsOf = async (isPacked: boolean) => {
      const path = folder.write(`${isPacked}.gguf`, nvfp4File(isPacked));
      await using model = await load(path, { device, kvType: "F32", parallel: 1 });
      return await model.logits(PROMPT);
    };
    const tolerance = { cpu: ROUNDED_ACTIVATIONS, cuda: ROUNDED_FACTORS }[device as string] ??
      EXACT;
    assertClose(await logitsOf(true), await logitsOf(false), tolerance);
  });
}

const EXPERTS = 4;

/** A Llama 4 whose expert rows are whole blocks of FP8. */
const LLAMA4 = {
  ...generated.models.llama4_text!.config,
  hidden_size: 64,
  intermediate_size: 32,
  num_local_experts: EXPERTS,
};

/**
 * Returns random codes of experts `[experts, cols, rows]`, a scale for each row of each expert, and
 * the decoded numbers.
 */
function expertCodes(name: string, cols: number, rows: number) {
  const random = new Random(name, 1);
  const codes = Uint8Array.from({ length: EXPERTS * cols * rows }, () => {
    return 40 + random.int(0, 30) + 128 * random.int(0, 1);
  });
  const scales = Float32Array.from({ length: EXPERTS * rows }, () => {
    return (0.5 + random.uniform()) / Math.sqrt(cols);
  });
  const scaleAt = (i: number) => scales[Math.floor(i / (cols * rows)) * rows + i % rows]!;
  return { codes, scales, values: Float32Array.from(codes, (code, i) => e4m3(code) * scaleAt(i)) };
}

/**
 * Transposes rows `first` to `last` of one expert, whose codes are `[cols, rows]`, to row-major.
 */
function expertRows(
  codes: Uint8Array,
  [cols, rows]: readonly [number, number],
  expert: number,
  [first, last]: readonly [number, number],
): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length: (last - first) * cols }, (_, i) => {
    const row = first + Math.floor(i / cols);
    return codes[(expert * cols + i % cols) * rows + row]!;
  });
}

/**
 * Returns a tensor of stacked experts in floats ("floats"), in FP8 ("stacked"), or in FP8 with one
 * matrix for each part of each expert ("apart").
 */
function llama4Experts(
  { name, shape }: { readonly name: string; readonly shape: readonly number[] },
  form: "floats" | "stacked" | "apart",
): TensorData[] {
  const [, cols = 0, rows = 0] = shape;
  const { codes, scales, values } = expertCodes(name, cols, rows);
  if (form === "floats") return [float32Tensor(name, shape, values)];
  if (form === "stacked") {
    return [
      { name, type: "F8_E4M3", shape, data: codes },
      float32Tensor(`${name}_scale`, [EXPERTS, 1, rows], scales),
    ];
  }
  const parts: readonly string[] = name.endsWith("down_proj") ? ["down"] : ["gate", "up"];
  const size = rows / parts.length;
  return Array.from({ length: EXPERTS }, (_, expert) =>
    parts.flatMap((part, i): TensorData[] => {
      const base = name.replace(/\w+_proj$/, `${expert}.${part}_proj`);
      const data = expertRows(codes, [cols, rows], expert, [i * size, (i + 1) * size]);
      const first = expert * rows + i * size;
      return [
        { name: `${base}.weight`, type: "F8_E4M3", shape: [size, cols], data },
        float32Tensor(`${base}.weight_scale`, [size, 1], scales.slice(first, first + size)),
      ];
    })).flat();
}

for (const device of kinds) {
  Deno.test(`Llama 4's experts in FP8 give the logits of their decoded numbers (${device})`, async () => {
    using folder = new TempFolder();
    writeRandomLlama(folder.at("tokens"));
    const tokenizer = readJson(folder.at("tokens", "tokenizer.json"));
    const logitsOf = async (form: "floats" | "stacked" | "apart") => {
      const tensors = generatedTensors("llama4", LLAMA4).flatMap((tensor) =>
        /experts\.\w+$/.test(tensor.name)
          ? llama4Experts(tensor, form)
          : [float32Tensor(tensor.name, tensor.shape, Float32Array.from(tensor.values))]
      );
      const settings = compressed({ num_bits: 8, type: "float", strategy: "channel" });
      const config = form === "floats" ? LLAMA4 : { ...LLAMA4, quantization_config: settings };
      const files = { "config.json": config, "tokenizer.json": tokenizer };
      writeModelFolder(folder.at(form), files, tensors);
      await using model = await load(folder.at(form), { device, kvType: "F32", parallel: 1 });
      return await model.logits(Int32Array.from(generated.prompt_ids));
    };
    const expected = await logitsOf("floats");
    const stacked = await logitsOf("stacked");
    assertClose(stacked, expected, device === "cuda" ? ROUNDED_FACTORS : EXACT);
    assertClose(await logitsOf("apart"), stacked, EXACT);
  });
}
