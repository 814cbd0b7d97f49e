/** Sparse mixtures of experts. */
import type { GatedUnit, MoeRouteOptions, Recorder, Value, Weight } from "../backend.ts";
import { type Block, loadGatedMlp, type MlpNames } from "./blocks.ts";
import type { DecoderConfig } from "./decoder_config.ts";
import { type ExpertLayout, loadStackedBiases, loadStackedExperts } from "./stacked_experts.ts";
import type { TensorName, WeightLoader } from "./weight_loader.ts";

/** What Hugging Face's experts are called, with `{}` for the number of one. */
export interface ExpertNames {
  readonly router: string;
  readonly gate: string;
  readonly up: string;
  readonly down: string;
}

/** What Hugging Face's experts are called where one tensor holds all of them. */
export interface StackedNames extends ExpertLayout {
  readonly router: string;
  readonly gateUp: string;
  readonly down: string;
}

/** A mixture's sizes, its routing, and what its tensors are called. */
export interface MoeParts extends Omit<MoeRouteOptions, "bias"> {
  readonly nExperts: number;
  readonly intermediateSize: number;
  /** @default the config's activation */
  readonly unit?: GatedUnit | undefined;
  /** Whether router and experts have biases. @default false */
  readonly hasBias?: boolean | undefined;
  /** Where what is added to the scores for the choice alone stands, if anything is. */
  readonly choiceBias?: TensorName | undefined;
  /** The shape of that in Hugging Face folders. @default one dimension */
  readonly choiceBiasShape?: readonly number[] | undefined;
  readonly names: ExpertNames | StackedNames;
}

/** A sparse mixture of gated MLPs: a router picks `topK` experts for each token. */
export function loadMoe(weights: WeightLoader, c: DecoderConfig, parts: MoeParts): Block {
  const { nExperts, names, hasBias = false } = parts;
  const routerName: TensorName = [names.router, "ffn_gate_inp"];
  const router = weights.matrix(routerName, nExperts, c.hiddenSize);
  const bias = hasBias ? weights.vector(routerName, nExperts, "bias") : undefined;
  const experts = loadRoutedExperts(weights, c, parts);
  return ({ recorder }, x, residual) =>
    experts(recorder, recorder.matmul(x, router, { bias }), x, residual);
}

/** Records what experts do with `x`, given a router's logits. */
export type RoutedExperts = (
  recorder: Recorder,
  logits: Value,
  x: Value,
  residual?: Value,
) => Value;

/** A mixture's experts without their router. */
export function loadRoutedExperts(
  weights: WeightLoader,
  c: DecoderConfig,
  parts: MoeParts,
): RoutedExperts {
  const { nExperts, intermediateSize, unit = c.activation } = parts;
  const bias = parts.choiceBias && loadChoiceBias(weights, parts.choiceBias, parts);
  const { gateUp, gateUpBias, down, downBias } = loadExperts(weights, c.hiddenSize, parts);

  return (recorder, logits, x, residual) => {
    const route = recorder.moeRoute(logits, { ...parts, bias });
    const gated = recorder.moeMatmul(x, route, gateUp, nExperts, gateUpBias);
    const hidden = recorder.glu(gated, intermediateSize, unit);
    const out = recorder.moeMatmul(hidden, route, down, nExperts, downBias);
    return recorder.moeCombine(out, route, residual);
  };
}

function loadChoiceBias(weights: WeightLoader, name: TensorName, parts: MoeParts): Weight {
  const { nExperts, choiceBiasShape = [nExperts] } = parts;
  if (weights.isGguf) return weights.vector(name, nExperts, "bias");
  return weights.mapWhole(weights.tensor(name, "", choiceBiasShape), nExperts);
}

/** A mixture, and what all tokens go through. */
export interface SharedMoeParts extends MoeParts {
  /** An MLP that all tokens go through beside the experts, as far as its gate lets it. */
  readonly shared: {
    readonly intermediateSize: number;
    /** A weight of one row. */
    readonly gate: TensorName;
    readonly names: MlpNames;
  };
}

/** Experts beside an MLP whose result a gate of its own scales (Qwen2-MoE, Qwen3-Next, Qwen3.5). */
export function loadSharedMoe(
  weights: WeightLoader,
  c: DecoderConfig,
  parts: SharedMoeParts,
): Block {
  const { gate: gateName, ...mlp } = parts.shared;
  const experts = loadMoe(weights, c, parts);
  const shared = loadGatedMlp(weights, c, mlp);
  const gate = weights.isGguf
    ? weights.vector(gateName, c.hiddenSize)
    : weights.matrix(gateName, 1, c.hiddenSize);
  return (pass, x, residual) => {
    const { recorder } = pass;
    const routed = experts(pass, x, residual);
    return recorder.sigmoidGate(shared(pass, x), recorder.matmul(x, gate), routed);
  };
}

/** GGUF files may have gate and up in one tensor. */
const GATE_UP_EXPERTS: TensorName = [undefined, "ffn_gate_up_exps"];
const DOWN_EXPERTS: TensorName = [undefined, "ffn_down_exps"];

/** The matrices of all experts of a layer. */
export interface Experts {
  /** `[nExperts x (gate | up), hiddenSize]` */
  readonly gateUp: Weight;
  readonly gateUpBias: Weight | undefined;
  /** `[nExperts x hiddenSize, intermediateSize]` */
  readonly down: Weight;
  readonly downBias: Weight | undefined;
}

/** Those of a mixture, in whichever way they are stored. */
export function loadExperts(
  weights: WeightLoader,
  hiddenSize: number,
  parts: MoeParts,
): Experts {
  const { nExperts, intermediateSize, names, hasBias = false } = parts;
  if ("gateUp" in names && !weights.isGguf) {
    const gateUp = { nExperts, rows: 2 * intermediateSize, cols: hiddenSize, ...names };
    const down = { ...gateUp, rows: hiddenSize, cols: intermediateSize, isInterleaved: false };
    return {
      gateUp: loadStackedExperts(weights, names.gateUp, gateUp),
      gateUpBias: hasBias ? loadStackedBiases(weights, names.gateUp, gateUp) : undefined,
      down: loadStackedExperts(weights, names.down, down),
      downBias: hasBias ? loadStackedBiases(weights, names.down, down) : undefined,
    };
  }
  if (weights.has(GATE_UP_EXPERTS)) {
    const gateUp = weights.tensor(GATE_UP_EXPERTS, "weight", [
      nExperts,
      2 * intermediateSize,
      hiddenSize,
    ]);
    const down = weights.tensor(DOWN_EXPERTS, "weight", [nExperts, hiddenSize, intermediateSize]);
    return {
      gateUp: weights.mapWhole(gateUp, hiddenSize),
      gateUpBias: undefined,
      down: weights.mapWhole(down, intermediateSize),
      downBias: undefined,
    };
  }
  const own = "gate" in names ? names : undefined;
  const gateUpRows = [
    [[own?.gate, "ffn_gate_exps"], intermediateSize],
    [[own?.up, "ffn_up_exps"], intermediateSize],
  ] as const;
  const downRows = [[[own?.down, "ffn_down_exps"], hiddenSize]] as const;
  const biasOf = (rows: typeof gateUpRows | typeof downRows) =>
    hasBias ? weights.expertBiases(rows, nExperts) : undefined;
  return {
    gateUp: weights.experts(gateUpRows, nExperts, hiddenSize),
    gateUpBias: biasOf(gateUpRows),
    down: weights.experts(downRows, nExperts, intermediateSize),
    downBias: biasOf(downRows),
  };
}
