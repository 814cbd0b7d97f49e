/** `--attention` on an emulated GPU: every choice gives the CPU's tokens or a clear error. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { forge } from "../cli/forge.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { emulatedFlashAttention, emulatedGpu, emulatedGpuUnavailable } from "./emulated_gpu.ts";

const ignore = emulatedGpuUnavailable() !== undefined;

/** Prompts that take one and several pieces of attention, and a short prompt. */
const PROMPTS = [
  "What is said here does not matter; that it is longer than one tile of queries does.",
  "Hi.",
  "Of middling length, it says.",
];

/** A folder with a model whose heads are `headDim` wide. */
function modelFolder(headDim: number): TempFolder {
  const folder = new TempFolder();
  writeRandomLlama(folder.path, { headDim });
  return folder;
}

/** The tokens that a model generates for the prompts, several prompts at a time. */
async function answers(
  folder: TempFolder,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<unknown> {
  const lines = PROMPTS.map((prompt, id) => JSON.stringify({ id: `${id}`, prompt }));
  Deno.writeTextFileSync(folder.at("prompts.jsonl"), lines.join("\n"));
  const batch = ["--batch", folder.at("prompts.jsonl"), "--ordered", "--raw"];
  const run = ["run", "-m", folder.path, ...batch, "--temp", "0", "-n", "6", ...args];
  const { code, stdout, stderr } = await forge(run, { env });
  assertEquals(code, 0, stderr);
  return stdout.trimEnd().split("\n").map((line) => JSON.parse(line).token_ids);
}

for (const headDim of [64, 192]) {
  for (const architecture of [80, 90]) {
    Deno.test({
      name: `--attention flash gives the CPU's tokens: head_dim ${headDim}, sm_${architecture}`,
      ignore,
      fn: async () => {
        using folder = modelFolder(headDim);
        const env = { ...await emulatedGpu({ architecture }), ...await emulatedFlashAttention() };
        assertEquals(
          await answers(folder, ["--device", "cuda", "--attention", "flash"], env),
          await answers(folder, ["--device", "cpu"], {}),
        );
      },
    });
  }
}

Deno.test({
  name: "--attention flash decodes over a Q8_0 cache, and gives the CPU's tokens",
  ignore,
  fn: async () => {
    using folder = modelFolder(128);
    // As many as an H100 has, for which the keys of two heads would be divided into 132 parts.
    const gpu = await emulatedGpu({ multiprocessors: 132 });
    const env = { ...gpu, ...await emulatedFlashAttention() };
    const q8 = ["--kv-type", "Q8_0"];
    assertEquals(
      await answers(folder, ["--device", "cuda", "--attention", "flash", ...q8], env),
      await answers(folder, ["--device", "cpu", ...q8], {}),
    );
  },
});

Deno.test({
  name: "libflash_attn takes kernels without tensor maps when the driver rejects them",
  ignore,
  fn: async () => {
    using folder = modelFolder(64);
    const env = {
      ...await emulatedGpu({ architecture: 90 }),
      ...await emulatedFlashAttention(),
      FORGE_EMULATED_TENSOR_MAPS_FAIL: "1",
    };
    assertEquals(
      await answers(folder, ["--device", "cuda", "--attention", "flash"], env),
      await answers(folder, ["--device", "cpu"], {}),
    );
  },
});

for (const kernels of ["auto", "tiled", "naive"]) {
  Deno.test({
    name: `--attention ${kernels} gives the CPU's tokens`,
    ignore,
    fn: async () => {
      using folder = modelFolder(64);
      const env = { ...await emulatedGpu(), ...await emulatedFlashAttention() };
      assertEquals(
        await answers(folder, ["--device", "cuda", "--attention", kernels], env),
        await answers(folder, ["--device", "cpu"], {}),
      );
    },
  });
}

Deno.test({
  name: "an unsupported choice of attention is an error with its reason",
  ignore,
  fn: async () => {
    using folder = modelFolder(16);
    const refusal = async (args: readonly string[], env: Readonly<Record<string, string>>) => {
      const run = ["run", "-m", folder.path, "-p", "Hi", "-n", "2", ...args];
      const { code, stdout, stderr } = await forge(run, { env });
      assertEquals([code, stdout, stderr.trimEnd().split("\n").length], [1, "", 1], stderr);
      return stderr;
    };
    const without = await emulatedGpu();
    const env = { ...without, ...await emulatedFlashAttention() };
    const flash = ["--device", "cuda", "--attention", "flash"];
    assertStringIncludes(await refusal(flash, env), "head_dim 16; it has 64, 96");
    assertStringIncludes(await refusal([...flash, "--kv-type", "F32"], env), "KV caches in F32");
    assertStringIncludes(await refusal(flash, without), "FORGE_FLASH_ATTN turns off libflash_attn");
    const nowhere = { ...env, FORGE_FLASH_ATTN: "/nowhere" };
    assertStringIncludes(await refusal(flash, nowhere), "FORGE_FLASH_ATTN is set to /nowhere");
    const other = { ...env, FORGE_FLASH_ATTN: env.FORGE_CUDA_DRIVER ?? "" };
    assertStringIncludes(await refusal(flash, other), "has no function flash_attn_version");
    const tiled = ["--device", "cuda", "--attention", "tiled", "--kv-type", "F32"];
    assertStringIncludes(await refusal(tiled, env), "KV caches in F32");
    const onCpu = ["--device", "cpu", "--attention", "tiled"];
    assertStringIncludes(await refusal(onCpu, {}), "the cpu device has one kind of attention");
  },
});

Deno.test({
  name: "doctor says which kernels compute attention, and why not others",
  ignore,
  fn: async () => {
    const report = async (env: Readonly<Record<string, string>>) =>
      (await forge(["doctor"], { env })).stdout;
    const without = await emulatedGpu();
    const flash = await emulatedFlashAttention();
    const found = await report({ ...without, ...flash });
    assertStringIncludes(found, "attention flash for prompts");
    assertStringIncludes(found, `flash attention from ${flash.FORGE_FLASH_ATTN}`);
    assertStringIncludes(
      await report(without),
      "attention flash is not used: FORGE_FLASH_ATTN turns off libflash_attn",
    );
  },
});
