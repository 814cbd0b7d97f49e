/** Types of commands, for the table in `commands.ts`. */
import type { OptionName, Options } from "./options/options.ts";

/** Process state that commands use. */
export interface Context {
  /** True if details are printed to stderr. */
  readonly verbose: boolean;
  /** After the first call, Ctrl-C aborts the signal, and a second Ctrl-C ends the process. */
  interruptSignal(): AbortSignal;
  /** The same for SIGTERM, for commands that have something to finish or to remove. */
  terminateSignal(): AbortSignal;
}

/**
 * Runs a command.
 *
 * @param operands arguments that belong to no option
 * @returns exit code
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
  /** Valid values, or `downloads` for the names of downloaded models. Any text if missing. */
  readonly values?: readonly string[] | "downloads";
}

/** Help and options of a command. */
interface CommandSpec {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** Paragraphs of the command's help, before its options. */
  readonly description: readonly string[];
  /** Paragraphs after its options. */
  readonly notes?: readonly string[];
  readonly examples: readonly string[];
  readonly operands?: readonly OperandSpec[];
  readonly options: readonly OptionName[];
}

/** A command. Its code is loaded when it runs. */
export interface Command extends CommandSpec {
  readonly run: Run<OptionName>;
}

/**
 * Defines a command from its description and its code. The types ensure that their options agree.
 */
export function defineCommand<K extends OptionName>(
  spec: CommandSpec & { readonly options: readonly K[] },
  load: () => Promise<{ readonly run: Run<K> }>,
): Command {
  return {
    ...spec,
    run: async (options, operands, context) => await (await load()).run(options, operands, context),
  };
}
