/** The expected speeds on Apple's GPUs; they need no GPU. */
import { assert, assertEquals } from "@std/assert";
import { APPLE_GPUS, expectedSpeed, predictApple } from "../../bench/gpu_model/metal.ts";

Deno.test("the model of Apple's GPUs meets its goals, or the lanes of the chip are too few", () => {
  const predictions = predictApple();
  for (const { name } of APPLE_GPUS) {
    const goals = predictions.filter(({ device, goal }) => device === name && goal !== undefined);
    const workloads = new Set(goals.map(({ workload }) => workload));
    assert(workloads.has("decode") && workloads.has("decode_attention"), name);
  }
  const missed = predictions.filter(({ share, goal }) => goal !== undefined && share < goal);
  for (const { device, model, type, workload, share, goal = 0 } of missed) {
    const what = `${workload} of ${model} ${type} on ${device}: ${share}, goal ${goal}`;
    // llama.cpp uses 83% of the lanes of an M4, of which 1.2 times is all of them.
    assert(workload === "prefill" && device.startsWith("M4") && goal > 0.99, what);
    assert(share > 0.83, what);
  }
});

Deno.test("the expected speed of a synthetic model is that of the GPU's name", () => {
  const decoded = expectedSpeed("Apple M4", "smollm2-135m:Q4_0", "decode") ?? 0;
  assert(decoded > 600, `${decoded} tokens/s`);
  const prompt = expectedSpeed("Apple M1", "llama-3.1-8b:Q4_K", "prefill") ?? 0;
  assert(prompt > 100 && prompt < 180, `${prompt} tokens/s`);
  assertEquals(expectedSpeed("Emulated Apple GPU", "llama-3.1-8b:Q4_K", "prefill"), undefined);
});
