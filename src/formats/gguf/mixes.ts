/**
 * Mixtures of types in which GGUF files are published: each gives most matrices one type, and those
 * that matter more, by their name and layer, more bits. The choices are llama.cpp's.
 */
import { TENSOR_TYPES, type TensorType } from "../tensor_info.ts";

/** A mixture. */
export interface Mix {
  /** Type of most matrices. */
  readonly type: TensorType;
  /** Value of `general.file_type`. */
  readonly fileType: number;
}

/** Name of a mixture. */
export type MixName =
  | "F32"
  | "BF16"
  | "F16"
  | "Q8_0"
  | "Q6_K"
  | "Q5_K_M"
  | "Q5_K_S"
  | "Q5_1"
  | "Q5_0"
  | "Q4_K_M"
  | "Q4_K_S"
  | "Q4_1"
  | "Q4_0"
  | "IQ4_NL"
  | "IQ4_XS"
  | "Q3_K_L"
  | "Q3_K_M"
  | "Q3_K_S"
  | "Q2_K";

/** The mixtures that forge writes, from most to fewest bits. */
export const MIXES: Readonly<Record<MixName, Mix>> = {
  F32: { type: "F32", fileType: 0 },
  BF16: { type: "BF16", fileType: 32 },
  F16: { type: "F16", fileType: 1 },
  Q8_0: { type: "Q8_0", fileType: 7 },
  Q6_K: { type: "Q6_K", fileType: 18 },
  Q5_K_M: { type: "Q5_K", fileType: 17 },
  Q5_K_S: { type: "Q5_K", fileType: 16 },
  Q5_1: { type: "Q5_1", fileType: 9 },
  Q5_0: { type: "Q5_0", fileType: 8 },
  Q4_K_M: { type: "Q4_K", fileType: 15 },
  Q4_K_S: { type: "Q4_K", fileType: 14 },
  Q4_1: { type: "Q4_1", fileType: 3 },
  Q4_0: { type: "Q4_0", fileType: 2 },
  IQ4_NL: { type: "IQ4_NL", fileType: 25 },
  IQ4_XS: { type: "IQ4_XS", fileType: 30 },
  Q3_K_L: { type: "Q3_K", fileType: 13 },
  Q3_K_M: { type: "Q3_K", fileType: 12 },
  Q3_K_S: { type: "Q3_K", fileType: 11 },
  Q2_K: { type: "Q2_K", fileType: 10 },
};

/** Facts about a model on which its types depend. */
export interface MixedModel {
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  /** 0 without experts. */
  readonly experts: number;
  /** True if importances are known. */
  readonly hasImportance: boolean;
}

/** A tensor of a model, outermost dimension first. */
interface MixedTensor {
  readonly name: string;
  readonly shape: readonly number[];
}

/** Matrices that stay as they are: they are small, and choose experts or shape recurrences. */
const KEPT = new RegExp(
  String.raw`(_norm|ffn_gate_inp|ffn_gate_inp_shexp|position_embd|token_types|ssm_conv1d|` +
    String.raw`shortconv\.conv|per_layer_model_proj)\.weight$`,
);

/** Types with blocks of 32 for rows that are no whole number of the blocks of 256. */
const NARROW: Partial<Record<TensorType, TensorType>> = {
  Q6_K: "Q8_0",
  Q5_K: "Q5_1",
  Q4_K: "Q5_0",
  Q3_K: "IQ4_NL",
  Q2_K: "IQ4_NL",
  IQ4_XS: "IQ4_NL",
};

/** True if a tensor of a GGUF file may be quantised. */
function isMatrix({ name, shape }: MixedTensor): boolean {
  return shape.length > 1 && name.endsWith(".weight") && !KEPT.test(name);
}

/** Returns the layer of a tensor; -1 for the embedding and the output matrix. */
function layerOf({ name }: MixedTensor): number {
  return Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1);
}

/** Returns the types of a model's matrices, by name; other tensors keep theirs. */
export function mixedTypes(
  mix: MixName,
  model: MixedModel,
  tensors: readonly MixedTensor[],
): Map<string, TensorType> {
  const { type } = MIXES[mix];
  const isFloat = TENSOR_TYPES[type].blockElements === 1;
  // Layers are counted in order, whatever the order of the tensors in the file.
  const matrices = tensors.filter(isMatrix).toSorted((a, b) => layerOf(a) - layerOf(b));
  const hasOutput = tensors.some(({ name }) => name === "output.weight");
  const nValues = matrices.filter(({ name }) => /attn_(v|qkv|kv_b)\.weight$/.test(name)).length;
  let value = 0, down = 0;
  return new Map(matrices.map((tensor) => {
    const { name, shape } = tensor;
    // Without experts, layers without an MLP do not count.
    const layer = model.experts > 1 ? layerOf(tensor) : down;
    const isOutput = name === (hasOutput ? "output.weight" : "token_embd.weight");
    const wanted = isFloat
      ? type
      : isOutput
      ? outputType(type, shape.at(-1)!)
      : layerType(mix, model, name, { layer, value, nValues });
    if (name.includes("attn_v.weight")) value++;
    if (name.includes("ffn_down")) down++;
    return [name, fitting(wanted, shape.at(-1)!)];
  }));
}

