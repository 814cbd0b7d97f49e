/** Runs the program that tests kernels, built by `buildTests`. */
import { assert } from "@std/assert";
import { emulatorSeed } from "../support/random.ts";
import { drawn, isThorough } from "../support/thorough.ts";

const environment = {
  // Stacks of fibers are not where the sanitizer expects them.
  ASAN_OPTIONS: "detect_leaks=0:detect_stack_use_after_return=0",
  TSAN_OPTIONS: "halt_on_error=1:report_signal_unsafe=0",
};

/** The result of a test. */
export interface KernelTestResult {
  readonly ok: boolean;
  /** stdout and stderr. */
  readonly output: string;
}

async function run(
  program: string,
  args: string[],
  env: Readonly<Record<string, string>> = {},
): Promise<KernelTestResult> {
  const { success, stdout, stderr } = await new Deno.Command(program, {
    args,
    env: { ...environment, ...env },
  }).output();
  const decoder = new TextDecoder();
  return { ok: success, output: decoder.decode(stdout) + decoder.decode(stderr) };
}

/** The names of the tests. */
export async function listTests(program: string): Promise<string[]> {
  const { output } = await run(program, ["--list"]);
  return output.split("\n").filter((name) => name !== "");
}

/**
 * Runs one test; `ok` requires a matching output as well as a successful exit.
 *
 * @param env variables that change how the program runs
 */
export async function runTest(
  program: string,
  name: string,
  env: Readonly<Record<string, string>> = {},
): Promise<KernelTestResult> {
  const result = await run(program, [name], env);
  return { ok: result.ok && result.output.startsWith(`ok ${name}\n`), output: result.output };
}

/**
 * Runs tests as steps. All run in one process, in which a sanitizer prepares its fibers once; a bug
 * in a kernel may end it, so tests that it does not report as passed run again, each in its own.
 * Blocks and threads run in an order that changes with every run.
 *
 * @param variables change how the program runs
 */
export async function runSteps(
  t: Deno.TestContext,
  program: string,
  names: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Promise<void> {
  assert(names.length > 0);
  const env = { FORGE_EMULATOR_SEED: emulatorSeed(), ...variables };
  const together = await run(program, [...names], env);
  const passed = new Set(together.output.split("\n"));
  for (const name of names) {
    await t.step(name, async () => {
      if (passed.has(`ok ${name}`)) return;
      const result = await runTest(program, name, env);
      assert(result.ok, result.output);
    });
  }
  // One that fails only after others, or at the end of the process.
  assert(together.ok, together.output);
}

/**
 * Tests that search for races only in `deno task thorough`: they take the most time, and launch
 * kernels that other tests of sampling launch, too.
 */
const thoroughRaces = /^sampling_(adjusts|reports|flags)/;

/**
 * Defines tests of kernels under sanitizers. A run draws one of the two sanitizers.
 *
 * @param unavailable why kernels cannot be emulated here, or undefined
 * @param sanitized names of the kernels' tests that run
 * @param build builds the program that tests kernels with a sanitizer
 * @param checks what each shows, its sanitizer, and variables that change how the program runs
 */
export function testSanitized(
  device: "CUDA" | "Metal",
  unavailable: string | undefined,
  sanitized: readonly RegExp[],
  build: (mode: "asan" | "tsan") => Promise<{ readonly tests: string }>,
  checks: readonly (readonly [what: string, "asan" | "tsan", Readonly<Record<string, string>>])[],
): void {
  const modes = drawn(`sanitizers of ${device} kernels`, ["asan", "tsan"], 1 / 2);
  for (const [what, mode, variables] of checks.filter(([, mode]) => modes.includes(mode))) {
    const isSanitized = (name: string) =>
      (mode === "asan" || isThorough || !thoroughRaces.test(name)) &&
      sanitized.some((pattern) => pattern.test(name));
    Deno.test({
      name: `${device} kernels ${what}`,
      ignore: unavailable !== undefined,
      fn: async (t) => {
        const { tests } = await build(mode);
        await runSteps(t, tests, (await listTests(tests)).filter(isSanitized), variables);
      },
    });
  }
}

/** Returns the kernels' names with their symbols. */
export async function listKernels(program: string): Promise<Map<string, string>> {
  const { output } = await run(program, ["--kernels"]);
  const lines = output.split("\n").filter((line) => line !== "").map((line) => line.split("\t"));
  return new Map(lines.map(([name = "", symbol = ""]) => [name, symbol]));
}
