/** Help of the program and of its commands, generated from the tables. */
import type { Command } from "./command.ts";
import { COMMANDS } from "./commands.ts";
import { OPTIONS } from "./options/options.ts";
import { OPTION_GROUPS, type OptionSpec } from "./options/types.ts";

/** Widest lines of the help, in columns, and the narrowest that leave room for two columns. */
const MAX_WIDTH = 100;
const MIN_WIDTH = 60;

/** Returns the width of the terminal within these limits; the widest where there is none. */
function width(): number {
  if (!Deno.stdout.isTerminal()) return MAX_WIDTH;
  return Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, Deno.consoleSize().columns));
}

const HELP_OPTION: OptionSpec = {
  flags: "-h, --help",
  kind: "flag",
  group: "Other",
  help: "show this help",
};

/** A row of a two-column list: a term and its description. */
type Row = readonly [term: string, text: string];

/** Returns the help of `forge` itself. */
export function programHelp(): string {
  const rows = COMMANDS.map(({ name, summary }): Row => [name, summary]);
  return join([
    "Usage: forge COMMAND [options]",
    "Runs large language models on this machine.",
    `Commands:\n${columns(rows)}`,
    `Options:\n${columns([["-h, --help", "show this help"], ["--version", "show the version"]])}`,
    "forge COMMAND --help shows the help of a command. Exit codes: 0 success, 1 failure, 2 wrong usage,\n" +
    "130 interrupted.",
  ]);
}

/** Returns the help of a command. */
export function commandHelp(command: Command): string {
  const { name, description, operands = [], notes = [], examples } = command;
  const usage = operands.map((operand) => operand.required ? operand.name : `[${operand.name}]`);
  const rows = optionRows(command);
  const termWidth = Math.max(...rows.flatMap(([, list]) => list.map(([term]) => term.length)));
  const arguments_ = operands.map((operand): Row => [operand.name, operand.help]);
  return join([
    ["Usage: forge", name, "[options]", ...usage].join(" "),
    ...description.map((text) => wrap(text, 0)),
    ...(arguments_.length === 0 ? [] : [`Arguments:\n${columns(arguments_, termWidth)}`]),
    ...rows.map(([group, list]) => `${group}:\n${columns(list, termWidth)}`),
    ...notes.map((text) => wrap(text, 0)),
    `Examples:\n${examples.map((example) => `  ${example}`).join("\n")}`,
  ]);
}

/** Returns the options of a command by group. */
function optionRows(command: Command): (readonly [group: string, rows: Row[]])[] {
  const specs: OptionSpec[] = [...command.options.map((name) => OPTIONS[name]), HELP_OPTION];
  return OPTION_GROUPS.map((group) =>
    [group, specs.filter((spec) => spec.group === group).map(optionRow)] as const
  ).filter(([, rows]) => rows.length > 0);
}

function optionRow(spec: OptionSpec): Row {
  // Aligns long flags with and without a short one.
  const flags = spec.flags.startsWith("--") ? `    ${spec.flags}` : spec.flags;
  const term = spec.kind === "flag"
    ? flags
    : spec.kind === "optional"
    ? `${flags}[=${spec.metavar}]`
    : `${flags} ${spec.metavar}`;
  const choices = spec.kind === "choice" ? `, ${spec.choices.join(" or ")}` : "";
  const defaultText = spec.defaultText === undefined ? "" : ` (default: ${spec.defaultText})`;
  return [term, `${spec.help}${choices}${defaultText}`];
}

function columns(rows: readonly Row[], termWidth = 0): string {
  const width = Math.max(termWidth, ...rows.map(([term]) => term.length));
  const indent = width + 4;
  return rows.map(([term, text]) => `  ${term.padEnd(width)}  ${wrap(text, indent).trimStart()}`)
    .join("\n");
}

/** Wraps a text into lines that begin with `indent` spaces. */
function wrap(text: string, indent: number): string {
  const lines: string[] = [];
  const most = width();
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && indent + line.length + 1 + word.length > most) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  return [...lines, line].map((part) => " ".repeat(indent) + part).join("\n");
}

function join(parts: readonly string[]): string {
  return `${parts.join("\n\n")}\n`;
}
