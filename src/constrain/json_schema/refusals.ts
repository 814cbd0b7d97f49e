import { ForgeError } from "../../errors.ts";
import type { JsonValue } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";

/** An error about the value of a keyword. */
export function wrong(
  path: string,
  keyword: string,
  value: JsonValue | undefined,
  valid: string,
): ForgeError {
  const shown = quote(typeof value === "string" ? value : JSON.stringify(value) ?? "undefined");
  return new ForgeError(
    "usage",
    `JSON schema: ${keyword} at ${quote(path)} is ${shown}; valid is ${valid}`,
  );
}

/** An error about a keyword that would not be enforced. */
export function refused(path: string, keyword: string, reason: string): ForgeError {
  return new ForgeError(
    "unsupported",
    `JSON schema: the keyword ${quote(keyword)} at ${quote(path)} ${reason}`,
  );
}
