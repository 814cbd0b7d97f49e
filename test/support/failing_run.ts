/** Runs of the bundled model that must fail with a clear message. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { forge } from "../cli/forge.ts";

/**
 * Expects `forge run` to fail with one line that contains all of `parts`, and without an answer.
 */
export async function assertRunFails(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  parts: readonly string[],
): Promise<void> {
  const { code, stdout, stderr } = await forge(["run", "-m", bundledModel(), ...args], { env });
  assertEquals([code, stdout], [1, ""], stderr);
  assertEquals(stderr.trimEnd().split("\n").length, 1, stderr);
  for (const part of parts) assertStringIncludes(stderr, part);
}

/** A failure injected by a stand-in for a GPU: its options, and the expected message. */
export type InjectedFailure = readonly [
  what: string,
  options: Readonly<Record<string, number>>,
  parts: readonly string[],
];

/**
 * Resources that any GPU can run out of. `mebibytes`: memory that is enough for the demo model with
 * a smaller context only.
 */
export const outOfMemory = (mebibytes: number): readonly InjectedFailure[] => [
  ["too little memory for the weights", { memory_mib: 4 }, [
    "the model needs",
    "weights",
    "KV cache",
    "of 4.0 MiB are free",
    "smaller quantisation",
  ]],
  ["too little memory for the context", { memory_mib: mebibytes }, [
    "a context of ",
    "tokens would fit",
  ]],
  ["a first allocation that is refused", { fail_allocation: 1 }, [
    // No memory is held yet, and advice follows.
    "do not fit: 8.0 GiB of 8.0 GiB are free; a s",
  ]],
  ["an allocation that is refused", { fail_allocation: 9 }, ["do not fit", "forge holds"]],
];