/** Returns the type of the output matrix, or of the embedding in its place. */
function outputType(type: TensorType, cols: number): TensorType {
  return type === "Q8_0" || cols % TENSOR_TYPES[type].blockElements !== 0 ? "Q8_0" : "Q6_K";
}

/** Place of a matrix among those that get more bits in some layers. */
interface Place {
  readonly layer: number;
  /** Number of value matrices before this one, and of all of them. */
  readonly value: number;
  readonly nValues: number;
}

/** True for the first and the last eighth of `count`, and every third between. */
function deservesMore(index: number, count: number): boolean {
  const eighth = Math.floor(count / 8);
  return index < eighth || index >= Math.floor(7 * count / 8) || (index - eighth) % 3 === 2;
}

function layerType(mix: MixName, model: MixedModel, name: string, place: Place): TensorType {
  const { type } = MIXES[mix];
  const part = /(attn_v|attn_k|attn_output|attn_qkv)\.weight$|(ffn_down)/.exec(name);
  switch (part?.[1] ?? part?.[2]) {
    case "attn_v":
      return valueType(mix, model, place);
    case "attn_k":
      return model.experts === 8 ? "Q8_0" : type;
    case "attn_output":
      return attentionOutputType(mix, model);
    case "attn_qkv":
      return { Q3_K_M: "Q4_K", Q3_K_L: "Q4_K", Q4_K_M: "Q5_K", Q5_K_M: "Q6_K" }[mix as string] as
        | TensorType
        | undefined ?? type;
    case "ffn_down":
      return downType(mix, model, place.layer);
  }
  return type;
}

function valueType(mix: MixName, model: MixedModel, { value, nValues }: Place): TensorType {
  if (model.experts === 8) return "Q8_0";
  const sharing = Math.floor(model.heads / model.kvHeads);
  const chosen = (): TensorType => {
    switch (mix) {
      case "Q2_K":
        return sharing >= 4 ? "Q4_K" : "Q3_K";
      case "Q3_K_M":
        return value < 2 ? "Q5_K" : "Q4_K";
      case "Q3_K_L":
        return "Q5_K";
      case "IQ4_NL":
      case "IQ4_XS":
        return sharing >= 4 ? "Q5_K" : MIXES[mix].type;
      case "Q4_K_M":
      case "Q5_K_M":
        return deservesMore(value, nValues) ? "Q6_K" : MIXES[mix].type;
      case "Q4_K_S":
        return value < 4 ? "Q5_K" : "Q4_K";
    }
    return MIXES[mix].type;
  };
  const type = chosen();
  // The value matrices of models of 70B are small next to the others.
  const isLarge = model.layers === 80 && sharing > 1;
  return isLarge && (type === "Q3_K" || type === "Q4_K") ? "Q5_K" : type;
}

function attentionOutputType(mix: MixName, { experts }: MixedModel): TensorType {
  const { type } = MIXES[mix];
  if (experts === 8) {
    return ["Q2_K", "Q3_K", "Q4_K", "IQ4_NL", "IQ4_XS"].includes(type) && mix !== "Q3_K_L"
      ? "Q5_K"
      : type;
  }
  switch (mix) {
    case "Q2_K":
      return "Q3_K";
    case "Q3_K_M":
      return "Q4_K";
    case "Q3_K_L":
      return "Q5_K";
  }
  return type;
}

function downType(mix: MixName, model: MixedModel, layer: number): TensorType {
  const { layers, hasImportance } = model;
  const isEarly = layer < Math.floor(layers / 8);
  switch (mix) {
    case "Q2_K":
      return "Q3_K";
    case "Q3_K_M":
      return layer < Math.floor(layers / 16) ? "Q5_K" : "Q4_K";
    case "Q3_K_L":
      return "Q5_K";
    case "Q4_K_M":
    case "Q5_K_M":
      return deservesMore(layer, layers) ? "Q6_K" : MIXES[mix].type;
    case "Q4_K_S":
      return isEarly ? "Q5_K" : "Q4_K";
    case "IQ4_NL":
    case "IQ4_XS":
      return isEarly && !hasImportance ? "Q5_K" : MIXES[mix].type;
    // With importances, a symmetric type can be far off in the first layers.
    case "Q4_0":
      return isEarly && hasImportance ? "Q4_1" : "Q4_0";
    case "Q5_0":
      return isEarly && hasImportance ? "Q5_1" : "Q5_0";
  }
  return MIXES[mix].type;
}

/** Returns the type, or the next one whose blocks divide the number of columns. */
function fitting(type: TensorType, cols: number): TensorType {
  const narrow = cols % TENSOR_TYPES[type].blockElements === 0 ? type : NARROW[type] ?? "F16";
  return cols % TENSOR_TYPES[narrow].blockElements === 0 ? narrow : "F16";
}
