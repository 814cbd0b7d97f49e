/** Whole models on an emulated Apple GPU: the unmodified program, from prompt to text. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { forge } from "../cli/forge.ts";
import { buildFakeMetal } from "../emulator/fake_metal/build.ts";
import { shippedText } from "../emulator/metal/shipped_text.ts";
import { assertEndsCleanly } from "../support/careless_program.ts";
import { assertDraftsAsTheCpu } from "../support/check_drafts.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import {
  emulatedMetal,
  emulatedMetalUnavailable,
  type FakeOptions,
  runOnEmulatedMetal,
} from "./emulated_metal.ts";

const unavailable = emulatedMetalUnavailable() !== undefined;
const withoutStories = unavailable || !sharedAvailable("models", "stories260K");
const withoutTiny = unavailable || !sharedAvailable("models", "tiny");

Deno.test({
  name: "forge run --device metal tells the story",
  ignore: withoutStories,
  fn: async () => {
    const path = sharedPath("models", "stories260K", "expected.json");
    const { text } = JSON.parse(Deno.readTextFileSync(path)) as { text: string };
    const model = sharedPath("models", "stories260K");
    const args = ["run", "--device", "metal", "-m", model, "--raw", "-p", "", "--temp", "0"];
    const { code, stdout, stderr } = await forge([...args, "-n", "48"], {
      env: await emulatedMetal(),
    });
    assertEquals([code, stderr], [0, ""]);
    const generated = stdout.trimEnd();
    assertEquals(generated, text.slice(0, generated.length));
    assertStringIncludes(generated, "Once upon a time");
  },
});

Deno.test({
  name: "the list of devices names the GPU and its memory",
  ignore: unavailable,
  fn: async () => {
    const program = `
      import { findLibrary, Library } from "./ffi/library.ts";
      using library = Library.open("metal", findLibrary("metal"));
      console.log(JSON.stringify(library.devices()));`;
    const list = async (options: FakeOptions) => {
      const env = await emulatedMetal(options);
      const output = await runOnEmulatedMetal(["eval", "--no-check", program], env);
      return JSON.parse(/^\[.*$/m.exec(output)![0]);
    };
    const memory_bytes = 512 * 2 ** 20;
    const device = { selector: "", name: "Emulated Apple GPU", memory_bytes };
    assertEquals(await list({ memory_mib: 512 }), [device]);
    assertEquals(await list({ devices: 0 }), []);
  },
});

Deno.test({
  name: "a decoded token takes one launch for a norm, the product after it and its gated unit",
  ignore: withoutStories,
  fn: async () => {
    const model = sharedPath("models", "stories260K");
    const args = ["run", "--device", "metal", "-m", model, "--raw", "-p", "", "--temp", "0"];
    const { code, stderr } = await forge([...args, "-n", "2"], {
      env: await emulatedMetal({ trace: 1 }),
    });
    assertEquals(code, 0);
    assertStringIncludes(stderr, "fake Metal runs rms_norm_matvec<FormatF32, 1>");
    assert(!/fake Metal runs glu/.test(stderr), stderr);
  },
});

Deno.test({
  name: "prompts take matrix units for products with their gated units, and for Q4_0 caches",
  ignore: withoutTiny,
  fn: async () => {
    const model = sharedPath("models", "tiny", "qwen2");
    const sizes = ["-p", "20", "-n", "2", "-r", "1"];
    const args = ["bench", "--device", "metal", "-m", model, "--kv-type", "Q4_0", ...sizes];
    const { code, stderr } = await forge([...args, "--quantize", "Q8_0"], {
      env: await emulatedMetal({ trace: 1 }),
    });
    assertEquals(code, 0, stderr);
    assertStringIncludes(stderr, "fake Metal runs gemm<FormatQ8_0>");
    assertStringIncludes(stderr, "fake Metal runs prefill_attention<q4, 16>");
    assertStringIncludes(stderr, "fake Metal runs narrow_decode_attention<q4, 16>");
    assert(!/fake Metal runs (glu|naive_attention)/.test(stderr), stderr);
  },
});

/** FNV-1a of a text, with 64 bits. */
function hashOf(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash.toString(16).padStart(16, "0");
}

Deno.test({
  name: "Metal compiles the texts that the workflow compiles with Apple's tools",
  ignore: withoutStories,
  fn: async () => {
    const model = sharedPath("models", "stories260K", "stories260K-f32.gguf");
    const env = await emulatedMetal({ trace: 1 });
    const args = ["run", "--device", "metal", "-m", model, "--raw", "-p", "", "-n", "1"];
    const { stderr } = await forge(args, { env });
    const texts = [
      shippedText("embed.metal", ["embed<FormatF32>"]),
      shippedText("sample_token.metal", []),
      shippedText("rope_append.metal", ["rope_append<f16>"]),
    ];
    for (const text of texts) assertStringIncludes(stderr, `fake Metal compiles ${hashOf(text)}`);
  },
});

