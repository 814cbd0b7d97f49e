/** Sparse mixtures of experts. */
import type { TensorInfo } from "../../formats/tensor_info.ts";
import type { GatedUnit, MoeRouteOptions, Recorder, Value, Weight } from "../../backend.ts";
import { type Block, loadGatedMlp, type MlpNames } from "./blocks.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import {
  type ExpertLayout,
  loadStackedBiases,
  loadStackedExperts,
} from "../weights/stacked_experts.ts";
import { rowsOf, type Span } from "../weights/division.ts";
import type { ExpertPart, TensorName, WeightLoader } from "../weights/weight_loader.ts";

/**
 * Names in Hugging Face folders that hold each expert in its own tensors. `{}` stands for its
 * number.
 */
interface ExpertNames {
  readonly router: string;
  readonly gate: string;
  readonly up: string;
  readonly down: string;
}

/** The names that most families use. */
export const MLP_EXPERTS: ExpertNames = {
  router: "mlp.gate",
  gate: "mlp.experts.{}.gate_proj",
  up: "mlp.experts.{}.up_proj",
  down: "mlp.experts.{}.down_proj",
};

/** The names of Mixtral and Phi-MoE. */
export const MIXTRAL_EXPERTS: ExpertNames = {
  router: "block_sparse_moe.gate",
  gate: "block_sparse_moe.experts.{}.w1",
  up: "block_sparse_moe.experts.{}.w3",
  down: "block_sparse_moe.experts.{}.w2",
};

/** Names in Hugging Face folders that hold all experts of a layer in one tensor. */
interface StackedNames extends Omit<ExpertLayout, "isTransposed"> {
  /** As in {@linkcode ExpertLayout}; "either" for models that are published in both layouts. */
  readonly isTransposed?: boolean | "either";
  readonly router: string;
  readonly gateUp: string;
  readonly down: string;
}

/** Sizes, routing and tensor names of a mixture. */
export interface MoeParts extends Omit<MoeRouteOptions, "bias"> {
  readonly nExperts: number;
  readonly intermediateSize: number;
  /** @default the config's activation */
  readonly unit?: GatedUnit | undefined;
  /** True if router and experts have biases. @default false */
  readonly hasBias?: boolean | undefined;
  /** A bias of the scores that affects the choice of experts, not their weights. */
  readonly choiceBias?: TensorName | undefined;
  /** The usual shape of `choiceBias`. @default one dimension */
  readonly choiceBiasShape?: readonly number[] | undefined;
  /** The usual names. Files that stack or split experts use names derived from these. */
  readonly names: ExpertNames | StackedNames;
}

/** Reads the number of experts, and the number chosen for each token. */
export function readExpertCounts(
  config: ConfigReader,
  count: Key,
  chosen: Key = ["num_experts_per_tok", "expert_used_count"],
): Pick<MoeParts, "nExperts" | "topK"> {
  const nExperts = config.int(count);
  return { nExperts, topK: config.int(chosen, { max: nExperts }) };
}

/** Loads a sparse mixture of gated MLPs: a router picks `topK` experts for each token. */
export function loadMoe(weights: WeightLoader, c: DecoderConfig, parts: MoeParts): Block {
  const { nExperts, names, hasBias = false } = parts;
  const routerName: TensorName = [names.router, "ffn_gate_inp"];
  const router = weights.matrix(routerName, nExperts, c.hiddenSize);
  const bias = hasBias ? weights.vector(routerName, nExperts, "bias") : undefined;
  const experts = loadRoutedExperts(weights, c, parts);
  return ({ recorder }, x, residual) =>
    experts(recorder, recorder.matmul(x, router, { bias }), x, residual);
}

/** Records the experts' output for `x`, given the router's logits. */
type RoutedExperts = (
  recorder: Recorder,
  logits: Value,
  x: Value,
  residual?: Value,
) => Value;

