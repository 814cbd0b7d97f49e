/** The arguments of `forge run` that belong to no option: a model, a prompt, or both. */
import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import { namesModel } from "./model_path.ts";

/** What `forge run` is given without flags. */
export interface RunOperands {
  readonly model: string | undefined;
  /** `-` for stdin. */
  readonly prompt: string | undefined;
}

/**
 * Tells model and prompt apart: of two the model comes first; one alone is what no option gives.
 *
 * @param options what is given as options
 * @throws {ForgeError} `usage` when something is given twice, or one alone could be either
 */
export function runOperands(
  operands: readonly string[],
  options: { readonly model: string | undefined; readonly hasPrompt: boolean },
): RunOperands {
  const [first, second] = operands;
  if (second !== undefined) {
    if (options.model !== undefined) throw twice("model", "-m");
    return { model: first, prompt: second };
  }
  if (first === undefined || first === "-") return { model: options.model, prompt: first };
  if (options.model !== undefined) return { model: options.model, prompt: first };
  if (options.hasPrompt || namesModel(first)) return { model: first, prompt: undefined };
  if (/\s/.test(first)) return { model: undefined, prompt: first };
  throw new ForgeError(
    "usage",
    `is ${
      quote(first)
    } a prompt or a model? There is no such file; say -p ${first}, or -m with a ` +
      "model's file, folder or hub name",
  );
}

function twice(what: string, flag: string): ForgeError {
  return new ForgeError("usage", `give the ${what} once: as an argument or with ${flag}`);
}
