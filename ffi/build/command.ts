/**
 * What the programs of the build have in common: how a failure ends them.
 */
import { ForgeError } from "../../src/errors.ts";

/** The exit code for a failure on purpose; undefined for any other, which is a bug. */
function exitCode(error: Error): number | undefined {
  if (error instanceof ForgeError) return error.code === "usage" ? 2 : 1;
  // What `parseArgs` of node:util throws.
  return "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS") ? 2 : undefined;
}

/**
 * Runs a program with the arguments of this process. A failure on purpose becomes a message on
 * stderr and the exit code 2 for wrong usage, else 1.
 */
export async function runCommand(main: (args: string[]) => Promise<void>): Promise<void> {
  try {
    await main(Deno.args);
  } catch (error) {
    const code = error instanceof Error ? exitCode(error) : undefined;
    if (!(error instanceof Error) || code === undefined) throw error;
    console.error(`error: ${error.message}`);
    Deno.exit(code);
  }
}
