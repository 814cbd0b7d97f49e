/** Checks of arguments and options at run time, where TypeScript does not check them. */
import { ForgeError } from "../errors.ts";
import { quote, show } from "./quote.ts";
import { nearestName } from "./suggest.ts";

/** Check of an argument or an option's value, with the valid values in words. */
export interface OptionCheck {
  readonly accepts: (value: unknown) => boolean;
  readonly valid: string;
}

/**
 * Checks of all members of an options interface; `undefined` for a member that is checked where it
 * is used.
 */
export type OptionChecks<T> = Readonly<Record<keyof T, OptionCheck | undefined>>;

/** Check of a string. */
export const STRING: OptionCheck = {
  accepts: (value) => typeof value === "string",
  valid: "a string",
};

/** Check of an object that is not an array. */
export const OBJECT: OptionCheck = {
  accepts: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  valid: "an object",
};

/** Check of an array of strings. */
export const STRINGS: OptionCheck = {
  accepts: (value) => Array.isArray(value) && value.every((text) => typeof text === "string"),
  valid: "an array of strings",
};

/** Check of texts that may be encoded. */
export const TEXTS: OptionCheck = {
  accepts: (value) =>
    Array.isArray(value) &&
    value.every((text) => typeof text === "string" || text instanceof Int32Array),
  valid: "an array of strings and of Int32Arrays of token ids",
};

/** Check of token ids. */
export const TOKENS: OptionCheck = {
  accepts: (value) => value instanceof Int32Array,
  valid: "an Int32Array of token ids",
};

/** Check of a boolean. */
export const BOOLEAN: OptionCheck = {
  accepts: (value) => typeof value === "boolean",
  valid: "true or false",
};

/** Check of a number, whose range is checked where it is used. */
export const NUMBER: OptionCheck = {
  accepts: (value) => typeof value === "number",
  valid: "a number",
};

/** Check of a function. */
export const FUNCTION: OptionCheck = {
  accepts: (value) => typeof value === "function",
  valid: "a function",
};

/** Check of an abort signal. */
export const SIGNAL: OptionCheck = {
  accepts: (value) => value instanceof AbortSignal,
  valid: "an AbortSignal",
};

/** Names of options in other libraries and APIs. */
const ALIASES: Readonly<Record<string, string>> = {
  maxNewTokens: "maxTokens",
  maxCompletionTokens: "maxTokens",
  numPredict: "maxTokens",
  temp: "temperature",
  repetitionPenalty: "repeatPenalty",
  typical: "typicalP",
  dynamicTemperature: "dynatempRange",
  drySequenceBreaker: "drySequenceBreakers",
  stopSequences: "stop",
  abortSignal: "signal",
  systemPrompt: "system",
  tools: "templateVariables: { tools }",
  enableThinking: "templateVariables: { enable_thinking }",
};

/**
 * Checks an argument, which TypeScript does not for JavaScript.
 *
 * @throws {ForgeError} `usage` for a value of the wrong type
 */
export function checkArgument(name: string, value: unknown, { accepts, valid }: OptionCheck): void {
  if (!accepts(value)) {
    throw new ForgeError("usage", `${name} is ${show(value)}; valid is ${valid}`);
  }
}

/**
 * Checks the names and types of options. TypeScript does not check options from JavaScript, from
 * JSON, or from a variable with more members.
 *
 * @param name owner of the options in messages
 * @throws {ForgeError} `usage` for an unknown option or a value of the wrong type
 */
export function checkOptions<T extends object>(
  name: string,
  options: T,
  checks: OptionChecks<T>,
): void {
  if (!OBJECT.accepts(options)) {
    throw new ForgeError("usage", `${name} is ${show(options)}; valid is an object of options`);
  }
  for (const [key, value] of Object.entries(options)) {
    if (!Object.hasOwn(checks, key)) throw unknownOption(name, key, Object.keys(checks));
    const check = checks[key as keyof T];
    if (value !== undefined && check !== undefined) checkArgument(key, value, check);
  }
}

function unknownOption(name: string, key: string, known: readonly string[]): ForgeError {
  const aliases = Object.entries(ALIASES)
    .filter(([, meant]) => known.includes(meant.split(":", 1)[0]!));
  const nearest = nearestName(key, known, Object.fromEntries(aliases));
  const hint = nearest === undefined ? `valid are ${known.join(", ")}` : `did you mean ${nearest}?`;
  return new ForgeError("usage", `${name} has no option ${quote(key)}; ${hint}`);
}

/**
 * Checks for a whole number from `min` to `max`, and returns it. @throws {ForgeError} `usage`
 * otherwise
 */
export function checkWholeNumber(name: string, value: number, min: number, max: number): number {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new ForgeError(
      "usage",
      `${name} is ${show(value)}; valid is a whole number from ${min} to ${max}`,
    );
  }
  return value;
}