Deno.test({
  name: "a model keeps its buffers resident while it is idle",
  ignore: withoutStories,
  fn: async () => {
    const model = sharedPath("models", "stories260K");
    const program = `
      import { load } from "./src/mod.ts";
      await using model = await load(${JSON.stringify(model)}, { device: "metal" });
      await model.complete("Once", { maxTokens: 2 });
      console.error("idle");
      await new Promise((resolve) => setTimeout(resolve, 1200));`;
    const output = await runOnEmulatedMetal(
      ["eval", "--no-check", program],
      await emulatedMetal({ trace: 1 }),
    );
    const requests = (text: string) =>
      Array.from(text.matchAll(/keeps (\d+) buffers resident/g), ([, n]) => Number(n));
    const [before = "", after = ""] = output.split("idle\n");
    const most = Math.max(...requests(before));
    assert(most > 10, output);
    // Two a second.
    const idle = requests(after);
    assert(idle.length >= 1 && idle.every((n) => n === most), `${most}, then ${idle}`);
  },
});

Deno.test({
  name: "a model's buffers stay resident again once it is used after a long pause",
  ignore: unavailable,
  fn: async () => {
    const library = await buildFakeMetal({
      file: "residency.mm",
      from: "std::chrono::minutes(3)",
      to: "std::chrono::milliseconds(600)",
    });
    const program = `
      import { load } from "./src/mod.ts";
      const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
      await using model = await load(${JSON.stringify(bundledModel())}, { device: "metal" });
      await model.complete("Once", { maxTokens: 2 });
      await wait(1500);
      console.error("idle");
      await wait(1200);
      console.error("used");
      await model.complete("Once", { maxTokens: 2 });
      await wait(1200);`;
    const env = { ...await emulatedMetal({ trace: 1 }), FORGE_LIBRARY_PATH: library };
    const output = await runOnEmulatedMetal(["eval", "--no-check", program], env);
    const [, idle = "", used = ""] = output.split(/idle\n|used\n/);
    assert(!idle.includes("buffers resident"), output);
    assertStringIncludes(used, "buffers resident");
  },
});

/**
 * Launches of a layer, and of the rest of a step that reports alternatives. A greedy step takes
 * three fewer: 156 for the 30 layers of SmolLM-135M, and 167 for the 32 of an 8B model, whose last
 * norm is not part of the product after it.
 */
const LAYER_LAUNCHES = 5, OTHER_LAUNCHES = 9;

Deno.test({
  name: "a decoded token takes few launches in two command buffers, and wide ones for attention",
  ignore: withoutTiny,
  fn: async () => {
    const folder = sharedPath("models", "tiny", "qwen2");
    const { num_hidden_layers: layers } = JSON.parse(
      Deno.readTextFileSync(join(folder, "config.json")),
    ) as { num_hidden_layers: number };
    const program = ["run", "-A", "test/support/check_models.ts", "metal", "F16", folder];
    const output = await runOnEmulatedMetal(program, await emulatedMetal({ trace: 2 }));
    // A step begins with its command buffer, then embeds its tokens.
    const steps = output.split(/(?=.*runs a command buffer\n.*: embed<)/)
      .filter((step) => /: embed</.test(step) && !/: (gemm|prefill_attention)</.test(step))
      // Another model may be opened after a step.
      .map((step) => step.split(/.*runs a command buffer\n.*: matrix_places/)[0]!.split("\n"))
      .map((lines) => lines.filter((line) => line.startsWith("fake Metal")));
    assert(steps.length > 0, output);
    for (const step of steps) {
      const launches = step.filter((line) => line.includes("launches"));
      const most = LAYER_LAUNCHES * layers + OTHER_LAUNCHES;
      assert(launches.length <= most, `${launches.length} launches:\n${launches.join("\n")}`);
      const buffers = step.filter((line) => line.includes("runs a command buffer"));
      assert(buffers.length <= 2, step.join("\n"));
      const attention = launches.filter((line) => line.includes("decode_attention<"));
      assertEquals(attention.length, layers);
      // Eight SIMD groups or more for each KV head.
      for (const line of attention) assert(Number(line.match(/groups of (\d+)/)?.[1]) >= 256, line);
    }
  },
});

