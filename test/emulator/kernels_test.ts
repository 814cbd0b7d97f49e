/**
 * Every CUDA kernel against plain loops, in the emulator. Each test runs in a process of its own: a
 * kernel's bug may end it.
 */
import { assert } from "@std/assert";
import { buildEmulator, type EmulatorMode, emulatorUnavailable } from "./build.ts";
import { listTests, runTest } from "./kernel_program.ts";

const unavailable = emulatorUnavailable();
if (unavailable) console.error(`skipping: ${unavailable}`);

async function runAll(t: Deno.TestContext, mode: EmulatorMode) {
  const { tests } = await buildEmulator({ mode });
  const names = await listTests(tests, mode);
  assert(names.length > 0);
  for (const name of names) {
    await t.step(name, async () => {
      const result = await runTest(tests, name);
      assert(result.ok, result.output);
    });
  }
}

Deno.test({
  name: "CUDA kernels compute what plain loops compute",
  ignore: unavailable !== undefined,
  fn: (t) => runAll(t, "plain"),
});
