/** Tests the expected times of all-reduces, and the division of a model among GPUs. */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import {
  allReduceTime,
  DIVIDED_MODELS,
  NVLINK,
  partOf,
  PCIE,
} from "../../../bench/gpu_model/tensor_parallel.ts";

Deno.test("an all-reduce takes its latency when small, and its bandwidth when large", () => {
  for (const link of [NVLINK, PCIE]) {
    assertEquals(allReduceTime(1 << 20, 1, link), 0);
    for (const devices of [2, 4, 8]) {
      const hops = 2 * (devices - 1);
      assertAlmostEquals(allReduceTime(0, devices, link), 6.6 + hops * link.hops.LL);
      // 1 GB: what each GPU sends, at the speed of the link.
      const sent = hops / devices * 1e9;
      const time = allReduceTime(1e9, devices, link);
      assertAlmostEquals(time / (sent / (1e3 * link.bandwidth)), 1, 0.02);
      assert(allReduceTime(1e6, devices, link) > allReduceTime(1e3, devices, link));
    }
  }
  // The token of a 70B model on two and eight GPUs: 8 to 16 us.
  assert(allReduceTime(4 * 8192, 2, NVLINK) > 7.5 && allReduceTime(4 * 8192, 8, NVLINK) < 16);
});

Deno.test("the parts of a divided model are whole, and together the model", () => {
  for (const { shape } of DIVIDED_MODELS) {
    for (const devices of [1, 2, 4, 8, 16]) {
      const part = partOf(shape, devices);
      assertEquals(part.nHeads * devices, shape.nHeads);
      assertEquals(part.intermediateSize * devices, shape.intermediateSize);
      assertEquals(part.vocabSize * devices, shape.vocabSize);
      assertEquals(part.nKvHeads, devices > shape.nKvHeads ? 1 : shape.nKvHeads / devices);
      assertEquals([part.hiddenSize, part.nLayers], [shape.hiddenSize, shape.nLayers]);
      for (const size of Object.values(part)) {
        if (typeof size === "number") assert(Number.isInteger(size), `${size}`);
      }
    }
  }
});
