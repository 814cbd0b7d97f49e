/**
 * `forge completions`: prints completion scripts, generated from the tables of commands and
 * options.
 */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { Command, Context } from "../command.ts";
import { OPTIONS, type Options } from "../options/options.ts";
import type { OptionSpec } from "../options/types.ts";
import { writeStdout } from "../output/streams.ts";

const SHELLS = { bash, zsh, fish };

/** Returns the command, which prints the completions of `commands`. */
export function completionsOf(commands: readonly Command[]) {
  return {
    run: (_options: Options<"verbose">, [shell = ""]: readonly string[], _context: Context) =>
      print(shell, commands),
  };
}

async function print(shell: string, commands: readonly Command[]): Promise<number> {
  if (!Object.hasOwn(SHELLS, shell)) {
    const valid = Object.keys(SHELLS).join(", ");
    throw new ForgeError(
      "usage",
      `no completions for the shell ${quote(shell)}; valid are ${valid}`,
    );
  }
  await writeStdout(SHELLS[shell as keyof typeof SHELLS](commands));
  return 0;
}

/** Shell words that print the names of downloaded models. */
const DOWNLOADS = "$(forge list 2>/dev/null | cut -d ' ' -f 1)";

function bash(all: readonly Command[]): string {
  const flags = all.map((command) => {
    const operands = operandValues(command);
    const words = operands === "" ? "" : ` operands="${operands}"`;
    const files = operandsTakeFiles(command) ? " files=1" : "";
    return `    ${command.name}) flags="${
      specs(command).flatMap(flagsOf).join(" ")
    } --help"${words}${files} ;;`;
  });
  // Flags with the same values share a line.
  const places = all.flatMap((command) =>
    specs(command).flatMap((spec) =>
      flagsOf(spec).filter(() => takesNextWord(spec)).map((flag) => ({
        place: `'${command.name} ${flag}'`,
        values: choicesOf(spec) !== ""
          ? `values="${choicesOf(spec)}" files=`
          : takesFile(spec)
          ? "files=1"
          : "files=",
      }))
    )
  );
  const values = Map.groupBy(places, (entry) => entry.values).entries().map(([words, entries]) =>
    `    ${entries.map(({ place }) => place).join("|")}) takes=1 ${words} ;;`
  );
  return `_forge() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]}
  local command=\${COMP_WORDS[1]} flags= operands= values= words= files= takes=
  # Bash splits --flag=value into three words.
  if [[ $current == "=" ]]; then
    current=
  elif [[ $previous == "=" ]]; then
    previous=\${COMP_WORDS[COMP_CWORD-2]}
  fi
  case $command in
${flags.join("\n")}
  esac
  case "$command $previous" in
${values.toArray().join("\n")}
  esac
  if (( COMP_CWORD == 1 )); then
    words="${all.map(({ name }) => name).join(" ")} --help --version"
  elif [[ -n $takes ]]; then
    words=$values
  elif [[ $current == -* ]]; then
    words=$flags
  else
    words=$operands
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  # Without this, nothing is offered where no file can be meant.
  if [[ -n $files ]]; then compopt -o default 2>/dev/null; fi
}
complete -F _forge forge
`;
}

function zsh(all: readonly Command[]): string {
  const commands = all.map(({ name, summary }) => `    '${name}:${zshText(summary)}'`);
  const cases = all.map((command) => {
    const lines = specs(command).flatMap((spec) =>
      flagsOf(spec).map((flag) => zshOption(spec, flag))
    );
    const operands = operandValues(command);
    const operand = operands !== ""
      ? `"*:value:(${zshQuoted(operands)})"`
      : operandsTakeFiles(command)
      ? "'*:file:_files'"
      : "'*:text: '";
    return `    ${command.name}) _arguments ${lines.join(" ")} ${operand} ;;`;
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
  const choices = choicesOf(spec);
  const action = choices !== "" ? `(${choices})` : takesFile(spec) ? "_files" : " ";
  const value = spec.kind === "flag" ? "" : `:${zshText(spec.metavar)}:${action}`;
  if (spec.kind === "optional") return `'*${flag}=-[${zshText(spec.help)}]:${value}'`;
  // With "=", zsh accepts the value after a space or an equals sign.
  const written = spec.kind !== "flag" && flag.startsWith("--") ? `${flag}=` : flag;
  return `'*${written}[${zshText(spec.help)}]${value}'`;
}

/** Escapes characters that would end a quoted description. */
function zshText(text: string): string {
  return text.replaceAll("'", "’").replace(/[[\]:\\]/g, "\\$&");
}

/** Escapes a command substitution, so that it runs at completion. */
function zshQuoted(words: string): string {
  return words.replaceAll("$", "\\$");
}

function fish(all: readonly Command[]): string {
  const lines = all.flatMap((command) => {
    const condition = `'__fish_seen_subcommand_from ${command.name}'`;
    const operands = operandValues(command).replace(/^\$/, "").replaceAll("'", '"');
    return [
      `complete -c forge -n __fish_use_subcommand -f -a ${command.name} -d ${
        fishText(command.summary)
      }`,
      ...(operands !== ""
        ? [`complete -c forge -n ${condition} -f -a '${operands}'`]
        : operandsTakeFiles(command)
        ? []
        : [`complete -c forge -n ${condition} -f`]),
      ...specs(command).map((spec) => {
        const flags = flagsOf(spec).map((flag) =>
          flag.startsWith("--") ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`
        );
        const choices = choicesOf(spec);
        const value = !takesNextWord(spec)
          ? ""
          : choices !== ""
          ? ` -x -a '${choices}'`
          : takesFile(spec)
          ? " -r"
          : " -x";
        return `complete -c forge -n ${condition} ${flags.join(" ")}${value} -d ${
          fishText(spec.help)
        }`;
      }),
    ];
  });
  return `${lines.join("\n")}\n`;
}

function fishText(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&")}'`;
}

/** Returns the valid or suggested values of an option; empty if there are none. */
function choicesOf(spec: OptionSpec): string {
  if ("choices" in spec) return spec.choices.join(" ");
  return "suggestions" in spec ? spec.suggestions?.join(" ") ?? "" : "";
}

/** True if the word after a flag is its value. */
function takesNextWord({ kind }: OptionSpec): boolean {
  return kind !== "flag" && kind !== "optional";
}

function takesFile(spec: OptionSpec): boolean {
  return "metavar" in spec && /FILE|MODEL|DIR|PATH/.test(spec.metavar);
}

/** True if an argument of a command can be a file. */
function operandsTakeFiles({ operands = [] }: Command): boolean {
  return operands.some(({ name }) => name === "MODEL");
}

/** Returns the valid values of a command's argument, as shell words; empty if any text is valid. */
function operandValues({ operands = [] }: Command): string {
  const { values = [] } = operands[0] ?? {};
  return values === "downloads" ? DOWNLOADS : values.join(" ");
}

function specs(command: Command): OptionSpec[] {
  return command.options.map((name) => OPTIONS[name]);
}

function flagsOf(spec: OptionSpec): string[] {
  return spec.flags.split(", ");
}
