/** Bugs put into kernels, to see that the test bed catches them. */
import { assert, assertMatch } from "@std/assert";
import type { EmulatorMode } from "./build.ts";
import { runTest } from "./kernel_program.ts";

/** One mistake in one file, and how it shows. */
export interface SeededBug {
  readonly bug: string;
  /** The file that is changed; the first text, which must be there, becomes the second. */
  readonly file: string;
  readonly change: readonly [from: string, to: string];
  /** The files of the kernels that the test launches. */
  readonly kernels: readonly string[];
  /** The test that must fail, in which build, and what its output must match. */
  readonly test: string;
  readonly mode: EmulatorMode;
  readonly caughtAs: RegExp;
  /** The instances that the test launches first, so that no others need be compiled. */
  readonly instances?: RegExp;
}

/** The text of a file of kernels with the bug in it, where it is that file. */
export function withBug({ file, change: [from, to] }: SeededBug, name: string, text: string) {
  assert(name !== file || text.includes(from), `${file} no longer holds: ${from}`);
  return name === file ? text.replace(from, () => to) : text;
}

/** Fails unless every bug is caught; `build` makes the program of tests with a bug's kernels. */
export async function assertCaught(
  t: Deno.TestContext,
  bugs: readonly SeededBug[],
  build: (bug: SeededBug) => Promise<string>,
): Promise<void> {
  for (const bug of bugs) {
    await t.step(`${bug.bug} (${bug.mode})`, async () => {
      const { ok, output } = await runTest(await build(bug), bug.test);
      assert(!ok, "the test passed");
      assertMatch(output, bug.caughtAs);
    });
  }
}
