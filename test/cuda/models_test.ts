/** Whole models on an emulated GPU: the unmodified program, from prompt to text. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { forge } from "../cli/forge.ts";
import { installNvrtc } from "../emulator/nvrtc.ts";
import { assertEndsCleanly } from "../support/careless_program.ts";
import { assertDraftsAsTheCpu } from "../support/check_drafts.ts";
import { encoders, writeEncoder } from "../models/encoders/encoders.ts";
import { assertClose } from "../models/reference_check.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { emulatedGpu, emulatedGpuUnavailable, runOnEmulatedGpu } from "./emulated_gpu.ts";

const unavailable = emulatedGpuUnavailable() !== undefined;
const withoutStories = unavailable || !sharedAvailable("models", "stories260K");
const withoutTiny = unavailable || !sharedAvailable("models", "tiny");
const compiler = await installNvrtc();
if (compiler.reason !== undefined) {
  console.error(`skipping: pip cannot install nvidia-cuda-nvrtc (${compiler.reason})`);
}

Deno.test({
  name: "forge run --device cuda tells the story",
  ignore: withoutStories,
  fn: async () => {
    const path = sharedPath("models", "stories260K", "expected.json");
    const { text } = JSON.parse(Deno.readTextFileSync(path)) as { text: string };
    const model = sharedPath("models", "stories260K");
    const args = ["run", "--device", "cuda", "-m", model, "--raw", "-p", "", "--temp", "0"];
    const { code, stdout, stderr } = await forge([...args, "-n", "48"], {
      env: await emulatedGpu(),
    });
    assertEquals([code, stderr], [0, ""]);
    const generated = stdout.trimEnd();
    assertEquals(generated, text.slice(0, generated.length));
    assertStringIncludes(generated, "Once upon a time");
  },
});

/** Checks that an emulated GPU samples the CPU's tokens. @param env additional variables */
async function assertSamplesAsTheCpu(env: Record<string, string>): Promise<void> {
  const model = sharedPath("models", "stories260K", "stories260K-f32.gguf");
  const sampling = ["--temp", "0.8", "--top-k", "40", "--top-p", "0.9", "--seed", "7"];
  const args = ["run", "-m", model, "-p", "One day", "-n", "12", "--json", ...sampling];
  const ids = async (device: string, env: Record<string, string>) => {
    const { code, stdout, stderr } = await forge([...args, "--device", device], { env });
    assertEquals([code, stderr], [0, ""]);
    return JSON.parse(stdout).token_ids;
  };
  assertEquals(await ids("cuda", { ...await emulatedGpu(), ...env }), await ids("cpu", {}));
}

Deno.test({
  name: "forge run --device cuda samples the tokens that the CPU samples",
  ignore: withoutStories,
  fn: () => assertSamplesAsTheCpu({}),
});

Deno.test({
  name: "forge run --device cuda compiles kernels by NVRTC, and caches them",
  ignore: withoutStories || compiler.reason !== undefined,
  fn: async () => {
    const cache = Deno.makeTempDirSync();
    try {
      const env = { FORGE_NVRTC: compiler.folder, FORGE_CACHE: cache };
      await assertSamplesAsTheCpu(env);
      const kernels = () => Array.from(Deno.readDirSync(join(cache, "kernels"))).length;
      const made = kernels();
      assert(made > 0);
      await assertSamplesAsTheCpu(env);
      assertEquals(kernels(), made);
    } finally {
      Deno.removeSync(cache, { recursive: true });
    }
  },
});

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
    name: `tiny models agree on an emulated GPU with ${kvType} caches`,
    ignore: withoutTiny,
    fn: async () => {
      const folders = families.map((family) => sharedPath("models", "tiny", family));
      await runOnEmulatedGpu([
        "run",
        "-A",
        "test/support/check_models.ts",
        "cuda",
        kvType,
        ...folders,
      ]);
    },
  });
}

Deno.test({
  name: "tiny models with Mamba-2 agree with transformers on an emulated GPU",
  ignore: unavailable,
  fn: async () => {
    const program = ["run", "-A", "test/support/check_published.ts", "cuda"];
    await runOnEmulatedGpu([...program, ...MAMBA2]);
  },
});

Deno.test({
  name: "tiny models with experts in F16 agree on an emulated GPU, prompts on tensor cores",
  ignore: withoutTiny,
  fn: async () => {
    const args = ["run", "-A", "test/support/check_experts.ts", "cuda"];
    const output = await runOnEmulatedGpu(args, { FORGE_CUDA_TRACE: "1" });
    assertStringIncludes(output, "xgrouped_gemm<FormatF16, f16>");
  },
});

