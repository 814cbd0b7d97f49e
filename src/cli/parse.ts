/** Parsing of the command line, by the tables of commands and options. */
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
 * @throws {ForgeError} `usage` for an unknown command or option (with the nearest known one), a
 * value that is missing or out of range, or a wrong number of arguments.
 */
export function parseCommandLine(args: readonly string[]): Invocation {
  const [first, ...rest] = args;
  if (first === undefined) return { kind: "nothing", text: programHelp() };
  if (first === "help") return rest.length === 0 ? helpOf(undefined) : parseHelp(rest[0]!);
  if (HELP_FLAGS.includes(first)) return helpOf(findCommand(rest[0]));
  if (first === VERSION_FLAG) return versionText();
  const command = findCommand(first);
  if (command !== undefined) return parseArguments(command, rest);
  const kind = first.startsWith("-") ? "option" : "command";
  throw new ForgeError("usage", `unknown ${kind} ${quote(first)}; ${commandAdvice(first)}`);
}

const HELP_FLAGS: readonly string[] = ["-h", "--help"];
const VERSION_FLAG = "--version";

function findCommand(name: string | undefined): Command | undefined {
  return COMMANDS.find((command) => command.name === name);
}

function helpOf(command: Command | undefined): Invocation {
  return { kind: "text", text: command === undefined ? programHelp() : commandHelp(command) };
}

/** Parses `forge help COMMAND`. */
function parseHelp(name: string): Invocation {
  const command = findCommand(name);
  return command === undefined ? parseCommandLine([name]) : helpOf(command);
}

function versionText(): Invocation {
  return { kind: "text", text: `forge ${describeVersion()}\n` };
}

/** Parses the arguments after the name of a command. */
function parseArguments(command: Command, args: readonly string[]): Invocation {
  rejectForeignFlags(args);
  const byFlag = new Map<string, readonly [name: OptionName, spec: OptionSpec]>();
  const values: Partial<Record<OptionName, unknown>> = {};
  for (const name of command.options) {
    const spec: OptionSpec = OPTIONS[name];
    for (const flag of spec.flags.split(", ")) byFlag.set(flag, [name, spec]);
    values[name] = spec.kind === "flag" ? isNegated(spec) : undefined;
  }
  const operands: string[] = [];
  // Unknown options are reported at the end, so that --help after them wins.
  let unknown: string | undefined;
  const waiting = [...args];
  for (let arg = waiting.shift(); arg !== undefined; arg = waiting.shift()) {
    if (arg === "--") {
      operands.push(...waiting.splice(0));
    } else if (!arg.startsWith("-") || arg === "-" || /^-\.?\d/.test(arg)) {
      operands.push(arg);
    } else if (HELP_FLAGS.includes(arg)) {
      return helpOf(command);
    } else if (arg === VERSION_FLAG) {
      return versionText();
    } else {
      const { flag, attached } = splitFlag(arg);
      const [name, spec] = byFlag.get(flag) ?? [];
      if (name === undefined || spec === undefined) {
        unknown ??= arg;
      } else if (spec.kind !== "flag") {
        const text = attached ?? (spec.kind === "optional" ? "" : waiting.shift());
        if (text === undefined) throw missingValue(spec, spec.metavar);
        values[name] = parseOptionValue(spec, text, values[name]);
      } else if (attached === undefined) {
        values[name] = !isNegated(spec);
      } else {
        unknown ??= arg;
      }
    }
  }
  if (unknown !== undefined) throw unknownOption(unknown, command);
  checkOperands(command, operands);
  return { kind: "command", command, options: values as Options<OptionName>, operands };
}

/** Separates a value from its flag: `--flag=value` or `-fvalue`. */
function splitFlag(arg: string): { readonly flag: string; readonly attached?: string } {
  const [, flag = arg, attached] = /^(--[^=]+)=(.*)$/s.exec(arg) ?? /^(-[^-])(.+)$/s.exec(arg) ??
    [];
  return attached === undefined ? { flag } : { flag, attached };
}

/** True for a flag that turns off what is otherwise on, such as `--no-special`. */
function isNegated(spec: OptionSpec): boolean {
  return longFlag(spec).startsWith("--no-");
}

function missingValue(spec: OptionSpec, metavar: string): ForgeError {
  const flag = longFlag(spec);
  return new ForgeError("usage", `${flag} needs a value: ${flag} ${metavar}`);
}

function unknownOption(arg: string, command: Command): ForgeError {
  const suggestion = arg.startsWith("--") ? knownFlag(arg, command) : undefined;
  const advice = suggestion === undefined
    ? `see forge ${command.name} --help`
    : `did you mean ${suggestion}?`;
  return new ForgeError("usage", `unknown option ${quote(arg)}; ${advice}`);
}

/**
 * @throws {ForgeError} `usage` for a foreign flag that would parse as a short flag with a value.
 */
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

/** Returns the advice for an unknown command or option of the program. */
function commandAdvice(name: string): string {
  const names = [...COMMANDS.map((command) => command.name), VERSION_FLAG, "--help"];
  const nearest = nearestName(name, names, COMMAND_ALIASES);
  return nearest === undefined ? "see forge --help" : `did you mean ${nearest}?`;
}

/** Returns the flag of a command that is nearest to an unknown one. */
function knownFlag(unknown: string, { options }: Command): string | undefined {
  const flags = options.map((name) => longFlag(OPTIONS[name]));
  const aliases = Object.entries(FLAG_ALIASES).filter(([, flag]) => flags.includes(flag));
  return nearestName(unknown.split("=")[0]!, flags, Object.fromEntries(aliases));
}
