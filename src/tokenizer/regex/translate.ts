import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { emitPattern, emitSet } from "./emit.ts";
import { parsePattern } from "./parse.ts";
import { rejectExponential } from "./safety.ts";
import { type Node, PatternError } from "./ast.ts";

/** Maximum length of a pattern, far above that of any known one. */
const LONGEST_PATTERN = 20_000;

/**
 * Translates a regular expression of Oniguruma or Rust to an equivalent global one of JavaScript.
 *
 * @param where the file and key of the pattern, for messages
 * @throws ForgeError `bad_model` if the pattern is invalid, `unsupported` if JavaScript cannot
 * express it or it could take exponential time
 */
export function translateRegex(pattern: string, where: string): RegExp {
  if (pattern.length > LONGEST_PATTERN) {
    throw new ForgeError("unsupported", `${where}: a pattern of ${pattern.length} characters`);
  }
  try {
    const node = parsePattern(pattern);
    rejectExponential(node);
    return new RegExp(runStart(node) + emitPattern(node), "gu");
  } catch (error) {
    if (!(error instanceof PatternError || error instanceof SyntaxError)) throw error;
    throw new ForgeError(
      "unsupported",
      `${where}: the regular expression ${quote(pattern)} is not supported: ` +
        error.message.replace(/\p{Cc}/gu, " "),
      { cause: error },
    );
  }
}

/**
 * Returns a look-behind for patterns such as `\s+$`, a run of one class followed by assertions. It
 * avoids retrying the pattern at every character of a run, which takes quadratic time.
 */
function runStart(node: Node): string {
  if (node.kind !== "sequence") return "";
  const [run, ...rest] = node.items;
  if (run?.kind !== "repeat" || run.min !== 1 || run.max !== Infinity || run.lazy) return "";
  if (run.body.kind !== "set" || !rest.every(({ kind }) => kind === "anchor" || kind === "look")) {
    return "";
  }
  return `(?<!${emitSet(run.body.set)})`;
}