/** Loads the experts of a mixture without their router. */
export function loadRoutedExperts(
  weights: WeightLoader,
  c: DecoderConfig,
  parts: MoeParts,
): RoutedExperts {
  const { nExperts, unit = c.activation } = parts;
  const { choiceBias, choiceBiasShape = [nExperts] } = parts;
  const bias = choiceBias &&
    weights.row(choiceBias, nExperts, choiceBiasShape, ["", "bias"]);
  const { rank } = weights;
  const { gateUp, gateUpBias, down, downBias } = loadExperts(weights, c.hiddenSize, parts);

  return (recorder, logits, x, residual) => {
    const route = recorder.moeRoute(logits, { ...parts, bias });
    const gated = recorder.moeMatmul(x, route, gateUp, nExperts, gateUpBias);
    const hidden = recorder.glu(gated, down.cols, unit);
    // The first of the ranks that divide the experts adds bias and residual.
    const isFirst = rank.index === 0;
    const out = recorder.moeMatmul(hidden, route, down, nExperts, isFirst ? downBias : undefined);
    const mixed = recorder.moeCombine(out, route, isFirst ? residual : undefined);
    return rank.count === 1 ? mixed : recorder.allReduce(mixed);
  };
}

/** A mixture with a gated shared expert. */
export interface SharedMoeParts extends MoeParts {
  /** The MLP that all tokens pass through. A sigmoid gate scales its output. */
  readonly shared: {
    readonly intermediateSize: number;
    /** Weight of the gate, `[1, hiddenSize]`. */
    readonly gate: TensorName;
    readonly names: MlpNames;
  };
}

/** Loads experts next to a shared expert with a gate (Qwen2-MoE, Qwen3-Next, Qwen3.5). */
export function loadSharedMoe(
  weights: WeightLoader,
  c: DecoderConfig,
  parts: SharedMoeParts,
): Block {
  const { gate: gateName, ...mlp } = parts.shared;
  const experts = loadMoe(weights, c, parts);
  const shared = loadGatedMlp(weights, c, mlp);
  const gate = weights.row(gateName, c.hiddenSize, [1, c.hiddenSize]);
  return (pass, x, residual) => {
    const { recorder } = pass;
    const routed = experts(pass, x, residual);
    return recorder.sigmoidGate(shared(pass, x), recorder.matmul(x, gate), routed);
  };
}

const GATE_EXPERTS = "ffn_gate_exps";
const UP_EXPERTS = "ffn_up_exps";
/** Some GGUF files hold gate and up in one tensor. */
const GATE_UP_EXPERTS: TensorName = [undefined, "ffn_gate_up_exps"];
const DOWN_EXPERTS: TensorName = [undefined, "ffn_down_exps"];

/** The matrices of all experts of a layer. */
interface Experts {
  /** `[nExperts x (gate | up), hiddenSize]` */
  readonly gateUp: Weight;
  readonly gateUpBias: Weight | undefined;
  /** `[nExperts x hiddenSize, intermediateSize]` */
  readonly down: Weight;
  readonly downBias: Weight | undefined;
}

/** Loads the experts of a mixture, stacked or one by one, with their adapters. */
export function loadExperts(
  weights: WeightLoader,
  hiddenSize: number,
  parts: MoeParts,
): Experts {
  const experts = loadStoredExperts(weights, hiddenSize, parts);
  const { nExperts, intermediateSize: size, names } = parts;
  const single = singleNames(names), stacked = stackedNames(names);
  const isInterleaved = "gateUp" in names && names.isInterleaved;
  const gateUp: ExpertPart[] = [
    { name: [single?.gate, GATE_EXPERTS], span: [0, size] },
    { name: [single?.up, UP_EXPERTS], span: [size, size] },
    ...stacked.map(({ gateUp }): ExpertPart => ({
      name: [gateUp, undefined],
      span: [0, 2 * size],
      isInterleaved,
    })),
    { name: GATE_UP_EXPERTS, span: [0, 2 * size] },
  ];
  const down: ExpertPart[] = [
    { name: [single?.down, DOWN_EXPERTS[1]], span: [0, hiddenSize] },
    ...stacked.map(({ down }): ExpertPart => ({ name: [down, undefined], span: [0, hiddenSize] })),
  ];
  return {
    ...experts,
    gateUp: weights.adaptExperts(experts.gateUp, nExperts, gateUp),
    down: weights.adaptExperts(experts.down, nExperts, down),
  };
}

