/** `forge completions`: scripts that complete commands and options, from the same tables as parsing. */
import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import type { Command, Context } from "./command.ts";
import { COMMANDS } from "./commands.ts";
import { OPTIONS, type Options } from "./options/options.ts";
import type { OptionSpec } from "./options/types.ts";
import { writeStdout } from "./output.ts";

const SHELLS = { bash, zsh, fish };

export async function run(
  _options: Options<"verbose">,
  [shell = ""]: readonly string[],
  _context: Context,
): Promise<number> {
  if (!Object.hasOwn(SHELLS, shell)) {
    const valid = Object.keys(SHELLS).join(", ");
    throw new ForgeError(
      "usage",
      `no completions for the shell ${quote(shell)}; valid are ${valid}`,
    );
  }
  await writeStdout(SHELLS[shell as keyof typeof SHELLS]());
  return 0;
}

function bash(): string {
  const cases = COMMANDS.map((command) =>
    `    ${command.name}) words="${specs(command).flatMap(flagsOf).join(" ")} --help" ;;`
  );
  return `_forge() {
  local current=\${COMP_WORDS[COMP_CWORD]} words
  case \${COMP_WORDS[1]} in
${cases.join("\n")}
    *) words="${COMMANDS.map(({ name }) => name).join(" ")} --help --version" ;;
  esac
  if [[ $current == -* || $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  fi
}
complete -o default -F _forge forge
`;
}

function zsh(): string {
  const commands = COMMANDS.map(({ name, summary }) => `    '${name}:${zshText(summary)}'`);
  const cases = COMMANDS.map((command) => {
    const lines = specs(command).flatMap((spec) =>
      flagsOf(spec).map((flag) => zshOption(spec, flag))
    );
    return `    ${command.name}) _arguments ${lines.join(" ")} '*:file:_files' ;;`;
  });
  return `#compdef forge
_forge() {
  local -a commands=(
${commands.join("\n")}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
${cases.join("\n")}
  esac
}
if [[ \${funcstack[1]} == _forge ]]; then _forge "$@"; else compdef _forge forge; fi
`;
}

function zshOption(spec: OptionSpec, flag: string): string {
  const value = spec.kind === "flag" ? "" : `:${spec.metavar}:${valuesOf(spec)}`;
  return `'*${flag}[${zshText(spec.help)}]${value}'`;
}

function valuesOf(spec: OptionSpec): string {
  return spec.kind === "choice" ? `(${spec.choices.join(" ")})` : "_files";
}

/** Takes out what would end a quoted description. */
function zshText(text: string): string {
  return text.replaceAll("'", "’").replace(/[[\]:]/g, "");
}

function fish(): string {
  const lines = COMMANDS.flatMap((command) => [
    `complete -c forge -n __fish_use_subcommand -f -a ${command.name} -d ${
      fishText(command.summary)
    }`,
    ...specs(command).map((spec) => {
      const flags = flagsOf(spec).map((flag) =>
        flag.startsWith("--") ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`
      );
      const value = spec.kind === "flag"
        ? ""
        : spec.kind === "choice"
        ? ` -x -a '${spec.choices.join(" ")}'`
        : " -r";
      const condition = `'__fish_seen_subcommand_from ${command.name}'`;
      return `complete -c forge -n ${condition} ${flags.join(" ")}${value} -d ${
        fishText(spec.help)
      }`;
    }),
  ]);
  return `${lines.join("\n")}\n`;
}

function fishText(text: string): string {
  return `'${text.replaceAll("'", "\\'")}'`;
}

function specs(command: Command): OptionSpec[] {
  return command.options.map((name) => OPTIONS[name]);
}

function flagsOf(spec: OptionSpec): string[] {
  return spec.flags.split(", ");
}
