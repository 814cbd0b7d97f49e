/** `forge tokenize`: the tokens of a text. */
import { ForgeError } from "../errors.ts";
import { openCheckpoint, openTokenizer } from "../mod.ts";
import type { Context } from "./command.ts";
import { printable } from "./format.ts";
import { resolveModel } from "./model_path.ts";
import type { Options } from "./options/options.ts";
import { writeStdout } from "./output.ts";
import { readStdin, readTextFile } from "./text_source.ts";

type TokenizeOptions = Options<"text" | "special" | "model" | "ids" | "json">;

export async function run(
  options: TokenizeOptions,
  [operand]: readonly string[],
  context: Context,
): Promise<number> {
  if (options.ids && options.json) {
    throw new ForgeError("usage", "give --ids or --json, not both");
  }
  const checkpoint = openCheckpoint(await resolveModel(options.model, context.interruptSignal()));
  const text = await readInput(options.text, operand);
  const tokenizer = openTokenizer(checkpoint);
  const { special } = options;
  const ids = [...tokenizer.encode(text, { addSpecial: special, parseSpecial: special })];
  const pieces = ids.map((id) => tokenizer.tokenText(id));
  if (options.json) {
    await writeStdout(`${JSON.stringify({ ids, pieces })}\n`);
  } else if (options.ids) {
    await writeStdout(`${ids.join(" ")}\n`);
  } else {
    const width = Math.max(0, ...ids.map((id) => `${id}`.length));
    const lines = ids.map((id, i) =>
      `${`${id}`.padStart(width)}  ${printable(JSON.stringify(pieces[i]))}\n`
    );
    await writeStdout(lines.join(""));
  }
  return 0;
}

/** The text, from the one place that the user names. */
async function readInput(file: string | undefined, operand: string | undefined): Promise<string> {
  if (file !== undefined && operand !== undefined) {
    throw new ForgeError("usage", "give the text once: as an argument, with -f or as -");
  }
  if (file !== undefined) return await readTextFile(file);
  if (operand !== undefined && operand !== "-") return operand;
  if (operand === undefined && Deno.stdin.isTerminal()) {
    throw new ForgeError(
      "usage",
      "there is no text; give it as an argument, with -f, or pipe it in",
    );
  }
  return await readStdin();
}
