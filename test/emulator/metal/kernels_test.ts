/** Every Metal kernel against the plain loops of the CUDA kernels' tests, in the emulator. */
import { emulatorUnavailable } from "../build.ts";
import { listTests, runSteps } from "../kernel_program.ts";
import { buildMetalEmulator } from "./build.ts";
import { drawn, isThorough } from "../../support/thorough.ts";

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

/**
 * Tests that search for races only in `deno task thorough`: they take the most time, and launch
 * kernels that other tests of sampling launch, too.
 */
const thoroughRaces = /^sampling_(adjusts|reports|flags)/;

/** True for a test that a sanitizer checks in this run. */
function isSanitized(name: string, mode: string): boolean {
  if (mode === "tsan" && !isThorough && thoroughRaces.test(name)) return false;
  return sanitized.some((pattern) => pattern.test(name));
}

const sanitizers = [
  { mode: "asan", checks: [{ what: "stay inside their buffers", env: {} }] },
  {
    mode: "tsan",
    // Barriers order the memory in their flags only, so races are searched in one kind at a time.
    checks: ["threadgroup", "device"].map((memory) => ({
      what: `have no races in ${memory} memory`,
      env: { FORGE_EMULATOR_RACES: memory === "device" ? "device" : "shared" },
    })),
  },
] as const;
for (const { mode, checks } of drawn("sanitizers of Metal kernels", sanitizers, 1 / 2)) {
  for (const { what, env } of checks) {
    Deno.test({
      name: `Metal kernels ${what}`,
      ignore: unavailable !== undefined,
      fn: async (t) => {
        const { tests } = await buildMetalEmulator({ mode, instances });
        const names = await listTests(tests);
        await runSteps(t, tests, names.filter((name) => isSanitized(name, mode)), env);
      },
    });
  }
}
