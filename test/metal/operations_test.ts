/** The tests of operations on an emulated Apple GPU, in a separate process. */
import { assertStringIncludes } from "@std/assert";
import { operationTests } from "../support/emulated_operations.ts";
import { emulatedMetalUnavailable, runOnEmulatedMetal } from "./emulated_metal.ts";

Deno.test({
  name: "operations agree with the reference on an emulated Apple GPU",
  ignore: emulatedMetalUnavailable() !== undefined,
  fn: async () => {
    // Without a device no test would run, and none would fail.
    const args = operationTests("gates", "late_masks", "recurrence", "repeated_runs", "state");
    assertStringIncludes(await runOnEmulatedMetal(args), "(metal)");
  },
});

Deno.test({
  name: "a sequence's results on an emulated Apple GPU do not depend on its neighbours",
  ignore: emulatedMetalUnavailable() !== undefined,
  fn: async () => {
    await runOnEmulatedMetal(["run", "-A", "test/support/check_invariance.ts", "metal"]);
  },
});
