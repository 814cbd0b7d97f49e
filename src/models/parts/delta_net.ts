/**
 * Linear attention by the gated delta rule after a short convolution, as in Qwen3-Next and Qwen3.5.
 * S. Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule", arXiv:2412.06464.
 */
import type { HeadOrder, Weight, WeightSlice } from "../../backend.ts";
import { InputFile } from "../../formats/file.ts";
import { assertStored, type TensorInfo } from "../../formats/tensor_info.ts";
import type { Block } from "./blocks.ts";
import type { StateMatrix } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";
import { loadConv, loadRate, MAX_CONV_WIDTH } from "./recurrence.ts";

interface DeltaNetConfig {
  readonly nKHeads: number;
  readonly nVHeads: number;
  readonly kDim: number;
  readonly vDim: number;
  /** Number of tokens that the convolution covers. */
  readonly convWidth: number;
  readonly headOrder: HeadOrder;
}

/** Added to the squared norms of queries and keys. */
const L2_EPS = 1e-6;

/** Reads the settings of these layers. @throws {ForgeError} `bad_model` */
export function deltaNetConfig(config: ConfigReader, headOrder: HeadOrder): DeltaNetConfig {
  const valueHeads: Key = ["linear_num_value_heads", "ssm.time_step_rank"];
  const keyHeads: Key = ["linear_num_key_heads", "ssm.group_count"];
  const nVHeads = config.int(valueHeads, { max: 4096 });
  const nKHeads = config.int(keyHeads, { max: nVHeads });
  if (nVHeads % nKHeads !== 0) {
    throw config.invalid(keyHeads, nKHeads, `a divisor of the ${nVHeads} value heads`);
  }
  return {
    nKHeads,
    nVHeads,
    kDim: config.int(["linear_key_head_dim", "ssm.state_size"], { max: 4096 }),
    vDim: valueDim(config, nVHeads),
    convWidth: config.int(["linear_conv_kernel_dim", "ssm.conv_kernel"], {
      min: 2,
      max: MAX_CONV_WIDTH,
    }),
    headOrder,
  };
}

function valueDim(config: ConfigReader, nVHeads: number): number {
  if (!config.isGguf) return config.int(["linear_value_head_dim", undefined], { max: 4096 });
  const inner: Key = [undefined, "ssm.inner_size"];
  const size = config.int(inner);
  if (size % nVHeads !== 0) {
    throw config.invalid(inner, size, `a multiple of the ${nVHeads} value heads`);
  }
  return size / nVHeads;
}

/** Returns the shapes of one layer's states: of its convolution and of its delta rule. */
export function deltaNetStates(d: DeltaNetConfig): readonly [StateMatrix, StateMatrix] {
  return [
    { rows: d.convWidth - 1, cols: qkvRows(d) },
    { rows: d.nVHeads * d.kDim, cols: d.vDim },
  ];
}

function qkvRows({ nKHeads, nVHeads, kDim, vDim }: DeltaNetConfig): number {
  return 2 * nKHeads * kDim + nVHeads * vDim;
}

const QKV: TensorName = ["linear_attn.in_proj_qkv", "attn_qkv"];
const Z: TensorName = ["linear_attn.in_proj_z", "attn_gate"];
const QKVZ: TensorName = ["linear_attn.in_proj_qkvz", "ssm_in"];
const B: TensorName = ["linear_attn.in_proj_b", "ssm_beta"];
const A: TensorName = ["linear_attn.in_proj_a", "ssm_alpha"];
const BA: TensorName = ["linear_attn.in_proj_ba", "ssm_ba"];
const CONV: TensorName = ["linear_attn.conv1d", "ssm_conv1d"];
const NORM: TensorName = ["linear_attn.norm", "ssm_norm"];
const OUT: TensorName = ["linear_attn.out_proj", "ssm_out"];

/**
 * Loads one layer's linear attention.
 *
 * @param state index of the layer's first state among the model's; its states follow in the order
 * of {@linkcode deltaNetStates}
 */
