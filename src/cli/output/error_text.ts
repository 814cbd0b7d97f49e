import { ForgeError } from "../../errors.ts";
import { columnsOf, styled, wrap } from "./terminal_text.ts";

/** Exit code after Ctrl-C. */
export const INTERRUPTED = 130;

/** Exit code after a second SIGTERM. */
export const TERMINATED = 143;

/** Returns the exit code for an error; 0 if the reader of the output closed it. */
export function exitCode(error: unknown): number {
  if (error instanceof Deno.errors.BrokenPipe) return 0;
  if (!(error instanceof ForgeError)) return 1;
  if (error.code === "cancelled") return INTERRUPTED;
  return error.code === "usage" ? 2 : 1;
}

/**
 * Returns the message of an error for the user: one line, which a narrow terminal breaks, and with
 * `verbose` the stacks of the error and its causes, except for wrong usage.
 */
export function errorText(error: unknown, verbose: boolean): string {
  const advice = verbose || isExpected(error) ? "" : "; FORGE_DEBUG=1 shows the stack";
  const start = styled(Deno.stderr, "red", "forge: error:");
  const columns = columnsOf(Deno.stderr) ?? Infinity;
  const lines = wrap(`${start} ${describeError(error)}${advice}`, columns);
  const isUsage = error instanceof ForgeError && error.code === "usage";
  if (verbose && !isUsage) lines.push(...stacks(error));
  return `${lines.join("\n")}\n`;
}

/** Describes an error; in one line if its message is one. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return `internal error: ${Deno.inspect(error)}`;
  if (error instanceof ForgeError) return error.message;
  if (error instanceof Deno.errors.NotCapable) {
    // Deno's own advice would grant each permission without limits.
    const [lacking] = error.message.split(", run again");
    return `Deno: ${lacking}; start forge with the permissions that deno.json lists: ` +
      "deno run -P=forge main.ts";
  }
  return `internal error: ${error.name}: ${error.message.split("\n", 1)[0]}`;
}

/** True if the message is complete: for errors of forge, and of Deno's permissions. */
function isExpected(error: unknown): boolean {
  return error instanceof ForgeError || error instanceof Deno.errors.NotCapable;
}

function* stacks(error: unknown): Generator<string> {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    yield `  ${cause === error ? "raised" : "caused by"} ${cause.stack ?? cause.message}`;
  }
}
