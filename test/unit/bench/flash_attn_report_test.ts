import { assertEquals, assertStringIncludes } from "@std/assert";
import { describeRace } from "../../../bench/flash_attn.ts";
import type {
  FlashDecodePrediction,
  FlashPrediction,
} from "../../../bench/gpu_model/flash_model.ts";

Deno.test("describeRace: names failed checks, prints a dash for unsupported cases, and shares of the limits and expectations", () => {
  const expectation = (model: string, teraflops: number): FlashPrediction => ({
    ...{ device: "H100", model, type: "BF16", workload: "prefill", batch: 4, depth: 4096 },
    ...{ time_us: 1, limit_us: 1, share: 1, teraflops },
  });
  const expected = [
    expectation("flash_attn 128 causal", 582),
    expectation("flash_attn SM80 128 causal", 380),
    { ...expectation("flash_attn 128 causal varlen", 580), depth: 8192 },
    expectation("flash_attn masked 128", 250),
  ];
  const decode: FlashDecodePrediction = {
    ...{
      device: "H100",
      model: "flash_attn 128, 8 KV heads",
      type: "BF16",
      batch: 16,
      depth: 8192,
    },
    ...{ workload: "decode_attention", kvHeads: 8, time_us: 170, limit_us: 160, share: 0.94 },
    ...{ readShare: 0.99, start: 2, keys: 168, combine: 0 },
  };
  const report = describeRace(
    [
      { kind: "check", name: "varlen bfloat16 64 plain", error: 1e-3, float_error: 1e-3 },
      { kind: "check", name: "decode float16 128 causal", error: Infinity, float_error: 1e-3 },
      { kind: "limits", device: "NVIDIA H100", copy_gb_s: 3000, matmul_tflop_s: 800 },
      {
        kind: "forward",
        dtype: "bfloat16",
        head_dim: 128,
        length: 4096,
        causal: true,
        layout: "",
        flops: 1e12,
        tflop_s: { ours: 600, ours_sm80: 330, fa2: 320, cudnn: null },
      },
      {
        kind: "forward",
        dtype: "bfloat16",
        head_dim: 128,
        length: 8192,
        causal: true,
        layout: "varlen",
        flops: 1e12,
        tflop_s: { ours: 500, ours_sm80: null, fa2: null, cudnn: null },
      },
      {
        kind: "forward",
        dtype: "bfloat16",
        head_dim: 128,
        length: 4096,
        causal: false,
        layout: "mask",
        flops: 1e12,
        tflop_s: { ours: 200, ours_sm80: null, fa2: 150, cudnn: null },
      },
      {
        kind: "decode",
        type: "BF16",
        length: 8192,
        batch: 16,
        kv_heads: 8,
        gb_s: { ours: 2700, fa2: 2500, cudnn: null },
        microseconds: { ours: 199.04, fa2: 215, cudnn: null },
      },
      {
        kind: "decode",
        type: "Q8_0",
        length: 8192,
        batch: 16,
        kv_heads: 8,
        gb_s: { ours: 1500, fa2: null, cudnn: null },
        microseconds: { ours: 90, fa2: null, cudnn: null },
      },
    ],
    expected,
    [decode],
  );
  assertStringIncludes(report, "## libflash_attn on NVIDIA H100");
  assertStringIncludes(report, "1 of 2 checks within twice the error of float32.");
  assertStringIncludes(report, "- decode float16 128 causal: Infinity (float32: 0.001)");
  const rows = report.split("\n").filter((line) => /^\| (bfloat16|BF16|Q8_0) /.test(line));
  assertEquals(rows, [
    "| bfloat16 | 128 | yes | – | 4096 | 600 | 582 | 75% | 330 | 380 * | 320 | – |",
    "| bfloat16 | 128 | yes | varlen | 8192 | 500 | 580 * | 63% | – | – | – | – |",
    "| bfloat16 | 128 | no | mask | 4096 | 200 | 250 * | 25% | – | – | 150 | – |",
    "| BF16 | 16 | 8 | 8192 | 2700 | 90% | 199.0 | 170.0 * | 2500 | – |",
    "| Q8_0 | 16 | 8 | 8192 | 1500 | 50% | 90.0 | – | – | – |",
  ]);
});
