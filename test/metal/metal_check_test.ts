/** The check for Macs, on a stand-in for Metal: it must work the first time there is a Mac. */
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { ROOT } from "../support/checkout.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { emulatedMetal, emulatedMetalUnavailable, type FakeOptions } from "./emulated_metal.ts";

const ignore = emulatedMetalUnavailable() !== undefined;

/** Runs the check; returns its exit code, its report, and the name of the file that holds it. */
async function check(options: FakeOptions = {}) {
  using folder = new TempFolder();
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "-A", "--quiet", "--no-check", "bench/metal_check.ts", "--emulated"],
      ...["--results", folder.path],
    ],
    cwd: ROOT,
    env: { ...await emulatedMetal(options), FORGE_TEST_EMULATED: "1" },
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  const [file = ""] = Array.from(Deno.readDirSync(folder.path), ({ name }) => name);
  return { code, report: decoder.decode(stdout), errors: decoder.decode(stderr), file };
}

Deno.test({
  name: "the check for Macs runs all of its parts on an emulated Apple GPU",
  ignore,
  fn: async () => {
    const { code, report, errors, file } = await check();
    assertEquals(code, 0, report + errors);
    assertStringIncludes(report, "# Emulated Apple GPU");
    assertStringIncludes(report, "8 tokens equal those of the CPU");
    assertMatch(report, /tg2 \| [\d.]+ \| [\d.]+ \| \d+%/);
    assertMatch(report, /pp4 \| [\d.]+ \| {2}\| {2}\| [\d.]+ \| \d+%/);
    assertEquals(file, "metal-emulated-apple-gpu.md");
  },
});

Deno.test({
  name: "the check for Macs reports a GPU that fails, and goes on",
  ignore,
  fn: async () => {
    const { code, report } = await check({ fail_commands: 2 });
    assertEquals(code, 1, report);
    assertStringIncludes(report, "## model: failed");
    assertStringIncludes(report, "GPU Address Fault");
    assertStringIncludes(report, "## speed: failed");
  },
});