/** The ids that a model samples on a device. */
async function sampledIds(model: string, device: string, env: Readonly<Record<string, string>>) {
  const sampling = ["--temp", "0.8", "--top-k", "40", "--top-p", "0.9", "--seed", "7"];
  const args = ["run", "-m", model, "-p", "One day", "-n", "12", "-c", "32", "--json", ...sampling];
  const { code, stdout, stderr } = await forge([...args, "--device", device], { env });
  assertEquals([code, stderr], [0, ""]);
  return JSON.parse(stdout).token_ids;
}

const memories: readonly (readonly [string, FakeOptions, Readonly<Record<string, string>>])[] = [
  ["", {}, {}],
  [" when a file takes several buffers", { buffer_kib: 256 }, {}],
  [" before macOS 15", { residency: 0 }, {}],
  [" when the CPU may read every buffer", {}, { FORGE_DEBUG: "1" }],
];

for (const [when, options, variables] of memories) {
  Deno.test({
    name: `forge run --device metal samples the tokens that the CPU samples${when}`,
    ignore: withoutStories,
    fn: async () => {
      const model = sharedPath("models", "stories260K", "stories260K-f32.gguf");
      const env = { ...await emulatedMetal(options), ...variables };
      assertEquals(await sampledIds(model, "metal", env), await sampledIds(model, "cpu", {}));
    },
  });
}

/**
 * Models of `published.json`: of norms over rows, over groups before the gate, and with experts.
 */
const MAMBA2 = [
  "granitemoehybrid as published",
  "falcon_h1 with a norm before the gate",
  "nemotron_h with experts",
];

// A dense model and a mixture of experts; models with biases, with norms on both sides, soft-caps
// and windows, with recurrent layers, with various head and cache shapes, and with a shared expert.
const FAMILIES = {
  F32: ["llama", "qwen3_moe", "gemma4_text"],
  F16: ["qwen2", "gemma2", "qwen3_5_text", "deepseek_v2"],
} as const;

for (const [kvType, families] of Object.entries(FAMILIES)) {
  Deno.test({
    name: `tiny models agree on an emulated Apple GPU with ${kvType} caches`,
    ignore: withoutTiny,
    fn: async () => {
      const folders = families.map((family) => sharedPath("models", "tiny", family));
      const program = ["run", "-A", "test/support/check_models.ts", "metal"];
      await runOnEmulatedMetal([...program, kvType, ...folders]);
    },
  });
}

Deno.test({
  name: "tiny models with Mamba-2 agree with transformers on an emulated Apple GPU",
  ignore: unavailable,
  fn: async () => {
    const program = ["run", "-A", "test/support/check_published.ts", "metal"];
    await runOnEmulatedMetal([...program, ...MAMBA2]);
  },
});

Deno.test({
  name: "tiny models with experts in F16 agree on an emulated Apple GPU, prompts on matrix units",
  ignore: withoutTiny,
  fn: async () => {
    const args = ["run", "-A", "test/support/check_experts.ts", "metal"];
    const output = await runOnEmulatedMetal(args, await emulatedMetal({ trace: 1 }));
    assertStringIncludes(output, "fake Metal runs grouped_gemm<FormatF16>");
  },
});

Deno.test({
  name: "drafts by a model's own layer change no token on an emulated Apple GPU",
  ignore: unavailable,
  fn: async () => await assertDraftsAsTheCpu("metal", await emulatedMetal()),
});

for (
  const name of ["ends without closing", "calls Deno.exit during an answer", "throws"] as const
) {
  Deno.test({
    name: `a program on an emulated Apple GPU that ${name} ends without a signal`,
    ignore: unavailable,
    // Idle models request residency twice a second.
    fn: async () =>
      await assertEndsCleanly(name, "metal", await emulatedMetal({ slow_exit_ms: 700 })),
  });
}

Deno.test({
  name: "folders with packed matrices compute what their numbers do on an emulated Apple GPU",
  ignore: unavailable,
  fn: async () => {
    // The operation tests compare all formats; a few models suffice here.
    const some = [
      "test/models/weights/packed_folders_test.ts",
      "--filter",
      "/FP8 with blocks|an order/",
    ];
    const output = await runOnEmulatedMetal(["test", "-A", "--quiet", "--no-check", ...some]);
    assertStringIncludes(output, "(metal)");
  },
});

Deno.test({
  name: "adapters of experts and latent attention agree with peft on an emulated Apple GPU",
  ignore: unavailable,
  fn: async () => {
    const file = "test/models/adapters/adapters_test.ts";
    const filter = "/(mixtral|deepseek_v3) agree/";
    const args = ["test", "-A", "--quiet", "--no-check", file, "--filter", filter];
    assertStringIncludes(await runOnEmulatedMetal(args), "(metal)");
  },
});
