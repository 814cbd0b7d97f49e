/** Injected failures of a GPU end in one clear line. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { forge } from "../cli/forge.ts";
import { assertRunFails, type InjectedFailure, outOfMemory } from "../support/failing_run.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { emulatedGpu, emulatedGpuUnavailable, runOnEmulatedGpu } from "./emulated_gpu.ts";

const ignore = emulatedGpuUnavailable() !== undefined;

/** Runs the bundled model and expects a failure whose message contains all of `parts`. */
async function assertFails(env: Readonly<Record<string, string>>, parts: readonly string[]) {
  await assertRunFails(
    ["--device", "cuda", "--kv-type", "F32", "-p", "Once", "-n", "2"],
    env,
    parts,
  );
}

/** The message of an error after which the driver refuses everything. */
const LOST = "cannot use the device any more";

const injected: readonly InjectedFailure[] = [
  ["no device", { devices: 0 }, ["CUDA_ERROR_NO_DEVICE", "nvidia-smi"]],
  ["a driver that does not start", { fail_init: 999 }, ["does not start", "CUDA_ERROR_UNKNOWN"]],
  ["a driver that is too old", { version: 11000 }, ["implements CUDA 11.0", "CUDA 11.4 or newer"]],
  ["a device that is too old", { architecture: 75 }, ["sm_75", "forge needs sm_80 or newer"]],
  ...outOfMemory(26),
  ["a launch that is refused", { fail_launch: 3 }, [
    "launching ",
    "CUDA_ERROR_LAUNCH_FAILED",
    LOST,
  ]],
  ["an illegal address", { illegal_address: 5 }, ["CUDA_ERROR_ILLEGAL_ADDRESS", LOST]],
  ["a lost device", { lost: 4 }, ["CUDA_ERROR_UNKNOWN", LOST]],
];

for (const [what, options, parts] of injected) {
  Deno.test({
    name: `CUDA: ${what} is reported in one line`,
    ignore,
    fn: async () => await assertFails(await emulatedGpu(options), parts),
  });
}

for (const [failure, option] of [["capture", "fail_capture=2"], ["stream", "fail_stream=1"]]) {
  Deno.test({
    name: `CUDA: a ${failure} that fails once does not affect later runs`,
    ignore,
    fn: async () => {
      // A process that exits without releasing the device's context is aborted.
      const env = { FORGE_FAKE_CUDA: `${option},strict_exit=1` };
      const program = ["run", "-A", "test/support/check_cuda_recovery.ts", failure!];
      assertStringIncludes(await runOnEmulatedGpu(program, env), "recovered");
    },
  });
}

Deno.test({
  name: "CUDA: a device that any error leaves unusable refuses everything",
  ignore,
  fn: async () => {
    const env = { FORGE_FAKE_CUDA: "devices=14,lost=1,lost_in_turn=1" };
    const program = ["run", "-A", "test/support/check_cuda_recovery.ts", "loss"];
    assertStringIncludes(await runOnEmulatedGpu(program, env), "recovered");
  },
});

Deno.test({
  name: "CUDA: a step of many shapes keeps at most two graphs of 32 of them, and each kernel once",
  ignore,
  fn: async () => {
    // One more is the captured graph, from which the one that is kept is being made.
    const env = { FORGE_FAKE_CUDA: "most_graphs=65,load_once=1" };
    const program = ["run", "-A", "test/support/check_cuda_recovery.ts", "shapes"];
    assertStringIncludes(await runOnEmulatedGpu(program, env), "recovered");
  },
});

Deno.test({
  name: "CUDA: without a driver or a compiler, the places that were tried are named",
  ignore,
  fn: async () => {
    const env = await emulatedGpu();
    await assertFails({ ...env, FORGE_CUDA_DRIVER: "/nowhere/libcuda.so.1" }, [
      "FORGE_CUDA_DRIVER is set to /nowhere/libcuda.so.1",
      "tried /nowhere/libcuda.so.1 (cannot open shared object file",
      "install NVIDIA's driver",
    ]);
    await assertFails({ ...env, FORGE_NVRTC: "/nowhere" }, [
      "FORGE_NVRTC is set to /nowhere",
      "pip install nvidia-cuda-nvrtc",
    ]);
    using folder = new TempFolder();
    await assertFails({ ...env, FORGE_NVRTC: folder.path }, [`tried ${folder.path} (not there)`]);
  },
});

Deno.test({
  name: "CUDA: a compiler of newer GPUs only is reported in one line",
  ignore,
  fn: async () => {
    const env = { ...await emulatedGpu(), FORGE_FAKE_NVRTC_OLDEST: "90" };
    using folder = new TempFolder();
    await assertFails({ ...env, FORGE_CACHE: folder.path }, [
      "compiles for no architecture up to sm_80",
    ]);
  },
});

