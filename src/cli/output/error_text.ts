import { ForgeError } from "../../errors.ts";

/** The exit code of what Ctrl-C ended. */
export const INTERRUPTED = 130;

/** The exit code of what a second SIGTERM ended. */
export const TERMINATED = 143;

/** The exit code for an error; 0 where a reader of our output closed it, which is its right. */
export function exitCode(error: unknown): number {
  if (error instanceof Deno.errors.BrokenPipe) return 0;
  if (!(error instanceof ForgeError)) return 1;
  if (error.code === "cancelled") return INTERRUPTED;
  return error.code === "usage" ? 2 : 1;
}

/**
 * The message of an error for the user: one line, and with `verbose` the stacks of the error and its
 * causes. Wrong usage has no stacks: the message says it all.
 */
export function errorText(error: unknown, verbose: boolean): string {
  const lines = [`forge: error: ${describeError(error)}`];
  if (error instanceof ForgeError && error.code === "usage") return `${lines[0]}\n`;
  if (verbose) lines.push(...stacks(error));
  else if (!isExpected(error)) lines[0] += "; FORGE_DEBUG=1 shows where";
  return `${lines.join("\n")}\n`;
}

/** An error in one line, where its message is one. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return `internal error: ${Deno.inspect(error)}`;
  if (error instanceof ForgeError) return error.message;
  if (error instanceof Deno.errors.NotCapable) {
    // Deno's own advice would grant one permission after the other, and each without bounds.
    const [lacking] = error.message.split(", run again");
    return `Deno: ${lacking}; start forge with the permissions that deno.json lists: ` +
      "deno run -P=forge main.ts";
  }
  return `internal error: ${error.name}: ${error.message.split("\n", 1)[0]}`;
}

/** Whether the error says all there is to say: it was raised on purpose, or by Deno's permissions. */
function isExpected(error: unknown): boolean {
  return error instanceof ForgeError || error instanceof Deno.errors.NotCapable;
}

function* stacks(error: unknown): Generator<string> {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    yield `  ${cause === error ? "raised" : "caused by"} ${cause.stack ?? cause.message}`;
  }
}
