/** Arguments that belong to no option: a model, what it is given, or both. */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { isModel, namesModel } from "../model/model_path.ts";

/** What a command is given without flags. */
export interface TextOperands {
  readonly model: string | undefined;
  /** `-` for stdin. */
  readonly text: string | undefined;
}

/** What is given by options, and how a lone word is read. */
interface GivenOptions {
  readonly model: string | undefined;
  /** True if an option gives the text. */
  readonly hasText: boolean;
  /** What error messages call the text. */
  readonly noun: "prompt" | "text";
  /** True if a lone word is a text unless it may be a model; otherwise it is refused as a likely typo. */
  readonly takesWords: boolean;
}

/**
 * Tells model and text apart. Of two arguments the model comes first; one alone is what no option gives.
 *
 * @throws {ForgeError} `usage` when something is given twice, or one alone could be either
 */
export function textOperands(operands: readonly string[], options: GivenOptions): TextOperands {
  const [first, second] = operands;
  const { model, hasText, noun } = options;
  if (second !== undefined) {
    if (model !== undefined) throw twice("model", "-m");
    return { model: first, text: second };
  }
  if (first === undefined || first === "-") return { model, text: first };
  if (model !== undefined) return { model, text: first };
  if (hasText || isModel(first)) return { model: first, text: undefined };
  if (options.takesWords) {
    if (!namesModel(first)) return { model: undefined, text: first };
    throw ambiguous(first, noun, "pipe the text in, or name the model with -m");
  }
  if (namesModel(first)) return { model: first, text: undefined };
  if (/\s/.test(first)) return { model: undefined, text: first };
  throw ambiguous(
    first,
    noun,
    `there is no such file; say -p ${first}, or -m with a model's file, folder or hub name`,
  );
}

function ambiguous(word: string, noun: string, advice: string): ForgeError {
  return new ForgeError("usage", `is ${quote(word)} a ${noun} or a model? ${advice}`);
}

function twice(what: string, flag: string): ForgeError {
  return new ForgeError("usage", `give the ${what} once: as an argument or with ${flag}`);
}
