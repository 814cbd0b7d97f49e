/** Bugs seeded into kernels, to check that the test bed catches them. */
import { assert, assertMatch } from "@std/assert";
import type { EmulatorMode } from "./build.ts";
import { runTest } from "./kernel_program.ts";

/** One bug in one file, and its symptoms. */
export interface SeededBug {
  readonly bug: string;
  /** The changed file; the first text must occur and is replaced by the second. */
  readonly file: string;
  readonly change: readonly [from: string, to: string];
  /** The files of the kernels that the test launches. */
  readonly kernels: readonly string[];
  /** The test that must fail, the build to run it in, and the pattern of its output. */
  readonly test: string;
  readonly mode: EmulatorMode;
  readonly caughtAs: RegExp;
  /** The memory of Metal whose races are reported. @default both kinds */
  readonly races?: "device" | "shared";
  /** The instances that the test launches first; no others need to be compiled. */
  readonly instances?: RegExp;
}

/** Returns the text of a kernel file, with the bug if it is the changed file. */
export function withBug({ file, change: [from, to] }: SeededBug, name: string, text: string) {
  assert(name !== file || text.includes(from), `${file} no longer holds: ${from}`);
  return name === file ? text.replace(from, () => to) : text;
}

/** Fails unless every bug is caught; `build` makes the test program with a bug's kernels. */
export async function assertCaught(
  t: Deno.TestContext,
  bugs: readonly SeededBug[],
  build: (bug: SeededBug) => Promise<string>,
): Promise<void> {
  for (const bug of bugs) {
    await t.step(`${bug.bug} (${bug.mode})`, async () => {
      const env = bug.races === undefined ? {} : { FORGE_EMULATOR_RACES: bug.races };
      const { ok, output } = await runTest(await build(bug), bug.test, env);
      assert(!ok, "the test passed");
      assertMatch(output, bug.caughtAs);
    });
  }
}
