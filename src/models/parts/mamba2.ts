/**
 * Mamba-2 layers: a convolution, the scan of a selective state space, and a gate. T. Dao and A. Gu,
 * "Transformers are SSMs", arXiv:2405.21060.
 */
import type { Activation, Value, Weight } from "../../backend.ts";
import type { StateMatrix } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { activationOf, type DecoderConfig } from "../config/decoder_config.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";
import { type BiasRule, biasRule, type Block, loadBias } from "./blocks.ts";
import { loadConv, loadHeadNumbers, loadRate, MAX_CONV_WIDTH } from "./recurrence.ts";

/** Sizes and settings of the layers. */
export interface Mamba2Config {
  readonly nHeads: number;
  readonly headDim: number;
  /** Groups of heads that share b and c. */
  readonly nGroups: number;
  readonly dState: number;
  /** Number of tokens that the convolution covers. */
  readonly convWidth: number;
  readonly convActivation: Activation;
  readonly convBias: BiasRule;
  /** Biases of the two projections. */
  readonly bias: BiasRule;
  readonly outputBias: BiasRule;
  /** The least and the greatest time step. */
  readonly dtLimits: readonly [number, number];
}

/** Names of the settings in config.json, and whether the width of the layers is one of them. */
interface Mamba2Names {
  readonly nHeads: string;
  readonly headDim: string;
  readonly nGroups: string;
  readonly dState: string;
  readonly convWidth: string;
  readonly convActivation: string;
  readonly convBias: string;
  readonly bias: string;
  /** @default that of `bias` */
  readonly outputBias?: string;
  /** The least time step, in place of `time_step_limit`. */
  readonly dtMin?: string;
  /** Factor of the hidden size that gives the width of the heads together. */
  readonly expand?: string;
  /** The width itself, which replaces the factor. */
  readonly inner?: string;
}

/** The names of Bamba and of models made after it. */
export const BAMBA_NAMES: Mamba2Names = {
  nHeads: "mamba_n_heads",
  headDim: "mamba_d_head",
  nGroups: "mamba_n_groups",
  dState: "mamba_d_state",
  convWidth: "mamba_d_conv",
  convActivation: "hidden_act",
  convBias: "mamba_conv_bias",
  bias: "mamba_proj_bias",
  expand: "mamba_expand",
};

/** Reads the settings. @throws {ForgeError} `bad_model` */
export function mamba2Config(
  config: ConfigReader,
  hiddenSize: number,
  names: Mamba2Names,
): Mamba2Config {
  const headsKey: Key = [names.nHeads, "ssm.time_step_rank"];
  const groupsKey: Key = [names.nGroups, "ssm.group_count"];
  const nHeads = config.int(headsKey, { max: 4096 });
  const nGroups = config.int(groupsKey, { max: nHeads });
  if (nHeads % nGroups !== 0) {
    throw config.invalid(groupsKey, nGroups, `a divisor of the ${nHeads} heads`);
  }
  const convWidth = config.int([names.convWidth, "ssm.conv_kernel"], {
    min: 2,
    max: MAX_CONV_WIDTH,
  });
  const bias = biasRule(config, names.bias);
  return {
    nHeads,
    headDim: headDimension(config, hiddenSize, nHeads, names),
    nGroups,
    dState: config.int([names.dState, "ssm.state_size"], { max: 4096 }),
    convWidth,
    convActivation: config.isGguf ? "silu" : activationOf(config, names.convActivation),
    convBias: biasRule(config, names.convBias),
    bias,
    outputBias: names.outputBias === undefined ? bias : biasRule(config, names.outputBias),
    dtLimits: names.dtMin === undefined
      ? timeStepLimits(config)
      : [config.number([names.dtMin, undefined], 0), Infinity],
  };
}

