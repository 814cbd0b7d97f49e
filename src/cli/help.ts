/** Help of the program and of its commands, generated from the tables. */
import type { Command } from "./command.ts";
import { COMMANDS } from "./commands.ts";
import { OPTIONS } from "./options/options.ts";
import { OPTION_GROUPS, type OptionSpec } from "./options/types.ts";
import { columnsOf, formatColumns, styled, wrap } from "./output/terminal_text.ts";

/** Widest lines of the help, in columns. */
const MAX_WIDTH = 100;

/** Returns the width of the terminal, up to that of the widest lines. */
function width(): number {
  return Math.min(MAX_WIDTH, columnsOf(Deno.stdout) ?? MAX_WIDTH);
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
    section("Commands", rows),
    section("Options", [["-h, --help", "show this help"], ["--version", "show the version"]]),
    paragraph(
      "forge COMMAND --help shows the help of a command. Exit codes: 0 success, 1 failure, 2 wrong " +
        "usage, 130 interrupted.",
    ),
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
    paragraph(["Usage: forge", name, "[options]", ...usage].join(" ")),
    ...description.map(paragraph),
    ...(arguments_.length === 0 ? [] : [section("Arguments", arguments_, termWidth)]),
    ...rows.map(([group, list]) => section(group, list, termWidth)),
    ...notes.map(paragraph),
    // Examples are not broken, so that they can be copied.
    `${heading("Examples")}\n${examples.map((example) => `  ${example}`).join("\n")}`,
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
  const choices = spec.kind === "choice"
    ? `: ${spec.choices.join(", ").replace(/, ([^,]*)$/, " or $1")}`
    : "";
  const defaultText = spec.defaultText === undefined ? "" : ` (default: ${spec.defaultText})`;
  return [term, `${spec.help}${choices}${defaultText}`];
}

function section(title: string, rows: readonly Row[], termWidth = 0): string {
  const layout = { columns: width(), indent: 2, termWidth };
  return `${heading(title)}\n${formatColumns(rows, layout)}`;
}

function heading(title: string): string {
  return styled(Deno.stdout, "bold", paragraph(`${title}:`));
}

function paragraph(text: string): string {
  return wrap(text, width()).join("\n");
}

function join(parts: readonly string[]): string {
  return `${parts.join("\n\n")}\n`;
}
