/** Every CUDA kernel against plain loops, in the emulator. */
import { buildEmulator, emulatorUnavailable } from "./build.ts";
import { listTests, runSteps, testSanitized } from "./kernel_program.ts";

const unavailable = emulatorUnavailable();
if (unavailable) console.error(`skipping: ${unavailable}`);

Deno.test({
  name: "CUDA kernels compute what plain loops compute",
  ignore: unavailable !== undefined,
  fn: async (t) => {
    const { tests } = await buildEmulator();
    await runSteps(t, tests, await listTests(tests));
  },
});

// Instrumented code is slow to compile and to run, so only a few instances and small shapes are
// tested.
const instances = new RegExp(
  [
    "^(grouped_)?matvec<[18]>$",
    "^(grouped_)?decode_gemm<Format\\w+, \\w+, 0>$",
    "^decode_gemm<Format\\w+, \\w+, 1>$",
    "^decode_gemm<Format(F16|BF16), \\w+, 4>$",
    "^(grouped_)?gemm<Format(F16|BF16)",
    "^wgmma_(grouped_)?gemm<",
    "^wgmma_quantized_gemm<FormatQ4_0, f16, 2>$",
    "^(repack|convert)_rows",
    "^gated_delta_rule<[24]>$",
    "^selective_scan<2>$",
    "_attention<(q8, 96|q4, 80|bf16, 80|f16, 256|f16, 288, 256|q8, 288, 256)>$",
    "decode_attention<(q8, 128|bf16, 64)>$",
    "<(float|f16|bf16|q8|q4)>$",
    "^cast_rows<(float, bf16|bf16, float)>$",
  ].join("|"),
);
const sanitized = [
  /^(rms|layer|fused_residual_rms)_norm_(?!.*wide)/,
  /^(glu|gather|permute|lora|epilogue|convert_rows|cast_rows|rope_append|previous_rows|moe)_/,
  /^matvec_of_one_token/,
  /^gated_(rms_norm|delta_rule_of_o)/,
  /^(sigmoid_gate|causal_conv1d|selective_scan_of_o)/,
  /^grouped_matvec_of_one_token/,
  /^(decode_|grouped_|wgmma_)?gemm_of_odd_columns/,
  /^decode_gemm_of_several_tiles/,
  /^wgmma_(gemm_of_(several_tiles|quantised_weights_and)|grouped_gemm_of_one_expert)/,
  /^naive_attention_(f32|sinks_q[84])/,
  /^(prefill|decode)_attention_(q[84]_in_a_window|of_wide_heads|bf16_of_)/,
  /^rope_decode_attention_(q8|f16)/,
  /^latent_attention_of_(one_token|several_queries)/,
  /^head_groups_/,
  /^sampling_of_(few_tokens|equal_logits|long_lists)/,
  /^sampling_(adjusts|reports|flags)/,
];

testSanitized("CUDA", unavailable, sanitized, (mode) => buildEmulator({ mode, instances }), [
  ["stay inside their buffers", "asan", {}],
  ["have no races", "tsan", {}],
]);
