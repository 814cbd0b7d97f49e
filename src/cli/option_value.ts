import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import type { FlagSpec, ListSpec, NumberSpec, OptionSpec } from "./option_types.ts";
import { longFlag } from "./option_types.ts";

/**
 * The value of an option that takes one.
 *
 * @param previous the value of the same option before, for those that may be repeated
 * @throws {ForgeError} `usage`, naming the option, the value and what is valid.
 */
export function parseOptionValue(
  spec: Exclude<OptionSpec, FlagSpec>,
  text: string,
  previous: unknown,
): unknown {
  switch (spec.kind) {
    case "text":
      return text;
    case "list":
      return appended(spec, text, previous);
    case "choice": {
      const choice = spec.choices.find((name) => name.toLowerCase() === text.toLowerCase());
      if (choice === undefined) throw invalid(spec, text, spec.choices.join(", "));
      return choice;
    }
    case "integer":
    case "number":
      return parseNumber(spec, text);
  }
}

function appended(spec: ListSpec, text: string, previous: unknown): string[] {
  if (text === "") throw invalid(spec, text, "a text of at least one character");
  return [...(Array.isArray(previous) ? previous : []), text];
}

const INTEGER = /^[+-]?\d+$/;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

function parseNumber(spec: NumberSpec, text: string): number {
  const value = (spec.kind === "integer" ? INTEGER : NUMBER).test(text) ? Number(text) : NaN;
  if (value >= spec.min && value <= spec.max) return value;
  const kind = spec.kind === "integer" ? "whole numbers" : "numbers";
  throw invalid(spec, text, `${kind} from ${spec.min} to ${spec.max}`);
}

function invalid(spec: OptionSpec, text: string, valid: string): ForgeError {
  return new ForgeError("usage", `${longFlag(spec)} is ${quote(text)}; valid are ${valid}`);
}
