import type { JsonObject } from "../../formats/json.ts";
import type { Automaton } from "../automata/automaton.ts";
import type { Conjunction } from "./conjunction.ts";
import { type Bound, decimalOf, numbers } from "./number.ts";
import type { SchemaReader } from "./schema.ts";
import { stringTexts } from "./string.ts";

/** The texts that all schemas allow a string to have. */
export function stringRulesTexts(reader: SchemaReader, schemas: Conjunction): Automaton {
  const all = schemas.map((schema) => reader.keywords(schema));
  return stringTexts({
    minLength: Math.max(0, ...numbersOf(all, "minLength")),
    maxLength: Math.min(...numbersOf(all, "maxLength"), Infinity),
    patterns: schemas.flatMap((schema) => {
      const { pattern } = reader.keywords(schema);
      return typeof pattern === "string"
        ? [{ source: pattern, what: `JSON schema: the pattern at ${JSON.stringify(schema.path)}` }]
        : [];
    }),
    formats: all.flatMap(({ format }) => typeof format === "string" ? [format] : []),
  });
}

/** The spellings of the numbers that all schemas allow. */
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

/** The values of a keyword. */
export function numbersOf(schemas: readonly JsonObject[], keyword: string): number[] {
  return schemas.flatMap((schema) => {
    const value = schema[keyword];
    return typeof value === "number" ? [value] : [];
  });
}