export function loadDeltaNet(
  weights: WeightLoader,
  c: DecoderConfig,
  d: DeltaNetConfig,
  state: number,
): Block {
  weights.assertWhole("linear attention");
  weights.useStates(state, state + 1);
  const { hiddenSize } = c;
  const { nKHeads, nVHeads, kDim, vDim, headOrder } = d;
  const { qkv, z } = loadQkvz(weights, hiddenSize, d);
  const ba = loadBa(weights, hiddenSize, d);
  const conv = loadConv(weights, CONV, qkvRows(d), d.convWidth);
  const rate = loadRate(weights, ["linear_attn.A_log", "ssm_a"], nVHeads);
  const dtBias = weights.isGguf
    ? weights.vector([undefined, "ssm_dt"], nVHeads, "bias")
    : weights.vector(["linear_attn.dt_bias", undefined], nVHeads, "");
  const norm = weights.vector(NORM, vDim);
  const out = weights.matrix(OUT, hiddenSize, nVHeads * vDim);

  return ({ recorder, states }, x, residual) => {
    const mixed = recorder.causalConv1d(recorder.matmul(x, qkv), conv, states[state]!, {
      activation: c.activation,
    });
    const attended = recorder.gatedDeltaRule(mixed, recorder.matmul(x, ba), states[state + 1]!, {
      rate,
      dtBias,
      nKHeads,
      headOrder,
      scale: 1 / Math.sqrt(kDim),
      eps: L2_EPS,
    });
    const normed = recorder.gatedRmsNorm(attended, recorder.matmul(x, z), norm, {
      eps: c.normEps,
      activation: "silu",
    });
    return recorder.matmul(normed, out, { residual });
  };
}

/**
 * Loads queries, keys and values `[q heads | k heads | v heads]`, and the gates `z` of the output.
 */
function loadQkvz(
  weights: WeightLoader,
  hiddenSize: number,
  d: DeltaNetConfig,
): { qkv: Weight; z: Weight } {
  const { nKHeads, nVHeads, kDim, vDim } = d;
  if (!weights.has(QKVZ)) {
    return {
      qkv: weights.matrix(QKV, qkvRows(d), hiddenSize),
      z: weights.matrix(Z, nVHeads * vDim, hiddenSize),
    };
  }
  // The rows of each key head: its query, its key, the values of its value heads, their gates.
  const values = nVHeads / nKHeads * vDim;
  const group = 2 * kDim + 2 * values;
  const tensor = weights.tensor(QKVZ, "weight", [nKHeads * group, hiddenSize]);
  const part = (offset: number, nRows: number): WeightSlice[] =>
    Array.from({ length: nKHeads }, (_, head) => {
      return { tensor, firstRow: head * group + offset, nRows };
    });
  return {
    qkv: weights.mapSlices(
      [...part(0, kDim), ...part(kDim, kDim), ...part(2 * kDim, values)],
      hiddenSize,
    ),
    z: weights.mapSlices(part(2 * kDim + values, values), hiddenSize),
  };
}

/**
 * Loads `b`, which sets how strongly a token is written to the state, and `a`, which sets how fast
 * the state decays: `[b heads | a heads]`.
 */
function loadBa(weights: WeightLoader, hiddenSize: number, d: DeltaNetConfig): Weight {
  const { nKHeads, nVHeads } = d;
  if (!weights.has(BA)) return weights.concat([[B, nVHeads], [A, nVHeads]], hiddenSize);
  // The rows of each key head: b and a of its value heads. Slices of so few rows would be too small
  // to map.
  const tensor = weights.tensor(BA, "weight", [2 * nVHeads, hiddenSize]);
  const perKey = nVHeads / nKHeads;
  const order = Array.from({ length: 2 * nVHeads }, (_, row) => {
    const head = row % nVHeads, isA = row >= nVHeads ? 1 : 0;
    return (2 * Math.floor(head / perKey) + isA) * perKey + head % perKey;
  });
  return weights.upload(
    tensor.type,
    order.length,
    hiddenSize,
    [tensor],
    () => readRows(tensor, order),
  );
}

/** Reads the rows of a tensor in another order. */
function readRows(tensor: TensorInfo, order: readonly number[]): Uint8Array<ArrayBuffer> {
  assertStored(tensor);
  using file = InputFile.open(tensor.file);
  const rowBytes = tensor.bytes / order.length;
  const bytes = new Uint8Array(tensor.bytes);
  order.forEach((from, to) => {
    const row = bytes.subarray(to * rowBytes, (to + 1) * rowBytes);
    file.readAt(tensor.offset + from * rowBytes, row);
  });
  return bytes;
}