Deno.test({
  name: "a resident kernel computes the bits of single launches on an emulated GPU",
  ignore: unavailable,
  fn: async () => {
    const program = ["run", "-A", "--no-check", "test/support/check_step_kernel.ts"];
    const output = await runOnEmulatedGpu(program, { FORGE_CUDA_TRACE: "1" });
    // The adapter's kernels, which it does not compute, divide a step.
    for (const name of ["BF16", "Q8_0", "Q4_0", "Q4_K", "BF16 with an adapter"]) {
      assertStringIncludes(output, `same: ${name}\n`);
    }
    const runs = output.split("FORGE_CUDA_PERSISTENT is ").slice(1);
    assertEquals(runs.length, 12);
    for (const run of runs) {
      assertEquals(/\d+xstep_kernel\b/.test(run), run.startsWith("1\n"), run);
      assertStringIncludes(run, "steps a graph");
    }
  },
});

Deno.test({
  name: "a resident kernel needs a compiler that passes its table, from CUDA 12.1 on",
  ignore: unavailable,
  fn: async () => {
    using folder = new TempFolder();
    const options = ["--device", "cuda", "-m", bundledModel(), "-p", "Once", "-n", "2"];
    const versions = { "11.8": false, "12.0": false, "12.1": true, "13.0": true };
    for (const [version, isResident] of Object.entries(versions)) {
      const { code, stderr } = await forge(["run", ...options], {
        env: {
          ...await emulatedGpu(),
          FORGE_CACHE: folder.path,
          FORGE_CUDA_PERSISTENT: "1",
          FORGE_CUDA_TRACE: "1",
          FORGE_FAKE_NVRTC_VERSION: version,
        },
      });
      assertEquals(code, 0, stderr);
      assertEquals(/\d+xstep_kernel\b/.test(stderr), isResident, `${version}: ${stderr}`);
    }
  },
});

Deno.test({
  name: "encoders give the vectors and scores of the CPU on an emulated GPU",
  ignore: unavailable,
  fn: async () => {
    using folder = new TempFolder();
    for (
      const [name, command] of [
        ["modernbert", "embed"],
        ["embeddinggemma", "embed"],
        ["bert, cross-encoder", "rerank"],
      ] as const
    ) {
      const path = folder.at(name);
      writeEncoder(path, name);
      const more = command === "embed" ? ["-"] : ["a question", "--lines", "-"];
      const numbers = async (device: string, env: Record<string, string>) => {
        const args = [command, "-m", path, "--device", device, "--kv-type", "F32", ...more];
        const { code, stdout, stderr } = await forge(args, { env, stdin: encoders.documents[0]! });
        assertEquals([code, stderr], [0, ""]);
        const { embedding, logit } = JSON.parse(stdout);
        return embedding ?? [logit];
      };
      assertClose(await numbers("cuda", await emulatedGpu()), await numbers("cpu", {}), 2e-3);
    }
  },
});

Deno.test({
  name: "drafts by a model's own layer change no token on an emulated GPU",
  ignore: unavailable,
  fn: async () => await assertDraftsAsTheCpu("cuda", await emulatedGpu()),
});

for (
  const name of ["ends without closing", "calls Deno.exit during an answer", "throws"] as const
) {
  Deno.test({
    name: `a program on an emulated GPU that ${name} ends without a signal`,
    ignore: unavailable,
    fn: async () => await assertEndsCleanly(name, "cuda", await emulatedGpu()),
  });
}

Deno.test({
  name: "folders with packed matrices compute what their numbers do on an emulated GPU",
  ignore: unavailable,
  fn: async () => {
    // The operation tests compare all formats; a few models suffice here.
    const some = [
      "test/models/weights/packed_folders_test.ts",
      "--filter",
      "/FP8 with blocks|an order/",
    ];
    const output = await runOnEmulatedGpu(["test", "-A", "--quiet", "--no-check", ...some]);
    assertStringIncludes(output, "(cuda)");
  },
});

Deno.test({
  name: "adapters of experts and latent attention agree with peft on an emulated GPU",
  ignore: unavailable,
  fn: async () => {
    const file = "test/models/adapters/adapters_test.ts";
    const filter = "/(mixtral|deepseek_v3) agree/";
    const args = ["test", "-A", "--quiet", "--no-check", file, "--filter", filter];
    assertStringIncludes(await runOnEmulatedGpu(args), "(cuda)");
  },
});
