/** Bugs seeded into kernels, to check that the test bed catches them. */
import { assert, assertMatch } from "@std/assert";
import { join } from "@std/path";
import { type EmulatorMode, text } from "./build.ts";
import { runTest } from "./kernel_program.ts";
import { drawn } from "../support/thorough.ts";

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

/**
 * Fails unless every drawn bug is caught, or if a text to change no longer exists.
 *
 * @param folder of the kernels
 * @param build makes the test program with a bug's kernels
 */
export async function assertCaught(
  t: Deno.TestContext,
  bugs: readonly SeededBug[],
  folder: string,
  build: (bug: SeededBug) => Promise<string>,
): Promise<void> {
  for (const bug of bugs) withBug(bug, bug.file, text([join(folder, bug.file)])[0]!);
  for (const bug of drawn("seeded bugs", bugs, 1 / 3)) {
    await t.step(`${bug.bug} (${bug.mode})`, async () => {
      const env = bug.races === undefined ? {} : { FORGE_EMULATOR_RACES: bug.races };
      const { ok, output } = await runTest(await build(bug), bug.test, env);
      assert(!ok, "the test passed");
      assertMatch(output, bug.caughtAs);
    });
  }
}
