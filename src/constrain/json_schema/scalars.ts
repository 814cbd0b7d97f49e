import type { JsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import { ANYTHING, type Automaton, intersect } from "../automata/automaton.ts";
import type { Conjunction } from "./conjunction.ts";
import { type Bound, decimalOf, numbers } from "./number.ts";
import type { SchemaReader } from "./schema.ts";
import { containing, matching, ofLength } from "../automata/regex_automaton.ts";
import { parseRegex } from "../automata/regex.ts";
import { checkLimit, LIMITS } from "../limits.ts";
import { FORMATS } from "./formats.ts";

/** Constraints on a string, all of which apply. */
interface StringRules {
  readonly minLength: number;
  /** `Infinity` for no limit. */
  readonly maxLength: number;
  readonly patterns: readonly { readonly source: string; readonly what: string }[];
  /** Names of {@linkcode FORMATS}. */
  readonly formats: readonly string[];
}

/** Accepts the strings that satisfy all rules. */
function stringTexts(rules: StringRules): Automaton {
  const parts = [
    ...rules.patterns.map(({ source, what }) => patternTexts(source, what)),
    ...rules.formats.map((name) => matching(parseRegex(FORMATS[name]!, `the format ${name}`))),
  ];
  const { minLength, maxLength } = rules;
  checkLimit("minLength", minLength, LIMITS.length);
  if (maxLength < Infinity) checkLimit("maxLength", maxLength, LIMITS.length);
  if (minLength > 0 || maxLength < Infinity) parts.push(ofLength(minLength, maxLength));
  const [first = ANYTHING, ...rest] = parts;
  return intersect(first, ...rest);
}

/** Accepts the texts that contain a match of a pattern. */
export function patternTexts(source: string, what: string): Automaton {
  return containing(parseRegex(source, what));
}

/** Accepts the strings that all schemas allow. */
export function stringRulesTexts(reader: SchemaReader, schemas: Conjunction): Automaton {
  const all = schemas.map((schema) => reader.keywords(schema));
  return stringTexts({
    minLength: Math.max(0, ...numbersOf(all, "minLength")),
    maxLength: Math.min(...numbersOf(all, "maxLength"), Infinity),
    patterns: schemas.flatMap((schema) => {
      const { pattern } = reader.keywords(schema);
      return typeof pattern === "string"
        ? [{ source: pattern, what: `JSON schema: the pattern at ${quote(schema.path)}` }]
        : [];
    }),
    formats: all.flatMap(({ format }) => typeof format === "string" ? [format] : []),
  });
}

/** Accepts the spellings of the numbers that all schemas allow. */
export function numberTexts(
  reader: SchemaReader,
  schemas: Conjunction,
  integer: boolean,
): Automaton {
  const all = schemas.map((schema) => reader.keywords(schema));
  const bounds = (keyword: string, exclusive: string): Bound[] => [
    ...numbersOf(all, keyword).map((value) => ({ at: decimalOf(value), inclusive: true })),
    ...numbersOf(all, exclusive).map((value) => ({ at: decimalOf(value), inclusive: false })),
  ];
  return numbers({
    integer,
    minimums: bounds("minimum", "exclusiveMinimum"),
    maximums: bounds("maximum", "exclusiveMaximum"),
    divisors: numbersOf(all, "multipleOf").map(decimalOf),
  });
}

/** Returns the values of a numeric keyword. */
export function numbersOf(schemas: readonly JsonObject[], keyword: string): number[] {
  return schemas.flatMap((schema) => {
    const value = schema[keyword];
    return typeof value === "number" ? [value] : [];
  });
}