function loadStoredExperts(
  weights: WeightLoader,
  hiddenSize: number,
  parts: MoeParts,
): Experts {
  const { nExperts, intermediateSize, hasBias = false } = parts;
  const names = weights.isGguf ? undefined : storedNames(weights, hiddenSize, parts);
  const { rank } = weights;
  if (names !== undefined && "gateUp" in names) {
    if (rank.count > 1) return divideStacked(weights, hiddenSize, parts, names);
    const gateUp = { nExperts, rows: 2 * intermediateSize, cols: hiddenSize, ...names };
    const down = { ...gateUp, rows: hiddenSize, cols: intermediateSize, isInterleaved: false };
    const load = (name: string, shape: typeof gateUp, gguf: readonly string[]) => {
      const parts = gguf.map((part) => [part, shape.rows / gguf.length] as const);
      const weight = loadStackedExperts(weights, name, shape);
      weights.noteExperts(weight, parts, nExperts);
      const bias = hasBias ? loadStackedBiases(weights, name, shape) : undefined;
      if (bias !== undefined) weights.noteExpertBiases(bias, parts);
      return [weight, bias] as const;
    };
    const [gateUpWeight, gateUpBias] = load(names.gateUp, gateUp, [GATE_EXPERTS, UP_EXPERTS]);
    const [downWeight, downBias] = load(names.down, down, ["ffn_down_exps"]);
    return { gateUp: gateUpWeight, gateUpBias, down: downWeight, downBias };
  }
  if (weights.has(GATE_UP_EXPERTS)) {
    const gateUp = weights.tensor(GATE_UP_EXPERTS, "weight", [
      nExperts,
      2 * intermediateSize,
      hiddenSize,
    ]);
    const down = weights.tensor(DOWN_EXPERTS, "weight", [nExperts, hiddenSize, intermediateSize]);
    if (rank.count > 1) {
      return divideTensors(weights, gateUp, down, weights.ownColumns(DOWN_EXPERTS, down.shape));
    }
    const mapped = {
      gateUp: weights.mapWhole(gateUp, hiddenSize),
      gateUpBias: undefined,
      down: weights.mapWhole(down, intermediateSize),
      downBias: undefined,
    };
    weights.noteExperts(mapped.gateUp, [[GATE_UP_EXPERTS[1], 2 * intermediateSize]], nExperts);
    weights.noteExperts(mapped.down, [[DOWN_EXPERTS[1], hiddenSize]], nExperts);
    return mapped;
  }
  const own = weights.isGguf
    ? weights.ownColumns(DOWN_EXPERTS, [nExperts, hiddenSize, intermediateSize])
    : weights.ownColumns([names?.down.replace("{}", "0"), undefined], [
      hiddenSize,
      intermediateSize,
    ]);
  const gateUpRows = [
    [[names?.gate, GATE_EXPERTS], intermediateSize, [own]],
    [[names?.up, UP_EXPERTS], intermediateSize, [own]],
  ] as const;
  const downRows = [[[names?.down, "ffn_down_exps"], hiddenSize]] as const;
  const biasOf = (rows: typeof gateUpRows | typeof downRows) =>
    hasBias ? weights.expertBiases(rows, nExperts) : undefined;
  return {
    gateUp: weights.experts(gateUpRows, nExperts, hiddenSize),
    gateUpBias: biasOf(gateUpRows),
    down: weights.experts(downRows, nExperts, intermediateSize, own),
    downBias: biasOf(downRows),
  };
}

/** Loads a rank's part of experts that a folder stacks. */
function divideStacked(
  weights: WeightLoader,
  hiddenSize: number,
  { nExperts, intermediateSize, hasBias = false }: MoeParts,
  names: StackedNames & ExpertLayout,
): Experts {
  const isReordered = names.isTransposed || names.isInterleaved ||
    weights.has([`${names.down}_blocks`, undefined], "");
  if (isReordered || hasBias) weights.assertWhole("stored layout of experts");
  const gateUp = weights.tensor([names.gateUp, undefined], "", [
    nExperts,
    2 * intermediateSize,
    hiddenSize,
  ]);
  const shape = [nExperts, hiddenSize, intermediateSize];
  const down = weights.tensor([names.down, undefined], "", shape);
  const own = weights.ownColumns([names.down, undefined], shape, "");
  return divideTensors(weights, gateUp, down, own);
}

/**
 * Loads a rank's part of tensors that stack all experts: its units of gate and up, and its columns.
 */
function divideTensors(
  weights: WeightLoader,
  gateUp: TensorInfo,
  down: TensorInfo,
  own: Span,
): Experts {
  const [, hiddenSize = 0, intermediateSize = 0] = down.shape;
  const units = [own, rowsOf(own, 1, intermediateSize)];
  return {
    gateUp: weights.stackedParts(gateUp, units, [0, hiddenSize]),
    gateUpBias: undefined,
    down: weights.stackedParts(down, [[0, hiddenSize]], own),
    downBias: undefined,
  };
}

