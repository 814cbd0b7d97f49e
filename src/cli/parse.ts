/** Parsing of the command line with commander, by the tables of commands and options. */
import { Command as Parser, CommanderError, Option } from "commander";
import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import { nearestName } from "../formats/suggest.ts";
import type { Command } from "./command.ts";
import { COMMANDS } from "./commands.ts";
import { commandHelp, programHelp } from "./help.ts";
import { COMMAND_ALIASES, FLAG_ALIASES, SHORT_FLAG_ALIASES } from "./options/aliases.ts";
import { type OptionName, OPTIONS, type Options } from "./options/options.ts";
import { longFlag, type OptionSpec } from "./options/types.ts";
import { parseOptionValue } from "./options/value.ts";
import { describeVersion } from "./version.ts";

/** Result of parsing. */
type Invocation =
  /** Run a command. */
  | {
    readonly kind: "command";
    readonly command: Command;
    readonly options: Options<OptionName>;
    readonly operands: readonly string[];
  }
  /** Print help or the version. */
  | { readonly kind: "text"; readonly text: string }
  /** Print the help, because there were no arguments. */
  | { readonly kind: "nothing"; readonly text: string };

/**
 * Reads the arguments of the command line.
 *
 * @throws {ForgeError} `usage` for an unknown command or option (with the nearest known one), a value
 * that is missing or out of range, or a wrong number of arguments.
 */
export function parseCommandLine(args: readonly string[]): Invocation {
  if (args[0] === "help") return parseHelp(args[1]);
  const [first = "-"] = args;
  if (!first.startsWith("-") && !COMMANDS.some(({ name }) => name === first)) {
    throw new ForgeError("usage", `unknown command ${quote(first)}; ${commandAdvice(first)}`);
  }
  rejectForeignFlags(args);
  let text = "";
  let invocation: Invocation = { kind: "nothing", text: programHelp() };
  const configure = (parser: Parser, help: () => string) =>
    parser.exitOverride()
      .helpCommand(false)
      .allowExcessArguments()
      .configureHelp({ formatHelp: help })
      .configureOutput({ writeOut: (part) => text += part, writeErr: () => {} });
  const program = new Parser("forge").version(`forge ${describeVersion()}`, "--version");
  configure(program, programHelp);
  for (const command of COMMANDS) {
    const parser = program.command(command.name);
    configure(parser, () => commandHelp(command));
    const options = command.options.map((name) => [name, optionOf(OPTIONS[name])] as const);
    for (const [, option] of options) parser.addOption(option);
    parser.action(() => {
      checkOperands(command, parser.args);
      const values: Record<string, unknown> = parser.opts();
      const named = options.map(([name, option]) => [name, values[option.attributeName()]]);
      invocation = {
        kind: "command",
        command,
        options: Object.fromEntries(named),
        operands: parser.args,
      };
    });
  }
  try {
    if (args.length > 0) program.parse(withEmptyValues(args), { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return { kind: "text", text };
    throw usageError(error, args[0]);
  }
  return invocation;
}

/** @throws {ForgeError} `usage` for a foreign flag that would parse as a short flag with a value. */
function rejectForeignFlags(args: readonly string[]): void {
  const end = args.indexOf("--");
  for (const arg of end < 0 ? args : args.slice(0, end)) {
    if (!Object.hasOwn(SHORT_FLAG_ALIASES, arg)) continue;
    throw new ForgeError(
      "usage",
      `unknown option ${quote(arg)}; did you mean ${SHORT_FLAG_ALIASES[arg]}?`,
    );
  }
}

/** Parses `forge help` and `forge help COMMAND`. */
function parseHelp(name: string | undefined): Invocation {
  if (name === undefined) return { kind: "text", text: programHelp() };
  const command = COMMANDS.find((candidate) => candidate.name === name);
  return command === undefined
    ? parseCommandLine([name])
    : { kind: "text", text: commandHelp(command) };
}

/** Gives flags of the kind `optional` an empty value, so that they never take the next argument. */
function withEmptyValues(args: readonly string[]): string[] {
  const flags = Object.values(OPTIONS).filter(({ kind }) => kind === "optional").map(longFlag);
  const end = args.indexOf("--");
  return args.map((arg, i) => flags.includes(arg) && (end < 0 || i < end) ? `${arg}=` : arg);
}

function optionOf(spec: OptionSpec): Option {
  if (spec.kind === "flag") {
    const option = new Option(spec.flags);
    return option.negate ? option : option.default(false);
  }
  const option = new Option(`${spec.flags} <${spec.metavar}>`);
  return option.argParser((text: string, previous: unknown) =>
    parseOptionValue(spec, text, previous)
  );
}

function checkOperands({ name, operands = [] }: Command, given: readonly string[]): void {
  const missing = operands[given.length];
  if (missing?.required) {
    throw new ForgeError("usage", `${missing.name} is missing: ${missing.help}`);
  }
  const surplus = given[operands.length];
  if (surplus !== undefined) {
    throw new ForgeError(
      "usage",
      `unexpected argument ${quote(surplus)}; see forge ${name} --help`,
    );
  }
}

/** Returns the advice for an unknown command. */
function commandAdvice(name: string): string {
  const nearest = nearestName(name, COMMANDS.map((command) => command.name), COMMAND_ALIASES);
  return nearest === undefined ? "see forge --help" : `did you mean ${nearest}?`;
}

/** Converts an error of commander. */
function usageError(error: CommanderError, commandName = ""): ForgeError {
  const [first = "", hint = ""] = error.message.replace(/^error: /, "").split("\n");
  const [, flag, metavar] = /(--\S+) <(.+)>' argument missing/.exec(first) ?? [];
  const [, similar] = /^\(Did you mean (?:one of )?(.+?)\?\)$/.exec(hint) ?? [];
  const command = COMMANDS.find(({ name }) => name === commandName);
  const [, unknown] = /^unknown option '(--[^']+)'/.exec(first) ?? [];
  const suggestion =
    (command === undefined
      ? nearestName(commandName, COMMANDS.map(({ name }) => name), COMMAND_ALIASES)
      : unknown && knownFlag(unknown, command)) ?? similar;
  const advice = suggestion === undefined
    ? `see forge ${command === undefined ? "" : `${commandName} `}--help`
    : `did you mean ${suggestion}?`;
  const text = flag === undefined
    ? `${first.replace(/'([^']*)'/g, '"$1"')}; ${advice}`
    : `${flag} needs a value: ${flag} ${metavar}`;
  return new ForgeError("usage", text, { cause: error });
}

/** Returns the flag of a command that is nearest to an unknown one. */
function knownFlag(unknown: string, { options }: Command): string | undefined {
  const flags = options.map((name) => longFlag(OPTIONS[name]));
  const aliases = Object.entries(FLAG_ALIASES).filter(([, flag]) => flags.includes(flag));
  return nearestName(unknown.split("=")[0]!, flags, Object.fromEntries(aliases));
}
