/** Error handling of the build programs. */
import { ForgeError } from "../../src/errors.ts";

/** Returns the exit code of a deliberate error, or `undefined` for a bug. */
function exitCode(error: Error): number | undefined {
  if (error instanceof ForgeError) return error.code === "usage" ? 2 : 1;
  // Thrown by `parseArgs` of node:util.
  return "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS") ? 2 : undefined;
}

/**
 * Runs a program with the arguments of this process. Prints deliberate errors to stderr and exits
 * with code 2 for wrong usage, otherwise 1.
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
