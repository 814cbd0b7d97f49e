/** Types of options, for the table in `options.ts`. */
import type { TokenBias } from "./logit_bias.ts";

/** Headings of the help, in order. */
export const OPTION_GROUPS = [
  "Prompt",
  "Batch",
  "Server",
  "Model",
  "Quantising",
  "Generation",
  "Embedding",
  "Tests",
  "Sampling, in the order it is applied",
  "Sampling on the processor, which moves the temperature to the end",
  "Constraints, one at most",
  "Input",
  "Output",
  "Other",
] as const;

/** A heading of the help. */
type OptionGroup = (typeof OPTION_GROUPS)[number];

interface OptionBase {
  /** Flags, such as `-n, --max-tokens`, `--raw` or, for what is on by default, `--no-special`. */
  readonly flags: string;
  readonly group: OptionGroup;
  readonly help: string;
  /** Default, for the help only. The library sets the actual default. */
  readonly defaultText?: string;
}

/** An option without a value. */
export interface FlagSpec extends OptionBase {
  readonly kind: "flag";
}

/** An option with any text for a value. */
interface TextSpec extends OptionBase {
  readonly kind: "text";
  readonly metavar: string;
  /** Values for completion; others are valid too. */
  readonly suggestions?: readonly string[];
}

/** A flag that takes a value only after `=`; without one, the value is the empty text. */
interface OptionalSpec extends OptionBase {
  readonly kind: "optional";
  readonly metavar: string;
}

/** A text that may be given more than once. */
export interface ListSpec extends OptionBase {
  readonly kind: "list";
  readonly metavar: string;
  /** Values for completion; others are valid too. */
  readonly suggestions?: readonly string[];
}

/** Logit biases; repetitions accumulate. */
interface BiasesSpec extends OptionBase {
  readonly kind: "biases";
  readonly metavar: string;
}

/** An option with a number from `min` to `max`. */
export interface NumberSpec extends OptionBase {
  readonly kind: "integer" | "number";
  readonly metavar: string;
  readonly min: number;
  readonly max: number;
  /** Distance of neighbouring values, if that of the kind does not say it. */
  readonly step?: number;
}

/** An option with a number of bytes, such as `512M` or `1.5G`. */
interface SizeSpec extends OptionBase {
  readonly kind: "size";
  readonly metavar: string;
}

/** Whole numbers and ranges, such as `128,512` or `1-8*2`; repetitions accumulate. */
export interface CountsSpec extends OptionBase {
  readonly kind: "counts";
  readonly metavar: string;
  readonly min: number;
  readonly max: number;
}

/** An option with one of some names. */
interface ChoiceSpec extends OptionBase {
  readonly kind: "choice";
  readonly metavar: string;
  readonly choices: readonly string[];
}

/** One of some names, or a whole number. */
interface ChoiceOrIntegerSpec extends OptionBase {
  readonly kind: "choice_or_integer";
  readonly metavar: string;
  readonly choices: readonly string[];
  readonly min: number;
  readonly max: number;
}

/** An option of any kind. */
export type OptionSpec =
  | FlagSpec
  | TextSpec
  | OptionalSpec
  | ListSpec
  | BiasesSpec
  | NumberSpec
  | SizeSpec
  | CountsSpec
  | ChoiceSpec
  | ChoiceOrIntegerSpec;

/** Type of an option's value. A flag is always set; other values are `undefined` unless given. */
export type OptionValue<S extends OptionSpec> = S extends FlagSpec ? boolean
  : S extends NumberSpec ? number | undefined
  : S extends SizeSpec ? number | undefined
  : S extends CountsSpec ? readonly number[] | undefined
  : S extends ListSpec ? readonly string[] | undefined
  : S extends BiasesSpec ? readonly TokenBias[] | undefined
  : S extends ChoiceSpec ? S["choices"][number] | undefined
  : S extends ChoiceOrIntegerSpec ? S["choices"][number] | number | undefined
  : string | undefined;

/** Returns the long flag of an option, such as `--max-tokens`. */
export function longFlag(spec: OptionSpec): string {
  return spec.flags.split(", ").at(-1)!;
}