/** Returns the width of a head, which follows from the width of all heads if it is "auto". */
function headDimension(
  config: ConfigReader,
  hiddenSize: number,
  nHeads: number,
  { headDim, expand, inner }: Mamba2Names,
): number {
  const key: Key = [headDim, undefined];
  const isAuto = config.isGguf || config.raw(key) === "auto";
  const all = config.isGguf
    ? config.int([undefined, "ssm.inner_size"])
    : inner !== undefined && config.raw([inner, undefined]) !== undefined
    ? config.int([inner, undefined])
    : expand === undefined
    ? undefined
    : config.int([expand, undefined]) * hiddenSize;
  const dim = isAuto && all !== undefined
    ? Math.floor(all / nHeads)
    : config.int(key, { max: 4096 });
  if (all !== undefined && (dim < 1 || dim > 4096 || dim * nHeads !== all)) {
    const shown: Key = [headDim, "ssm.inner_size"];
    const expected = `a divisor of the width of ${all} for ${nHeads} heads`;
    throw config.invalid(shown, config.raw(shown), expected);
  }
  return dim;
}

/** Reads `time_step_limit`. Infinity is "Infinity" in an object, as transformers writes it. */
function timeStepLimits(config: ConfigReader): readonly [number, number] {
  const key: Key = ["time_step_limit", undefined];
  const value = config.raw(key) ?? [0, Infinity];
  const list = Array.isArray(value) ? value.map(numberOf) : [];
  const [least = NaN, most = NaN] = list;
  if (list.length === 2 && least >= 0 && least <= most) return [least, most];
  throw config.invalid(key, value, "two numbers from 0 in their order");
}

function numberOf(value: unknown): number {
  const isNamed = typeof value === "object" && value !== null && "__float__" in value;
  const number = isNamed ? Number(value.__float__) : value;
  return typeof number === "number" ? number : NaN;
}

const innerSize = ({ nHeads, headDim }: Mamba2Config) => nHeads * headDim;
/** Columns of the convolution: x of each head, b and c of each group. */
const convCols = (m: Mamba2Config) => innerSize(m) + 2 * m.nGroups * m.dState;

/** Returns the shapes of one layer's states: of its convolution and of its scan. */
export function mamba2States(m: Mamba2Config): readonly [StateMatrix, StateMatrix] {
  return [
    { rows: m.convWidth - 1, cols: convCols(m) },
    { rows: m.nHeads * m.dState, cols: m.headDim },
  ];
}

/** Options of a layer, which differ between families. */
interface Mamba2Parts {
  /**
   * Index of the layer's first state among the model's; its states follow in the order of
   * {@linkcode mamba2States}.
   */
  readonly state: number;
  /** The norm of the result: over the whole row, or over the heads of each group. @default none */
  readonly norm?: "row" | "groups" | undefined;
  /** True if the gate multiplies after the norm. @default false */
  readonly gatesAfterNorm?: boolean | undefined;
  /** Factor of the layer's input. @default 1 */
  readonly inputScale?: number | undefined;
  /** Factors of the projected gate, x, b, c and dt. @default 1 for each */
  readonly factors?: readonly [number, number, number, number, number] | undefined;
  /** Multiplies the output before the residual is added. @default 1 */
  readonly outputScale?: number | undefined;
}

const IN: TensorName = ["mamba.in_proj", "ssm_in"];
const CONV: TensorName = ["mamba.conv1d", "ssm_conv1d"];
const NORM: TensorName = ["mamba.norm", "ssm_norm"];
const OUT: TensorName = ["mamba.out_proj", "ssm_out"];

