/** The tests of operations on an emulated Apple GPU, in a separate process. */
import { assert, assertStringIncludes } from "@std/assert";
import { runDeno } from "../support/deno_program.ts";
import { operationTests } from "../support/emulated_operations.ts";
import { emulatedMetal, emulatedMetalUnavailable, runOnEmulatedMetal } from "./emulated_metal.ts";

Deno.test({
  name: "operations agree with the reference on an emulated Apple GPU",
  ignore: emulatedMetalUnavailable() !== undefined,
  fn: async () => {
    const { args, notes } = operationTests();
    for (const note of notes) console.error(note);
    // Without a device no test would run, and none would fail.
    const output = await runOnEmulatedMetal(args, await emulatedMetal({ trace: 1 }));
    assertStringIncludes(output, "(metal)");
    for (const type of ["f16", "q8", "q4"]) {
      for (const heads of ["288, 256", "576, 512"]) {
        assertStringIncludes(output, `fake Metal runs latent_attention<${type}, ${heads}>`);
      }
    }
  },
});

Deno.test({
  name: "an emulated Apple GPU passes the tokens of several steps on by itself",
  ignore: emulatedMetalUnavailable() !== undefined,
  fn: async () => {
    const args = ["test", "-A", "--quiet", "--no-check", "test/ops/step_series_test.ts"];
    const output = await runOnEmulatedMetal(args, await emulatedMetal({ trace: 1 }));
    assertStringIncludes(output, "fake Metal runs next_step");
  },
});

Deno.test({
  name: "the tests of operations pass on a Mac whose GPU forge cannot use, without that GPU",
  ignore: emulatedMetalUnavailable() !== undefined,
  fn: async () => {
    // The family of the GPU of virtual machines: GitHub's own Macs have no other.
    const env = { FORGE_TEST_DEVICES: "reference,metal", ...await emulatedMetal({ family: 1005 }) };
    const file = "test/ops/rows_test.ts";
    const output = await runDeno(["test", "-A", "--quiet", "--no-check", file], env);
    assertStringIncludes(output, "(reference)");
    assert(!output.includes("(metal)"), output);
  },
});
