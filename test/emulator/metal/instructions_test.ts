/** The cost of unpacking weights, counted in compiled kernels. */
import { assert } from "@std/assert";
import { addressSpacesUnavailable } from "./address_spaces.ts";
import { loopOperations, quarterRate } from "./instructions.ts";

const unavailable = await addressSpacesUnavailable();
if (unavailable) console.error(`skipping: ${unavailable}`);

/** Rows that a lane of matvec multiplies together. */
const ROWS = 4;

/**
 * Formats, the weights of a row that a lane unpacks in a round of matvec, and the most operations
 * for each weight that Apple's GPUs perform slowly. At one for each weight of 4 bits, an M4 Max
 * would spend half of its time in them while it reads at its memory's full speed.
 */
const LIMITS = [
  ["F16", 4, 0],
  ["Q8_0", 8, 0.35],
  ["Q4_0", 16, 0.2],
  ["Q4_K", 32, 0.75],
  ["Q6_K", 16, 0.8],
] as const;

Deno.test({
  name: "unpacking weights takes few operations that Apple's GPUs perform slowly",
  ignore: unavailable !== undefined,
  fn: async () => {
    const instanceOf = (type: string) => `matvec<Format${type}, 1>`;
    const loops = await loopOperations("matvec", LIMITS.map(([type]) => instanceOf(type)));
    for (const [type, weights, most] of LIMITS) {
      const operations = loops.get(instanceOf(type))!;
      // Each weight is multiplied and added by a call of fmuladd.
      assert((operations.get("call") ?? 0) >= ROWS * weights, `${type}: no loop over weights`);
      const each = quarterRate(operations) / (ROWS * weights);
      assert(each <= most, `${type}: ${each} for each weight, at most ${most}`);
    }
  },
});
