/**
 * Entry point of the command line. Only this module exits the process or prints errors. Exit codes:
 * 0 success, 1 failure, 2 wrong usage, 130 interrupted.
 */
import type { Context } from "./src/cli/command.ts";
import { errorText, exitCode, INTERRUPTED, TERMINATED } from "./src/cli/output/error_text.ts";
import { writeStderr, writeStdout } from "./src/cli/output/streams.ts";
import { parseCommandLine } from "./src/cli/parse.ts";

/** Runs the command that the arguments specify; returns the exit code. */
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
    const context = { verbose: options.verbose, ...signals };
    if (!options.distributed) return await command.run(options, operands, context);
    const { runDistributed } = await import("./src/cli/commands/distributed.ts");
    return await runDistributed(command, options, operands, context);
  } catch (error) {
    const code = exitCode(error);
    if (code !== 0 && code !== INTERRUPTED) await writeStderr(errorText(error, verbose));
    return code;
  }
}

/**
 * Converts a system signal into an `AbortSignal`, from the first call on. A second signal exits.
 */
function listener(name: Deno.Signal, code: number): () => AbortSignal {
  let controller: AbortController | undefined;
  return () => {
    if (controller !== undefined) return controller.signal;
    const raised = controller = new AbortController();
    Deno.addSignalListener(name, () => {
      if (raised.signal.aborted) Deno.exit(code);
      raised.abort();
    });
    return raised.signal;
  };
}

const signals: Pick<Context, "interruptSignal" | "terminateSignal"> = {
  interruptSignal: listener("SIGINT", INTERRUPTED),
  // Windows ends services by Ctrl-Break.
  terminateSignal: listener(Deno.build.os === "windows" ? "SIGBREAK" : "SIGTERM", TERMINATED),
};

if (import.meta.main) Deno.exit(await main(Deno.args));
