/** What schemas that hold together say, taken as one. */
import type { JsonValue } from "../../formats/json.ts";
import { TYPE_OF_KEYWORD, type TypeName, TYPES } from "./keywords.ts";
import type { Schema, SchemaReader } from "./schema.ts";

/**
 * Schemas that hold together, each by its own keywords alone: what `$ref`, `allOf`, `anyOf` and `oneOf`
 * point at is among them already.
 */
export type Conjunction = readonly Schema[];

/** The names under a keyword that lists strings. */
export function namesUnder(reader: SchemaReader, schemas: Conjunction, keyword: string): string[] {
  return schemas.flatMap((schema) => {
    const names = reader.keywords(schema)[keyword];
    return Array.isArray(names) ? names.map(String) : [];
  });
}

/** What values a conjunction names one by one, or `undefined` if it does not. */
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

/** A text that is the same for equal values, whatever the order of their keys. */
export function canonicalText(value: JsonValue): string {
  return JSON.stringify(sorted(value));
}

/** A value with the keys of its objects in order. */
function sorted(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const keys = Object.keys(value).toSorted();
  return Object.fromEntries(keys.map((key) => [key, sorted(value[key] ?? null)]));
}

/** Whether a value is of a type; a whole number is both an integer and a number. */
export function isOfType(value: JsonValue, type: TypeName): boolean {
  if (type === "integer") return Number.isInteger(value);
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  return typeof value === type && value !== null && !Array.isArray(value);
}

/** The types that every `type` keyword allows; "number" is without "integer" only beside it. */
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
 * The types that are generated: where no schema says `type`, those that its keywords speak of, if they
 * speak of any.
 */
export function generatedTypes(reader: SchemaReader, schemas: Conjunction): TypeName[] {
  const types = declaredTypes(reader, schemas);
  if (schemas.some((schema) => reader.keywords(schema)["type"] !== undefined)) return types;
  const spoken = new Set(
    schemas.flatMap((schema) =>
      Object.keys(reader.keywords(schema)).flatMap((keyword) => TYPE_OF_KEYWORD[keyword] ?? [])
    ),
  );
  return spoken.size === 0 ? types : types.filter((type) => spoken.has(type));
}
