/** What a command is, for the table in `commands.ts` and those who read it. */
import type { OptionName, Options } from "./options/options.ts";

/** What a command may use of the process it runs in. */
export interface Context {
  /** Whether details are wanted on stderr. */
  readonly verbose: boolean;
  /** From the first call on, Ctrl-C raises the signal; a second Ctrl-C ends the process at once. */
  interruptSignal(): AbortSignal;
  /** The same for the signal SIGTERM, by which services are ended. */
  terminateSignal(): AbortSignal;
}

/**
 * Does what a command is for.
 *
 * @param operands the arguments that belong to no option
 * @returns the exit code
 */
type Run<K extends OptionName> = (
  options: Options<K>,
  operands: readonly string[],
  context: Context,
) => Promise<number>;

/** An argument that belongs to no option. */
interface OperandSpec {
  readonly name: string;
  readonly help: string;
  readonly required: boolean;
  /** What it can be, where these are few, or the names that `forge list` shows; any text without it. */
  readonly values?: readonly string[] | "downloads";
}

/** What is said of a command, and which options it takes. */
interface CommandSpec {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** Paragraphs for the command's own help, and the notes after its options. */
  readonly description: readonly string[];
  readonly notes?: readonly string[];
  readonly examples: readonly string[];
  readonly operands?: readonly OperandSpec[];
  readonly options: readonly OptionName[];
}

/** A command, whose code is loaded when it runs. */
export interface Command extends CommandSpec {
  readonly run: Run<OptionName>;
}

/** Joins a command's description to its code, which must take just these options. */
export function defineCommand<K extends OptionName>(
  spec: CommandSpec & { readonly options: readonly K[] },
  load: () => Promise<{ readonly run: Run<K> }>,
): Command {
  return {
    ...spec,
    run: async (options, operands, context) => await (await load()).run(options, operands, context),
  };
}
