/** Operands of a command: a model, a text, or both. */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { isModel, namesModel } from "../model/model_path.ts";

/** Operands by meaning. */
interface TextOperands {
  readonly model: string | undefined;
  /** `-` for stdin. */
  readonly text: string | undefined;
}

/** Values from options, and the reading of a single operand. */
interface GivenOptions {
  readonly model: string | undefined;
  /** True if an option gives the text. */
  readonly hasText: boolean;
  /** Name of the text in errors. */
  readonly noun: "prompt" | "text" | "query";
  /**
   * True if a single word is a text unless it may be a model; otherwise it is an error, as a likely
   * typo.
   */
  readonly takesWords: boolean;
}

/**
 * Assigns operands to model and text. Of two operands the model comes first; a single operand is
 * the one that no option gives.
 *
 * @throws {ForgeError} `usage` if a value is given twice, or a single operand is ambiguous
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
    `no such file; use -p ${first}, or -m with a model's file, folder or hub name`,
  );
}

function ambiguous(word: string, noun: string, advice: string): ForgeError {
  return new ForgeError("usage", `is ${quote(word)} a ${noun} or a model? ${advice}`);
}

function twice(what: string, flag: string): ForgeError {
  return new ForgeError("usage", `give the ${what} once: as an argument or with ${flag}`);
}
