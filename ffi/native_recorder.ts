import type {
  AttentionOptions,
  CausalConv1dOptions,
  ColumnPiece,
  GatedDeltaRuleOptions,
  GatedRmsNormOptions,
  GatedUnit,
  KvCache,
  MatmulOptions,
  MoeRouteOptions,
  Recorder,
  RmsNormOptions,
  RopeAppendOptions,
  StateCache,
  Step,
  Value,
  Weight,
} from "../src/backend.ts";
import { ForgeError } from "../src/errors.ts";
import {
  ACTIVATIONS,
  GATED_UNITS,
  HEAD_ORDERS,
  packPieces,
  ROPE_LAYOUTS,
  ROUTER_SCORES,
} from "./abi/numbers.ts";
import type { NativeHandles } from "./native_handles.ts";
import { NativeStep } from "./native_step.ts";

/** Records a step through the ABI, one call an operation. */
export class NativeRecorder implements Recorder {
  readonly #native: NativeHandles;
  readonly #step: number;
  readonly #out = new Uint32Array(1);
  #maxTop = 0;

  constructor(native: NativeHandles, step: number) {
    this.#native = native;
    this.#step = step;
  }

  #value(operation: string, status: number): Value {
    this.#native.check(status, operation, this.#step);
    return this.#out[0] as Value;
  }

  embed(weight: Weight, scale = 1): Value {
    const { forge_embed } = this.#native.symbols;
    assertPlainOrder(weight);
    return this.#value("embed", forge_embed(this.#step, weight.handle, scale, this.#out));
  }

  rmsNorm(x: Value, weight: Weight, options: RmsNormOptions): Value {
    const { forge_rms_norm } = this.#native.symbols;
    const { eps, weightOffset = 0, residual = 0 } = options;
    return this.#value(
      "rms_norm",
      forge_rms_norm(this.#step, x, weight.handle, eps, weightOffset, residual, this.#out),
    );
  }

  layerNorm(x: Value, weight: Weight, bias: Weight | undefined, eps: number): Value {
    const { forge_layer_norm } = this.#native.symbols;
    return this.#value(
      "layer_norm",
      forge_layer_norm(this.#step, x, weight.handle, bias?.handle ?? 0, eps, this.#out),
    );
  }

  matmul(x: Value, weight: Weight, options: MatmulOptions = {}): Value {
    const { forge_matmul } = this.#native.symbols;
    const input = this.#inOrder(x, weight);
    const { bias, alpha = 1, activation = "identity", residual = 0 } = options;
    return this.#value(
      "matmul",
      forge_matmul(
        this.#step,
        input,
        weight.handle,
        bias?.handle ?? 0,
        alpha,
        ACTIVATIONS[activation],
        residual,
        this.#out,
      ),
    );
  }

  headMatmul(x: Value, weight: Weight, nHeads: number): Value {
    const { forge_head_matmul } = this.#native.symbols;
    assertPlainOrder(weight);
    return this.#value(
      "head_matmul",
      forge_head_matmul(this.#step, x, weight.handle, nHeads, this.#out),
    );
  }

  ropeTable(invFreq: Weight, scale: number): Value {
    const { forge_rope_table } = this.#native.symbols;
    return this.#value(
      "rope_table",
      forge_rope_table(this.#step, invFreq.handle, scale, this.#out),
    );
  }

  ropeAppend(qkv: Value, kv: KvCache, options: RopeAppendOptions): Value {
    const { forge_rope_append } = this.#native.symbols;
    const { nHeads, qNorm, kNorm, eps, weightOffset = 0, rope = 0, ropeLayout } = options;
    return this.#value(
      "rope_append",
      forge_rope_append(
        this.#step,
        qkv,
        kv.handle,
        nHeads,
        qNorm?.handle ?? 0,
        kNorm?.handle ?? 0,
        eps,
        weightOffset,
        rope,
        ROPE_LAYOUTS[ropeLayout],
        this.#out,
      ),
    );
  }

  attention(q: Value, kv: KvCache, options: AttentionOptions): Value {
    const { forge_attention } = this.#native.symbols;
    const { nHeads, scale, window = 0, softcap = 0, sinks } = options;
    return this.#value(
      "attention",
      forge_attention(
        this.#step,
        q,
        kv.handle,
        nHeads,
        scale,
        window,
        softcap,
        sinks?.handle ?? 0,
        this.#out,
      ),
    );
  }

  glu(x: Value, width: number, unit: GatedUnit): Value {
    const { forge_glu } = this.#native.symbols;
    return this.#value(
      "glu",
      forge_glu(this.#step, x, width, GATED_UNITS[unit], this.#out),
    );
  }

  sigmoidGate(x: Value, gate: Value, residual?: Value): Value {
    const { forge_sigmoid_gate } = this.#native.symbols;
    return this.#value(
      "sigmoid_gate",
      forge_sigmoid_gate(this.#step, x, gate, residual ?? 0, this.#out),
    );
  }

  gatedRmsNorm(x: Value, gate: Value, weight: Weight, options: GatedRmsNormOptions): Value {
    const { forge_gated_rms_norm } = this.#native.symbols;
    const { eps, activation } = options;
    return this.#value(
      "gated_rms_norm",
      forge_gated_rms_norm(
        this.#step,
        x,
        gate,
        weight.handle,
        eps,
        ACTIVATIONS[activation],
        this.#out,
      ),
    );
  }

  causalConv1d(x: Value, weight: Weight, state: StateCache, options: CausalConv1dOptions): Value {
    const { forge_causal_conv1d } = this.#native.symbols;
    return this.#value(
      "causal_conv1d",
      forge_causal_conv1d(
        this.#step,
        x,
        weight.handle,
        options.bias?.handle ?? 0,
        state.handle,
        ACTIVATIONS[options.activation],
        this.#out,
      ),
    );
  }

  gatedDeltaRule(
    qkv: Value,
    ba: Value,
    state: StateCache,
    options: GatedDeltaRuleOptions,
  ): Value {
    const { forge_gated_delta_rule } = this.#native.symbols;
    const { rate, dtBias, nKHeads, headOrder, scale, eps } = options;
    return this.#value(
      "gated_delta_rule",
      forge_gated_delta_rule(
        this.#step,
        qkv,
        ba,
        rate.handle,
        dtBias.handle,
        state.handle,
        nKHeads,
        HEAD_ORDERS[headOrder],
        scale,
        eps,
        this.#out,
      ),
    );
  }

  gatherColumns(pieces: readonly ColumnPiece[], nGroups: number): Value {
    const { forge_gather_columns } = this.#native.symbols;
    return this.#value(
      "gather_columns",
      forge_gather_columns(
        this.#step,
        packPieces(pieces),
        BigInt(pieces.length),
        nGroups,
        this.#out,
      ),
    );
  }

  permuteColumns(x: Value, order: Uint32Array<ArrayBuffer>, cols: number, route?: Value): Value {
    const { forge_permute_columns } = this.#native.symbols;
    return this.#value(
      "permute_columns",
      forge_permute_columns(
        this.#step,
        x,
        route ?? 0,
        order,
        BigInt(Math.floor(order.length / cols)),
        BigInt(cols),
        this.#out,
      ),
    );
  }

  /** The columns of `x` in the order of a weight's; with experts in that of each. */
  #inOrder(x: Value, { columnOrder, cols }: Weight, route?: Value): Value {
    if (columnOrder === undefined) return x;
    return this.permuteColumns(x, columnOrder, cols, route);
  }

  moeRoute(logits: Value, options: MoeRouteOptions): Value {
    const { forge_moe_route } = this.#native.symbols;
    const { topK, normalize, scale = 1, scores = "softmax", bias, expertScales } = options;
    const { nGroups = 1, topGroups = nGroups } = options;
    return this.#value(
      "moe_route",
      forge_moe_route(
        this.#step,
        logits,
        topK,
        normalize ? 1 : 0,
        scale,
        ROUTER_SCORES[scores],
        bias?.handle ?? 0,
        expertScales?.handle ?? 0,
        nGroups,
        topGroups,
        this.#out,
      ),
    );
  }

  moeMatmul(x: Value, route: Value, weight: Weight, nExperts: number, bias?: Weight): Value {
    const { forge_moe_matmul } = this.#native.symbols;
    const input = this.#inOrder(x, weight, route);
    return this.#value(
      "moe_matmul",
      forge_moe_matmul(
        this.#step,
        input,
        route,
        weight.handle,
        bias?.handle ?? 0,
        nExperts,
        this.#out,
      ),
    );
  }

  moeCombine(x: Value, route: Value, residual?: Value): Value {
    const { forge_moe_combine } = this.#native.symbols;
    return this.#value(
      "moe_combine",
      forge_moe_combine(this.#step, x, route, residual ?? 0, this.#out),
    );
  }

  gatherOutputs(x: Value): Value {
    const { forge_gather_outputs } = this.#native.symbols;
    return this.#value("gather_outputs", forge_gather_outputs(this.#step, x, this.#out));
  }

  softcap(x: Value, cap: number): Value {
    const { forge_softcap } = this.#native.symbols;
    return this.#value("softcap", forge_softcap(this.#step, x, cap, this.#out));
  }

  clamp(x: Value, limit: number): Value {
    const { forge_clamp } = this.#native.symbols;
    return this.#value("clamp", forge_clamp(this.#step, x, limit, this.#out));
  }

  sample(logits: Value, maxTop: number): void {
    const { forge_sample } = this.#native.symbols;
    this.#native.check(forge_sample(this.#step, logits, maxTop), "sample", this.#step);
    this.#maxTop = maxTop;
  }

  keep(value: Value): void {
    const { forge_step_keep } = this.#native.symbols;
    this.#native.check(forge_step_keep(this.#step, value), "keep", this.#step);
  }

  async finish(): Promise<Step> {
    const scratchBytes = new BigUint64Array(1);
    await this.#native.call(
      "preparing a step",
      this.#step,
      (symbols) => symbols.forge_step_end(this.#step, scratchBytes),
    );
    return new NativeStep(this.#native, this.#step, this.#maxTop, Number(scratchBytes[0]));
  }
}

/** Rejects a weight whose columns are in an order of their own, where only products follow it. */
function assertPlainOrder({ columnOrder }: Weight): void {
  if (columnOrder === undefined) return;
  throw new ForgeError(
    "unsupported",
    "a matrix whose columns GPTQ has put into another order (desc_act) is to be used for " +
      "something else than products; forge does that with matrices in order alone",
  );
}
