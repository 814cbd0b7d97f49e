/**
 * The command line of forge: from arguments to a command. Nothing else exits the process or prints
 * an error. Exit codes: 0, 1 for a failure, 2 for wrong usage, 130 when interrupted.
 */
import type { Context } from "./src/cli/command.ts";
import { errorText, exitCode, INTERRUPTED } from "./src/cli/error_text.ts";
import { writeStderr, writeStdout } from "./src/cli/output.ts";
import { parseCommandLine } from "./src/cli/parse.ts";

/** Does what the arguments say; returns the exit code. */
async function main(args: readonly string[]): Promise<number> {
  let verbose = false;
  try {
    verbose = Deno.env.get("FORGE_DEBUG") === "1";
    const invocation = parseCommandLine(args);
    if (invocation.kind === "text") {
      await writeStdout(invocation.text);
      return 0;
    }
    if (invocation.kind === "nothing") {
      await writeStderr(invocation.text);
      return 2;
    }
    const { command, options, operands } = invocation;
    verbose ||= options.verbose;
    return await command.run(options, operands, { verbose: options.verbose, interruptSignal });
  } catch (error) {
    const code = exitCode(error);
    if (code !== 0 && code !== INTERRUPTED) await writeStderr(errorText(error, verbose));
    return code;
  }
}

let interruption: AbortController | undefined;

const interruptSignal: Context["interruptSignal"] = () => {
  if (interruption === undefined) {
    const controller = new AbortController();
    Deno.addSignalListener("SIGINT", () => {
      if (controller.signal.aborted) Deno.exit(INTERRUPTED);
      controller.abort();
    });
    interruption = controller;
  }
  return interruption.signal;
};

if (import.meta.main) Deno.exit(await main(Deno.args));
