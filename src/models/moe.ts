/** Sparse mixtures of experts. */
import type { GatedUnit, Weight } from "../backend.ts";
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

export interface MoeParts {
  readonly nExperts: number;
  readonly topK: number;
  readonly intermediateSize: number;
  readonly normalize: boolean;
  /** @default the config's activation */
  readonly unit?: GatedUnit | undefined;
  /** Whether router and experts have biases. @default false */
  readonly hasBias?: boolean | undefined;
  readonly names: ExpertNames | StackedNames;
}

/** A sparse mixture of gated MLPs: a router picks `topK` experts for each token. */
export function loadMoe(weights: WeightLoader, c: DecoderConfig, parts: MoeParts): Block {
  const { nExperts, topK, intermediateSize, normalize, names } = parts;
  const { unit = c.activation, hasBias = false } = parts;
  const routerName: TensorName = [names.router, "ffn_gate_inp"];
  const router = weights.matrix(routerName, nExperts, c.hiddenSize);
  const routerBias = hasBias ? weights.vector(routerName, nExperts, "bias") : undefined;
  const { gateUp, gateUpBias, down, downBias } = loadExperts(weights, c.hiddenSize, parts);

  return ({ recorder }, x, residual) => {
    const logits = recorder.matmul(x, router, { bias: routerBias });
    const route = recorder.moeRoute(logits, { topK, normalize });
    const gated = recorder.moeMatmul(x, route, gateUp, nExperts, gateUpBias);
    const hidden = recorder.glu(gated, intermediateSize, unit);
    const out = recorder.moeMatmul(hidden, route, down, nExperts, downBias);
    return recorder.moeCombine(out, route, residual);
  };
}

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

interface Experts {
  /** `[nExperts x (gate | up), hiddenSize]` */
  readonly gateUp: Weight;
  readonly gateUpBias: Weight | undefined;
  /** `[nExperts x hiddenSize, intermediateSize]` */
  readonly down: Weight;
  readonly downBias: Weight | undefined;
}

function loadExperts(weights: WeightLoader, hiddenSize: number, parts: MoeParts): Experts {
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
