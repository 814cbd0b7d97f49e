/** `forge tokenize`: prints the tokens of a text. */
import { ForgeError } from "../../errors.ts";
import { openCheckpoint, openTokenizer, type Tokenizer } from "../../mod.ts";
import type { Context } from "../command.ts";
import { printable } from "../output/format.ts";
import { resolveModel } from "../model/model_path.ts";
import { textOperands } from "../input/operands.ts";
import type { Options } from "../options/options.ts";
import { writeStdout } from "../output/streams.ts";
import { readTextFile } from "../input/text_source.ts";

type TokenizeOptions = Options<"text" | "special" | "model" | "ids" | "json">;

export async function run(
  options: TokenizeOptions,
  operands: readonly string[],
  context: Context,
): Promise<number> {
  if (options.ids && options.json) {
    throw new ForgeError("usage", "give --ids or --json, not both");
  }
  const signal = context.interruptSignal();
  const given = textOperands(operands, {
    model: options.model,
    hasText: options.text !== undefined,
    noun: "text",
    takesWords: true,
  });
  const checkpoint = openCheckpoint(await resolveModel(given.model, signal));
  const text = await readInput(options.text, given.text, signal);
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
      `${`${id}`.padStart(width)}  ${describePiece(tokenizer, id, pieces[i]!)}\n`
    );
    await writeStdout(lines.join(""));
  }
  return 0;
}

/** Returns the text. @throws {ForgeError} `usage` if it is missing or given twice */
async function readInput(
  file: string | undefined,
  operand: string | undefined,
  signal: AbortSignal,
): Promise<string> {
  if (file !== undefined && operand !== undefined) {
    throw new ForgeError("usage", "give the text once: as an argument, with -f or as -");
  }
  if (operand !== undefined && operand !== "-") return operand;
  if (file === undefined && operand === undefined && Deno.stdin.isTerminal()) {
    throw new ForgeError(
      "usage",
      "no text; give it as an argument, with -f, or pipe it in",
    );
  }
  return await readTextFile(file ?? "-", signal);
}

/** Returns the text of a token in quotes, or its bytes if they are not whole characters. */
function describePiece(tokenizer: Tokenizer, id: number, piece: string): string {
  // Control tokens add no text, and are shown by name.
  if (tokenizer.isSpecial(id)) return printable(JSON.stringify(piece));
  const bytes = tokenizer.tokenBytes(id);
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return printable(JSON.stringify(text));
  } catch {
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0"));
    return `bytes ${hex.join(" ")}`;
  }
}
