import { expandNumbers } from "../../bench/workload.ts";
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { parseTokenBias, VALID_BIASES } from "./logit_bias.ts";
import type { CountsSpec, FlagSpec, ListSpec, NumberSpec, OptionSpec } from "./types.ts";
import { longFlag } from "./types.ts";

/** Kinds of options that may be repeated. */
const REPEATABLE: ReadonlySet<OptionSpec["kind"]> = new Set(["list", "biases", "counts"]);

/**
 * Parses the value of an option.
 *
 * @param previous earlier value of the same option, if it was given before
 * @throws {ForgeError} `usage` for an invalid value, naming the option and the valid values, and
 * for a repeated option that takes one value
 */
export function parseOptionValue(
  spec: Exclude<OptionSpec, FlagSpec>,
  text: string,
  previous: unknown,
): unknown {
  if (previous !== undefined && !REPEATABLE.has(spec.kind)) {
    throw new ForgeError(
      "usage",
      `${longFlag(spec)} is given twice, the second time as ${quote(text)}; give it once`,
    );
  }
  switch (spec.kind) {
    case "text":
    case "optional":
      return text;
    case "list":
      return appended(spec, text, previous);
    case "biases": {
      const bias = parseTokenBias(text);
      if (bias === undefined) throw invalid(spec, text, VALID_BIASES);
      return [...(Array.isArray(previous) ? previous : []), bias];
    }
    case "counts":
      return [...(Array.isArray(previous) ? previous : []), ...parseCounts(spec, text)];
    case "choice": {
      const choice = spec.choices.find((name) => name.toLowerCase() === text.toLowerCase());
      if (choice === undefined) throw invalid(spec, text, spec.choices.join(", "));
      return choice;
    }
    case "choice_or_integer": {
      const { choices, min, max } = spec;
      if (choices.includes(text.toLowerCase())) return text.toLowerCase();
      const value = INTEGER.test(text) ? Number(text) : NaN;
      if (value >= min && value <= max) return value;
      throw invalid(spec, text, `${choices.join(", ")} and whole numbers from ${min} to ${max}`);
    }
    case "size": {
      const bytes = parseSize(text);
      if (bytes === undefined) throw invalid(spec, text, "sizes such as 512M, 1.5G or 8GiB");
      return bytes;
    }
    case "integer":
    case "number":
      return parseNumber(spec, text);
  }
}

function appended(spec: ListSpec, text: string, previous: unknown): string[] {
  if (text === "") throw invalid(spec, text, "texts of at least one character");
  return [...(Array.isArray(previous) ? previous : []), text];
}

const INTEGER = /^[+-]?\d+$/;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

function parseNumber(spec: NumberSpec, text: string): number {
  const value = (spec.kind === "integer" ? INTEGER : NUMBER).test(text) ? Number(text) : NaN;
  const { kind, min, max, step } = spec;
  if (value >= min && value <= max && (step !== 2 || value % step === 0)) return value;
  const kinds = kind === "integer" ? "whole numbers" : "numbers";
  throw invalid(spec, text, step === 2 ? `${min} and ${max}` : `${kinds} from ${min} to ${max}`);
}

/** Parses a number of bytes with an optional binary unit: K, M, G or T, also as MB or MiB. */
function parseSize(text: string): number | undefined {
  const [, digits, unit = ""] = /^(\d+\.?\d*|\.\d+) ?([kmgt]?)(?:i?b)?$/i.exec(text) ?? [];
  if (digits === undefined) return undefined;
  const exponent = unit === "" ? 0 : 1 + "kmgt".indexOf(unit.toLowerCase());
  const bytes = Math.floor(Number(digits) * 1024 ** exponent);
  return bytes >= 1 && bytes <= Number.MAX_SAFE_INTEGER ? bytes : undefined;
}

function parseCounts(spec: CountsSpec, text: string): number[] {
  const numbers = expandNumbers(text);
  if (numbers?.every((value) => value >= spec.min && value <= spec.max)) return numbers;
  const valid = `whole numbers from ${spec.min} to ${spec.max} and ranges of them, such as`;
  throw invalid(spec, text, `${valid} 4,8 or 1-4 or 0-1024+256 or 1-16*2`);
}

function invalid(spec: OptionSpec, text: string, valid: string): ForgeError {
  return new ForgeError("usage", `${longFlag(spec)} is ${quote(text)}; valid are ${valid}`);
}
