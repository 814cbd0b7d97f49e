/** What goes wrong with Metal ends in one clear line; the failures are injected. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { bundledModel } from "../../src/cli/model_path.ts";
import { forge } from "../cli/forge.ts";
import { emulatedMetal, emulatedMetalUnavailable, type FakeOptions } from "./emulated_metal.ts";

const ignore = emulatedMetalUnavailable() !== undefined;

/** Runs the bundled model and expects a failure that says all of `parts`. */
async function assertFails(
  env: Readonly<Record<string, string>>,
  parts: readonly string[],
  args: readonly string[] = ["-p", "Once", "-n", "2"],
  expectedCode = 1,
) {
  const command = ["run", "--device", "metal", "-m", bundledModel(), ...args];
  const { code, stdout, stderr } = await forge(command, { env });
  assertEquals([code, stdout], [expectedCode, ""], stderr);
  assertEquals(stderr.trimEnd().split("\n").length, 1, stderr);
  for (const part of parts) assertStringIncludes(stderr, part);
}

const injected: readonly (readonly [string, FakeOptions, readonly string[]])[] = [
  ["no device", { devices: 0 }, ["Metal has no device here", "Apple silicon"]],
  ["a GPU that is too old", { family: 1006 }, ["Apple7", "M1 or newer"]],
  ["a source that does not compile", { fail_compile: 2 }, ["kernels/metal/", "error: injected"]],
  ["a kernel without a pipeline", { fail_pipeline: 2 }, ["compiling ", "internal error"]],
  ["a threadgroup that is too large", { max_threads: 128 }, ["threads a threadgroup", "runs 128"]],
  ["too little memory for the weights", { memory_mib: 4 }, [
    "the model needs",
    "weights",
    "KV cache",
    "of 4.0 MiB are free",
    "smaller quantisation",
  ]],
  ["too little memory for the context", { memory_mib: 17 }, ["a context of ", "tokens would fit"]],
  ["an allocation that is refused", { fail_allocation: 9 }, ["do not fit", "forge holds"]],
  ["a command buffer that fails at once", { fail_commands: 1 }, [
    "looking where SIMD groups hold matrices on the GPU failed",
    "GPU Address Fault",
  ]],
  ["a command buffer that fails", { fail_commands: 2 }, [
    "running the step on the GPU failed",
    "GPU Address Fault",
  ]],
  ["a command buffer without memory", { fail_commands: 2, fail_code: 8 }, ["Insufficient Memory"]],
];

for (const [what, options, parts] of injected) {
  Deno.test({
    name: `Metal: ${what} is said in one line`,
    ignore,
    fn: async () => await assertFails(await emulatedMetal(options), parts),
  });
}

const refused: readonly (readonly [string, readonly string[], number, readonly string[]])[] = [
  ["more than the context", ["-p", "Once", "-n", "4", "-c", "4"], 1, ["context"]],
  ["a variant", ["--device", "metal:1", "-p", "Once"], 1, ['no variant "1"']],
];

for (const [what, args, code, parts] of refused) {
  Deno.test({
    name: `Metal: ${what} is refused in one line`,
    ignore,
    fn: async () => await assertFails(await emulatedMetal(), parts, args, code),
  });
}
