import type { JsonValue } from "../../formats/json.ts";
import { checkLimit, LIMITS } from "../limits.ts";
import { excludeEachOther } from "./exclusive.ts";
import { refused, type Schema, type SchemaReader, wrong } from "./schema.ts";
import { TYPE_OF_KEYWORD, type TypeName, TYPES } from "./keywords.ts";

/**
 * Schemas that hold together, each by its own keywords alone: what `$ref`, `allOf`, `anyOf` and `oneOf`
 * point at is among them already.
 */
export type Conjunction = readonly Schema[];

/**
 * The alternatives of schemas that hold together: a value is valid if it is valid for all schemas of
 * one of them.
 */
export function expand(reader: SchemaReader, schemas: Conjunction): Conjunction[] {
  return schemas.reduce<Conjunction[]>(
    (all, schema) => cross(all, expandOne(reader, schema, [])),
    [[]],
  );
}

function expandOne(reader: SchemaReader, schema: Schema, within: readonly string[]): Conjunction[] {
  if (schema.keywords === false) return [];
  if (schema.keywords === true) return [[]];
  if (within.includes(schema.path)) {
    throw wrong(
      schema.path,
      "$ref",
      reader.keywords(schema)["$ref"],
      "one that does not lead back",
    );
  }
  const path = [...within, schema.path];
  checkLimit("the nesting of allOf, anyOf, oneOf and $ref", path.length, LIMITS.depth);
  reader.keywords(schema);
  let result: Conjunction[] = [[schema]];
  const target = reader.resolve(schema);
  if (target !== undefined) result = cross(result, expandOne(reader, target, path));
  for (const part of reader.children(schema, "allOf")) {
    result = cross(result, expandOne(reader, part, path));
  }
  for (const keyword of ["anyOf", "oneOf"] as const) {
    const options = reader.children(schema, keyword).map((part) => expandOne(reader, part, path));
    if (options.length === 0) continue;
    if (keyword === "oneOf") refuseOverlaps(reader, schema, options);
    result = cross(result, options.flat());
  }
  return result;
}

/** All combinations of an alternative of each side. */
function cross(left: readonly Conjunction[], right: readonly Conjunction[]): Conjunction[] {
  checkLimit(
    "the number of combinations of allOf, anyOf and oneOf",
    left.length * right.length,
    LIMITS.alternatives,
  );
  return left.flatMap((a) => right.map((b) => distinct([...a, ...b])));
}

function distinct(schemas: Conjunction): Conjunction {
  const seen = new Map(schemas.map((schema) => [schema.path, schema]));
  return [...seen.values()];
}

/** A value that is valid for two alternatives of `oneOf` would be invalid: there may be none. */
function refuseOverlaps(
  reader: SchemaReader,
  schema: Schema,
  options: readonly (readonly Conjunction[])[],
): void {
  options.forEach((option, i) =>
    options.slice(0, i).forEach((other, j) => {
      if (option.every((a) => other.every((b) => excludeEachOther(reader, a, b)))) return;
      throw refused(
        schema.path,
        "oneOf",
        `cannot be enforced: nothing shows that its alternatives ${j} and ${i} exclude each other; ` +
          "anyOf can",
      );
    })
  );
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
  const [first, ...rest] = lists.map((list) => list.map((value) => JSON.stringify(sorted(value))));
  if (first === undefined) return undefined;
  const kept = first.map((key) => rest.every((list) => list.includes(key)));
  const types = declaredTypes(reader, schemas);
  return lists[0]!.filter((value, i) => kept[i] && types.some((type) => isOfType(value, type)));
}

/** A value with the keys of its objects in order, so that equal values have equal texts. */
function sorted(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const keys = Object.keys(value).toSorted();
  return Object.fromEntries(keys.map((key) => [key, sorted(value[key] ?? null)]));
}

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
