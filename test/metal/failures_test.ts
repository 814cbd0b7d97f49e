/** Injected failures of Metal end in one clear line. */
import { assertRunFails, type InjectedFailure, outOfMemory } from "../support/failing_run.ts";
import {
  emulatedMetal,
  emulatedMetalUnavailable,
  type FakeOptions,
  runOnEmulatedMetal,
} from "./emulated_metal.ts";

const ignore = emulatedMetalUnavailable() !== undefined;

const injected: readonly InjectedFailure[] = [
  ["no device", { devices: 0 }, ["Metal has no device here", "Apple silicon"]],
  ["a GPU that is too old", { family: 1006 }, ["Apple7", "M1 or newer"]],
  ["a source that does not compile", { fail_compile: 2 }, ["kernels/metal/", "error: injected"]],
  ["a kernel without a pipeline", { fail_pipeline: 2 }, ["compiling ", "internal error"]],
  ["a threadgroup that is too large", { max_threads: 128 }, ["threads a threadgroup", "runs 128"]],
  ...outOfMemory(18),
  ["a command buffer that fails at once", { fail_commands: 1 }, [
    "looking where SIMD groups hold matrices on the GPU failed",
    "GPU Address Fault",
  ]],
  ["a command buffer that fails", { fail_commands: 2 }, [
    "running the step on the GPU failed",
    "GPU Address Fault",
  ]],
  ["work that keeps the display waiting", { fail_commands: 2, fail_code: 14 }, [
    "running the step on the GPU failed",
    "Impacting Interactivity",
  ]],
  ["a command buffer without memory", { fail_commands: 2, fail_code: 8 }, ["Insufficient Memory"]],
];

/** Masks arrive while the GPU computes the logits, so sampling has its own command buffer. */
Deno.test({
  name: "Metal: a forward pass that fails is reported in one line although sampling succeeds",
  ignore,
  fn: async () => {
    const args = ["--device", "metal", "-p", "Once", "-n", "2", "--regex", "[a-z ]+"];
    const parts = ["running the step on the GPU failed", "GPU Address Fault"];
    await assertRunFails(args, await emulatedMetal({ fail_commands: 2 }), parts);
  },
});

for (const [what, options, parts] of injected) {
  Deno.test({
    name: `Metal: ${what} is reported in one line`,
    ignore,
    fn: async () => {
      const args = ["--device", "metal", "--kv-type", "F32", "-p", "Once", "-n", "2"];
      await assertRunFails(args, await emulatedMetal(options), parts);
    },
  });
}

const refused: readonly (readonly [string, readonly string[], readonly string[]])[] = [
  ["more than the context", ["--device", "metal", "-n", "4", "-c", "4"], ["context"]],
  ["a variant", ["--device", "metal:1"], ['no variant "1"']],
];

for (const [what, args, parts] of refused) {
  Deno.test({
    name: `Metal: ${what} is rejected in one line`,
    ignore,
    fn: async () => await assertRunFails([...args, "-p", "Once"], await emulatedMetal(), parts),
  });
}

const MIB = 2 ** 20;

Deno.test({
  name: "Metal: a step that just fits runs, and one that needs a little more is rejected",
  ignore,
  fn: async () => {
    const check = async (driverBytes: number, steps: string, options: FakeOptions) => {
      const program = ["run", "-A", "test/support/check_device_memory.ts", `${driverBytes}`, steps];
      await runOnEmulatedMetal(program, await emulatedMetal(options));
    };
    // A share of little memory, and of much a fixed size.
    await check(MIB / 4, "all", { memory_mib: 8 });
    await check(64 * MIB, "one", { memory_mib: 4096, taken_mib: 4000 });
  },
});
