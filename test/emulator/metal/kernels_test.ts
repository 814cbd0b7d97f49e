/** Every Metal kernel against the plain loops of the CUDA kernels' tests, in the emulator. */
import { emulatorUnavailable } from "../build.ts";
import { listTests, runSteps, testSanitized } from "../kernel_program.ts";
import { buildMetalEmulator } from "./build.ts";

const unavailable = emulatorUnavailable();
if (unavailable) console.error(`skipping: ${unavailable}`);

Deno.test({
  name: "Metal kernels compute what plain loops compute",
  ignore: unavailable !== undefined,
  fn: async (t) => {
    const { tests } = await buildMetalEmulator();
    await runSteps(t, tests, await listTests(tests));
  },
});

// Instrumented code is slow to compile and to run, so only a few instances and small shapes are
// tested.
const instances = new RegExp(
  [
    "^(rms_norm_)?matvec<Format\\w+, [18]>$",
    "^rms_norm_qkv<FormatQ4_K, 1>$",
    "^grouped_matvec<Format\\w+, 1>$",
    "^(grouped_)?gemm<Format(F16|BF16)>$",
    "^gated_delta_rule<[12]>$",
    "^selective_scan<2>$",
    "_attention<(q8, 96|q4, 80|f16, 80|f16, 256|f16, 288, 256|q8, 288, 256)>$",
    "<(float|f16|bf16|q8|q4)>$",
  ].join("|"),
);
const sanitized = [
  /^(rms|layer|fused_residual_rms)_norm_(?!.*(wide|matvec|qkv))/,
  /^(rms_norm_matvec_of_one_token|rms_norm_qkv_of_one_token|gated_product_of_one)/,
  /^(glu|gather|rope_append|previous_rows|moe)_/,
  /^matvec_of_(one|nine)_token/,
  /^grouped_matvec_of_one_token/,
  /^(grouped_)?gemm_of_odd_columns/,
  /^gated_(rms_norm|delta_rule_of_o)/,
  /^(sigmoid_gate|causal_conv1d|selective_scan_of_o)/,
  /^naive_attention_(f32|sinks_q[84])/,
  /^(prefill|decode)_attention_(q[84]_in_a_window|of_wide_heads)/,
  /^latent_attention_of_(one_token|several_queries)/,
  /^sampling_(of_equal_logits|adjusts|reports|flags)/,
  /^argmax_/,
  /^matrix_places_/,
];

// Barriers order the memory in their flags only, so races are searched in one kind at a time.
testSanitized("Metal", unavailable, sanitized, (mode) => buildMetalEmulator({ mode, instances }), [
  ["stay inside their buffers", "asan", {}],
  ["have no races in threadgroup memory", "tsan", { FORGE_EMULATOR_RACES: "shared" }],
  ["have no races in device memory", "tsan", { FORGE_EMULATOR_RACES: "device" }],
]);
