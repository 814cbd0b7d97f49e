/** The costs of products, counted in compiled kernels. */
import { assert, assertEquals } from "@std/assert";
import { GEMM, SLOW_OPERATIONS } from "../../../bench/gpu_model/metal.ts";
import { addressSpacesUnavailable } from "./address_spaces.ts";
import { issueSlots, kernelOperations, quarterRate } from "./instructions.ts";

const unavailable = await addressSpacesUnavailable();
if (unavailable) console.error(`skipping: ${unavailable}`);

/** Rows that a lane of matvec multiplies together. */
const ROWS = 4;
/** Weights of a row that a lane of matvec unpacks in a round. */
const WEIGHTS = { F16: 4, Q8_0: 8, Q4_0: 16, Q4_K: 32, Q6_K: 16 } as const;

Deno.test({
  name: "unpacking weights takes few operations that Apple's GPUs perform slowly",
  ignore: unavailable !== undefined,
  fn: async () => {
    const types = Object.keys(SLOW_OPERATIONS) as (keyof typeof SLOW_OPERATIONS)[];
    const instanceOf = (type: string) => `matvec<Format${type}, 1>`;
    const kernels = await kernelOperations("matvec", types.map(instanceOf));
    for (const type of types) {
      const { loop } = kernels.get(instanceOf(type))!;
      const weights = WEIGHTS[type], most = SLOW_OPERATIONS[type];
      // Each weight is multiplied and added by a call of fmuladd or dot.
      assert((loop.get("call") ?? 0) >= ROWS * weights, `${type}: no loop over weights`);
      const each = quarterRate(loop) / (ROWS * weights);
      assert(each <= most, `${type}: ${each} for each weight, at most ${most}`);
    }
  },
});

Deno.test({
  name: "products of prompts load few matrices, and unpack a weight once for all tokens",
  ignore: unavailable !== undefined,
  fn: async () => {
    const types = Object.keys(GEMM.unpackSlots) as (keyof typeof GEMM.unpackSlots)[];
    const instanceOf = (type: string) => `gemm<Format${type}>`;
    const kernels = await kernelOperations("gemm", types.map(instanceOf));
    for (const type of types) {
      const { loop, widest } = kernels.get(instanceOf(type))!;
      // 64 x 64 weights of a step, by 128 threads.
      const weights = 32;
      assert(quarterRate(loop) / weights <= 1.1, `${type}: ${quarterRate(loop)} slow operations`);
      const slots = issueSlots(loop) / weights, most = GEMM.unpackSlots[type];
      assert(slots <= most, `${type}: ${slots} for each weight, at most ${most}`);
      const multiplies = widest.get("simdgroup_multiply_accumulate") ?? 0;
      // All of a step in one block: nothing between its products but loads of matrices.
      assertEquals(multiplies, 8 * 16, type);
      const loads = widest.get("simdgroup_load") ?? 0;
      assert(loads <= GEMM.loads * multiplies, `${type}: ${loads} for ${multiplies} products`);
    }
  },
});
