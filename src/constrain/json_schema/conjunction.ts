/** Queries over schemas that apply together. */
import type { JsonValue } from "../../formats/json.ts";
import { TYPE_OF_KEYWORD, type TypeName, TYPES } from "./keywords.ts";
import type { Schema, SchemaReader } from "./schema.ts";

/**
 * Schemas that apply together, each by its own keywords only: the targets of `$ref`, `allOf`,
 * `anyOf` and `oneOf` are already expanded into the list.
 */
export type Conjunction = readonly Schema[];

/** Returns the strings that a keyword lists. */
export function namesUnder(reader: SchemaReader, schemas: Conjunction, keyword: string): string[] {
  return schemas.flatMap((schema) => {
    const names = reader.keywords(schema)[keyword];
    return Array.isArray(names) ? names.map(String) : [];
  });
}

/** Returns the values that `enum` and `const` allow, or `undefined` without these keywords. */
export function namedValues(reader: SchemaReader, schemas: Conjunction): JsonValue[] | undefined {
  const lists = schemas.flatMap((schema) => {
    const { enum: values, const: value } = reader.keywords(schema);
    return [
      ...(Array.isArray(values) ? [values] : []),
      ...(value === undefined ? [] : [[value]]),
    ];
  });
  const [first, ...rest] = lists;
  if (first === undefined) return undefined;
  const others = rest.map((list) => new Set(list.map(canonicalText)));
  const types = declaredTypes(reader, schemas);
  return first.filter((value) =>
    types.some((type) => isOfType(value, type)) &&
    others.every((texts) => texts.has(canonicalText(value)))
  );
}

/** Returns the same text for equal values, whatever the order of their keys. */
export function canonicalText(value: JsonValue): string {
  return JSON.stringify(sorted(value));
}

/** Sorts the keys of all objects in a value. */
function sorted(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const keys = Object.keys(value).toSorted();
  return Object.fromEntries(keys.map((key) => [key, sorted(value[key]!)]));
}

/** True if a value is of a type. A whole number is both an integer and a number. */
export function isOfType(value: JsonValue, type: TypeName): boolean {
  if (type === "integer") return Number.isInteger(value);
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  return typeof value === type && value !== null && !Array.isArray(value);
}

/** Returns the types that every `type` keyword allows. "number" includes "integer". */
export function declaredTypes(reader: SchemaReader, schemas: Conjunction): TypeName[] {
  let types: readonly TypeName[] = TYPES.filter((type) => type !== "integer");
  for (const schema of schemas) {
    const { type } = reader.keywords(schema);
    if (type === undefined) continue;
    const names: readonly (JsonValue | undefined)[] = Array.isArray(type) ? type : [type];
    const allows = (name: TypeName) =>
      names.includes(name) || (name === "integer" && names.includes("number"));
    types = types.flatMap((name): readonly TypeName[] =>
      allows(name) ? [name] : name === "number" && allows("integer") ? ["integer"] : []
    );
  }
  return [...types];
}

/**
 * Returns the types to generate: those of `type`, otherwise the types that the other keywords apply
 * to, or all types without such keywords.
 */
export function generatedTypes(reader: SchemaReader, schemas: Conjunction): TypeName[] {
  const types = declaredTypes(reader, schemas);
  if (schemas.some((schema) => reader.keywords(schema)["type"] !== undefined)) return types;
  const implied = new Set(
    schemas.flatMap((schema) =>
      Object.keys(reader.keywords(schema)).flatMap((keyword) => TYPE_OF_KEYWORD[keyword] ?? [])
    ),
  );
  return implied.size === 0 ? types : types.filter((type) => implied.has(type));
}