/** Loads one layer's Mamba-2 block. */
export function loadMamba2(
  weights: WeightLoader,
  c: DecoderConfig,
  m: Mamba2Config,
  parts: Mamba2Parts,
): Block {
  weights.assertWhole("recurrent state");
  const { nHeads, nGroups, dtLimits } = m;
  const { state, gatesAfterNorm = false, outputScale } = parts;
  weights.useStates(state, state + 1);
  const { inputScale = 1, factors = [1, 1, 1, 1, 1] } = parts;
  const inner = innerSize(m);
  const projections = loadProjections(weights, c.hiddenSize, m, inputScale);
  const conv = loadScaledConv(weights, m, factors.map((factor) => factor * inputScale));
  const convBias = loadBias(weights, CONV, convCols(m), m.convBias);
  const rate = loadRate(weights, ["mamba.A_log", "ssm_a"], nHeads);
  const dtBias = weights.isGguf
    ? weights.vector([undefined, "ssm_dt"], nHeads, "bias")
    : weights.vector(["mamba.dt_bias", undefined], nHeads, "");
  const skip = loadHeadNumbers(weights, ["mamba.D", "ssm_d"], nHeads);
  const norm = loadNorm(weights, m, parts.norm);
  const out = weights.matrix(OUT, c.hiddenSize, inner);
  const outBias = loadBias(weights, OUT, c.hiddenSize, m.outputBias);

  return ({ recorder, states }, x, residual) => {
    const project = ({ weight, bias }: Projection, alpha: number) =>
      recorder.matmul(x, weight, { bias, alpha });
    const gate = project(projections.gate, inputScale * factors[0]);
    const mixed = recorder.causalConv1d(project(projections.xbc, 1), conv, states[state]!, {
      bias: convBias,
      activation: m.convActivation,
    });
    const dt = project(projections.dt, inputScale * factors[4]);
    const scanned = recorder.selectiveScan(mixed, dt, states[state + 1]!, {
      rate,
      dtBias,
      skip,
      nGroups,
      dtLimits,
      gate: gatesAfterNorm ? undefined : gate,
    });
    const normed = (y: Value, weight: Weight): Value =>
      gatesAfterNorm
        ? recorder.gatedRmsNorm(y, gate, weight, { eps: c.normEps, activation: "silu" })
        : recorder.rmsNorm(y, weight, { eps: c.normEps });
    const result = norm === undefined ? scanned : normed(scanned, norm);
    return recorder.matmul(result, out, { bias: outBias, alpha: outputScale, residual });
  };
}

interface Projection {
  readonly weight: Weight;
  readonly bias: Weight | undefined;
}

/**
 * Loads the parts of the input projection: the gate, what the convolution reads, and the time
 * steps. A factor of the input multiplies products and not biases, so biases are divided by it.
 */
function loadProjections(
  weights: WeightLoader,
  hiddenSize: number,
  m: Mamba2Config,
  inputScale: number,
): Readonly<Record<"gate" | "xbc" | "dt", Projection>> {
  const sizes = [innerSize(m), convCols(m), m.nHeads];
  const size = sizes.reduce((sum, rows) => sum + rows, 0);
  const tensor = weights.tensor(IN, "weight", [size, hiddenSize]);
  const stored = loadBias(weights, IN, size, m.bias);
  const biases = stored && weights.backend.readWeight(stored, 0, 1);
  const part = (i: number): Projection => {
    const firstRow = sizes.slice(0, i).reduce((sum, rows) => sum + rows, 0), nRows = sizes[i]!;
    const own = biases?.slice(firstRow, firstRow + nRows).map((value) => value / inputScale);
    return {
      weight: weights.mapSlices([{ tensor, firstRow, nRows }], hiddenSize),
      bias: own && weights.uploadVector(Float32Array.from(own)),
    };
  };
  return { gate: part(0), xbc: part(1), dt: part(2) };
}

/** Loads the convolution, whose weights take the factors of the rows that it reads. */
function loadScaledConv(
  weights: WeightLoader,
  m: Mamba2Config,
  [, ofX = 1, ofB = 1, ofC = 1]: readonly number[],
): Weight {
  const cols = convCols(m), width = m.convWidth, inner = innerSize(m);
  const conv = loadConv(weights, CONV, cols, width);
  if (ofX === 1 && ofB === 1 && ofC === 1) return conv;
  const scaled = weights.backend.readWeight(conv, 0, cols).map((value, i) => {
    const column = Math.floor(i / width);
    return value * (column < inner ? ofX : column < inner + m.nGroups * m.dState ? ofB : ofC);
  });
  const bytes = new Uint8Array(Float32Array.from(scaled).buffer);
  return weights.backend.uploadWeight("F32", cols, width, bytes);
}

/**
 * Loads the norm of the result, with a row for each group if groups are normalised. GGUF files
 * always have it in groups, as llama.cpp computes it.
 */
function loadNorm(
  weights: WeightLoader,
  m: Mamba2Config,
  kind: Mamba2Parts["norm"],
): Weight | undefined {
  const inner = innerSize(m), width = inner / m.nGroups;
  if (weights.isGguf) {
    if (!weights.has(NORM)) return undefined;
    return weights.mapWhole(weights.tensor(NORM, "weight", [m.nGroups, width]), width);
  }
  if (kind === undefined) return undefined;
  return weights.mapWhole(weights.tensor(NORM, "weight", [inner]), kind === "row" ? inner : width);
}