Deno.test({
  name: "CUDA: a context that an error suggests fits, whatever loading the weights took",
  ignore: ignore || !sharedAvailable("models", "quant256"),
  fn: async () => {
    // 20 MiB: the model with a reduced context in F32, and little more.
    const env = await emulatedGpu({ memory_mib: 20 });
    const model = sharedPath("models", "quant256", "tiny256-Q8_0.gguf");
    const oneToken = ["--raw", "-p", "1", "-n", "1"];
    const args = ["run", "--device", "cuda", "-m", model, "--kv-type", "f32", ...oneToken];
    const { code, stderr } = await forge(args, { env });
    const fitting = /a context of (\d+) tokens would fit/.exec(stderr)?.[1];
    assertEquals(code, 1);
    assert(fitting !== undefined, stderr);
    const { code: second, stderr: said } = await forge([...args, "-c", fitting], { env });
    assertEquals([second, said], [0, ""]);
    const more = await forge([...args, "-c", `${2 * Number(fitting)}`], { env });
    assertEquals(more.code, 1);
    assertStringIncludes(more.stderr, `a context of ${fitting} tokens would fit`);
  },
});

Deno.test({
  name: "CUDA: a step that just fits runs, and one that needs a little more is rejected",
  ignore,
  fn: async () => {
    // A 32nd of the memory is the driver's.
    const program = ["run", "-A", "test/support/check_device_memory.ts", `${2 ** 18}`, "all"];
    await runOnEmulatedGpu(program, { FORGE_FAKE_CUDA: "memory_mib=8" });
  },
});

Deno.test({
  name: "CUDA: several devices are chosen by index; an unknown index is an error",
  ignore,
  fn: async () => {
    const env = await emulatedGpu({ devices: 2 });
    const run = (device: string) =>
      forge(["run", "--device", device, "-m", bundledModel(), "-p", "Once", "-n", "2"], { env });
    assertEquals((await run("cuda:1")).code, 0);
    for (const index of ["2", "-1", "1x", "x"]) {
      const { code, stderr } = await run(`cuda:${index}`);
      assertEquals(code, 1);
      assertStringIncludes(stderr, `there is no CUDA device "${index}"; valid are 0 to 1`);
    }
  },
});

Deno.test({
  name: "CUDA: a failure names its kernel when each launch is waited for",
  ignore,
  fn: async () => {
    const env = { ...await emulatedGpu({ illegal_address: 30 }), FORGE_CUDA_SYNC: "1" };
    await assertFails(env, ["running ", "CUDA_ERROR_ILLEGAL_ADDRESS"]);
  },
});

Deno.test({
  name: "CUDA: from SM90 on, kernels are launched before those before them have ended",
  ignore,
  fn: async () => {
    const args = ["run", "--device", "cuda", "-m", bundledModel(), "-p", "Once", "-n", "4"];
    const run = async (architecture: number, overlap: string) => {
      const env = await emulatedGpu({ architecture, early_only: 1 });
      return (await forge(args, { env: { ...env, FORGE_CUDA_OVERLAP: overlap } })).code;
    };
    assertEquals(await run(90, ""), 0);
    assertEquals(await run(90, "0"), 1);
    assertEquals(await run(80, ""), 1);
  },
});

Deno.test({
  name: "CUDA: kernels are compiled for the GPU, to PTX if the compiler does not know it",
  ignore,
  fn: async () => {
    using folder = new TempFolder();
    const args = ["run", "--device", "cuda", "-m", bundledModel(), "-p", "Once", "-n", "2"];
    const targets = [[86, "compute_80"], [90, "sm_90"], [100, "compute_90"]] as const;
    for (const [architecture, target] of targets) {
      const env = await emulatedGpu({ architecture });
      const cache = folder.at(target);
      const { code, stderr } = await forge(args, { env: { ...env, FORGE_CACHE: cache } });
      assertEquals([code, stderr], [0, ""]);
      for (const { name } of Deno.readDirSync(join(cache, "kernels"))) {
        const kernel = Deno.readTextFileSync(join(cache, "kernels", name));
        // The instructions of wgmma are those of one architecture only.
        const own = target === "sm_90" && kernel.includes("wgmma_") ? "sm_90a" : target;
        assertStringIncludes(kernel, `forge emulated kernel ${own} `);
      }
    }
  },
});

Deno.test({
  name: "CUDA: kernels are kept on disk, but not on a full one; damaged ones are compiled again",
  ignore,
  fn: async () => {
    using folder = new TempFolder();
    const env = { ...await emulatedGpu(), FORGE_CACHE: folder.path };
    const args = ["run", "--device", "cuda", "-m", bundledModel(), "-p", "Once", "-n", "2"];
    const run = (diskIsFull = false) => forge([...args, "--temp", "0"], { env, diskIsFull });
    const kept = () =>
      Array.from(Deno.readDirSync(folder.at("kernels")), ({ name }) => folder.at("kernels", name));
    const first = await run(true);
    assertEquals([first.code, first.stderr], [0, ""]);
    assertEquals(kept(), []);
    assertEquals(await run(), first);
    const files = kept().sort();
    const whole = Deno.readTextFileSync(files[0]!);
    Deno.writeTextFileSync(files[0]!, whole.slice(0, -1));
    assertEquals(await run(), first);
    assertEquals(kept().sort(), files);
    assertEquals(Deno.readTextFileSync(files[0]!), whole);
    // A kernel that is compiled again has a new file.
    const numbers = () => files.map((path) => Deno.statSync(path).ino);
    const before = numbers();
    assertEquals(await run(), first);
    assertEquals(numbers(), before);
  },
});
