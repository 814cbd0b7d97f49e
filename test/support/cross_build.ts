/** Libraries of other systems, built for tests. */
import { commonCompileFlags, libraries } from "../../ffi/build/libraries.ts";
import { kernelTargets } from "../../ffi/build/targets.ts";

/**
 * Flags for libraries of other systems, in place of those shipped: optimising kernels takes most of
 * the time. The check workflow builds and tests the libraries as shipped, on their own systems.
 */
export const crossFlags: readonly string[] = ["-O1"];

/** Returns the flags with which a kernel file is shipped for a target of aarch64. */
export function shippedArmFlags(target: string): string[] {
  return [
    ...commonCompileFlags,
    ...libraries.find(({ name }) => name === "cpu")!.compileFlags,
    "-DNDEBUG",
    ...kernelTargets.find(({ arch, name }) => arch === "aarch64" && name === target)!.flags,
    `-DFORGE_TARGET=${target}`,
  ];
}
