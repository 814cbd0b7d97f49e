/** Kernels chosen for a model's products on an emulated GPU, whose tokens must be the CPU's. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { launchCounts } from "../../bench/gpu/launches.ts";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { forge } from "../cli/forge.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { emulatedCublasLt, emulatedGpu, emulatedGpuUnavailable } from "./emulated_gpu.ts";

const ignore = emulatedGpuUnavailable() !== undefined;
const long = "Once upon a time there was a little girl who had a red ball and a cat. ".repeat(5);

/** Returns the tokens of an answer and the trace lines about launch plans. */
async function answer(args: readonly string[], env: Readonly<Record<string, string>>) {
  const { code, stdout, stderr } = await forge(
    ["run", "-m", bundledModel(), "--temp", "0", "-n", "6", ...args],
    { env: { ...env, FORGE_CUDA_TRACE: "1" } },
  );
  assertEquals(code, 0, stderr);
  const ids = stdout.trimEnd().split("\n").map((line) => JSON.parse(line).token_ids);
  return { ids, plans: stderr.split("\n").filter((line) => line.startsWith("plan for")) };
}

Deno.test({
  name: "long prompts are computed by cuBLASLt if it is available",
  ignore,
  fn: async () => {
    const args = ["-p", long, "--json"];
    const onCpu = await answer([...args, "--device", "cpu"], {});
    const without = await emulatedGpu();
    for (const env of [without, { ...without, ...await emulatedCublasLt() }]) {
      const { ids, plans } = await answer([...args, "--device", "cuda"], env);
      assertEquals(ids, onCpu.ids);
      const prompt = plans.find((line) => !line.includes(" 0 of prompts"))!;
      assertStringIncludes(prompt, env === without ? "xgemm<FormatF16, f16>" : "xcublasLtMatmul");
      const decoding = plans.find((line) => line.includes(" 0 of prompts"))!;
      assert(!/xgemm|cublasLt/.test(decoding), decoding);
    }
  },
});

Deno.test({
  name: "fusing operations and capturing launches changes no token",
  ignore,
  fn: async () => {
    const gpu = await emulatedGpu();
    const run = async (env: Readonly<Record<string, string>>) => {
      const args = ["run", "--device", "cuda", "-m", bundledModel(), "-p", "Once", "-n", "4"];
      const { code, stdout, stderr } = await forge([...args, "--temp", "0", "--json"], {
        env: { ...gpu, FORGE_CUDA_TRACE: "1", ...env },
      });
      assertEquals(code, 0, stderr);
      return { ids: JSON.parse(stdout).token_ids, ...launchCounts(stderr) };
    };
    const separate = await run({ FORGE_CUDA_FUSION: "0", FORGE_CUDA_GRAPHS: "0" });
    const fused = await run({ FORGE_CUDA_GRAPHS: "0" });
    const captured = await run({});
    assertEquals([fused.ids, captured.ids], [separate.ids, separate.ids]);
    // Each layer has one launch less: gate, up and the gated unit are fused.
    assert(fused.launches < separate.launches);
    assertEquals(fused.submissions, fused.launches);
    // One submission for the forward pass and one for the choice of the token.
    assertEquals(captured, { ...fused, submissions: 2 });
  },
});

Deno.test({
  name: "models decode with the same kernels for one and for many sequences",
  ignore,
  fn: async () => {
    using folder = new TempFolder();
    const prompts = ["Once", "One day", "There was"];
    const lines = prompts.map((prompt, id) => JSON.stringify({ id: `${id}`, prompt }));
    Deno.writeTextFileSync(folder.at("prompts.jsonl"), lines.join("\n"));
    const batch = ["--batch", folder.at("prompts.jsonl"), "--ordered"];
    const { ids } = await answer([...batch, "--device", "cpu"], {});
    const env = await emulatedGpu();
    for (const parallel of ["1", "2", "9"]) {
      const args = [...batch, "--device", "cuda", "--parallel", parallel];
      const onGpu = await answer(args, env);
      assertEquals(onGpu.ids, ids);
      for (const plan of onGpu.plans) assertStringIncludes(plan, "xdecode_gemm<");
    }
  },
});

Deno.test({
  name: "doctor says if cuBLASLt is used, and where it was searched",
  ignore,
  fn: async () => {
    const env = await emulatedGpu();
    const report = async (library: string) =>
      (await forge(["doctor"], { env: { ...env, FORGE_CUBLASLT: library } })).stdout;
    assertStringIncludes(await report("none"), "cuBLASLt is not used: FORGE_CUBLASLT turns off");
    assertStringIncludes(await report("/nowhere"), "FORGE_CUBLASLT is set to /nowhere");
    // A library without cuBLASLt's functions.
    const other = env.FORGE_CUDA_DRIVER ?? "";
    assertStringIncludes(
      await report(other),
      `not used: ${other} has no function cublasLtGetVersion`,
    );
    const { FORGE_CUBLASLT = "" } = await emulatedCublasLt();
    assertStringIncludes(await report(FORGE_CUBLASLT), "products of long prompts by cuBLASLt 13.0");
  },
});