const GATE_UP = ".gate_up_proj";

/** Returns the names of single experts, as most quantisers write them; `undefined` without any. */
function singleNames(names: ExpertNames | StackedNames): ExpertNames | undefined {
  if (!("gateUp" in names)) return names;
  const { router, gateUp } = names;
  if (!gateUp.endsWith(GATE_UP)) return undefined;
  const single = (part: string) => `${gateUp.slice(0, -GATE_UP.length)}.{}.${part}_proj`;
  return { router, gate: single("gate"), up: single("up"), down: single("down") };
}

/** Returns the names of stacked experts: those of the folder, and those of transformers 5. */
function stackedNames(
  names: ExpertNames | StackedNames,
): readonly Pick<StackedNames, "gateUp" | "down">[] {
  const of = (experts: string) => ({ gateUp: experts + GATE_UP, down: `${experts}.down_proj` });
  if (!("gateUp" in names)) return [of(names.gate.split(".{}.")[0]!)];
  if (names.gateUp.endsWith(GATE_UP)) return [names];
  return [names, of(names.gateUp.replace(/[^.]+\.weight$/, "experts"))];
}

/**
 * Returns the names under which a folder holds experts. Some versions of transformers stack experts
 * that were published one by one; most quantisers split experts that were published as one tensor.
 */
function storedNames(
  weights: WeightLoader,
  hiddenSize: number,
  { names, nExperts, intermediateSize }: MoeParts,
): ExpertNames | (StackedNames & ExpertLayout) {
  if (!("gateUp" in names)) {
    const stacked = stackedNames(names)[0]!;
    const isStacked = weights.has([stacked.gateUp, undefined], "");
    return isStacked ? { router: names.router, ...stacked } : names;
  }
  const { gateUp, down } = names;
  const single = singleNames(names);
  if (single !== undefined && weights.has([single.gate.replace("{}", "0"), undefined])) {
    return single;
  }
  const { isTransposed = false } = names;
  if (isTransposed !== "either") return { ...names, isTransposed };
  // The shape of one tensor may fit both layouts if two of the sizes are equal; both tensors
  // together do not.
  const isUpright = (name: string, rows: number, cols: number) =>
    weights.hasShape([name, undefined], "", [nExperts, rows, cols]);
  const areUpright = isUpright(gateUp, 2 * intermediateSize, hiddenSize) &&
    isUpright(down, hiddenSize, intermediateSize);
  return { ...names, isTransposed: !areUpright };
}

/** Experts without gates, `down(max(up(x), 0)^2)`. */
export interface PlainExpertParts extends Omit<MoeRouteOptions, "bias"> {
  readonly nExperts: number;
  readonly intermediateSize: number;
  /** Columns of the experts' input and output. */
  readonly inputSize: number;
  /** As in {@linkcode MoeParts}. */
  readonly choiceBias: TensorName;
  /** `{}` stands for the number of an expert. */
  readonly names: Readonly<Record<"up" | "down", TensorName>>;
}

/** Loads experts without gates and without their router. */
export function loadPlainExperts(weights: WeightLoader, parts: PlainExpertParts): RoutedExperts {
  weights.assertWhole("experts without gates");
  const { nExperts, intermediateSize, inputSize, choiceBias, names } = parts;
  const bias = weights.row(choiceBias, nExperts, [nExperts], weights.isGguf ? "bias" : "");
  const load = (name: TensorName, rows: number, cols: number) => {
    const stacked = name[0]?.replace(".{}", "");
    const span = [0, rows] as const;
    return weights.adaptExperts(weights.experts([[name, rows]], nExperts, cols), nExperts, [
      { name, span },
      { name: [stacked, undefined], span },
    ]);
  };
  const up = load(names.up, intermediateSize, inputSize);
  const down = load(names.down, inputSize, intermediateSize);
  return (recorder, logits, x, residual) => {
    const route = recorder.moeRoute(logits, { ...parts, bias });
    // max(x, 0)^2 is an xIELU.
    const squared = { alphaP: 1, alphaN: 0, beta: 0, eps: 0 };
    const hidden = recorder.xielu(recorder.moeMatmul(x, route, up, nExperts), squared);
    return recorder.moeCombine(recorder.moeMatmul(hidden, route, down, nExperts), route, residual);
  };
}
