import { intersect, isEmpty } from "../automata/automaton.ts";
import { type Conjunction, declaredTypes, expand, isOfType, namedValues } from "./expand.ts";
import { numberTexts, stringRulesTexts } from "./scalars.ts";
import type { Schema, SchemaReader } from "./schema.ts";

/** Whether it can be seen that no value is valid for both. */
export function excludeEachOther(reader: SchemaReader, a: Conjunction, b: Conjunction): boolean {
  const valuesOfA = namedValues(reader, a), valuesOfB = namedValues(reader, b);
  const typesOfA = typesOf(reader, a, valuesOfA), typesOfB = typesOf(reader, b, valuesOfB);
  const shared = typesOfA.flatMap((type) =>
    typesOfB.flatMap((other) => commonType(type, other) ?? [])
  );
  if (shared.length === 0) return true;
  if (valuesOfA !== undefined && valuesOfB !== undefined) {
    return namedValues(reader, [...a, ...b])?.length === 0;
  }
  if (valuesOfA !== undefined || valuesOfB !== undefined) return false;
  return shared.every((type) => {
    if (type === "string") {
      return isEmpty(intersect(stringRulesTexts(reader, a), stringRulesTexts(reader, b)));
    }
    if (type === "number" || type === "integer") {
      return isEmpty(intersect(numberTexts(reader, a, false), numberTexts(reader, b, false)));
    }
    if (type !== "object") return false;
    return excludedByKey(reader, a, b) || excludedByKey(reader, b, a);
  });
}

function typesOf(
  reader: SchemaReader,
  schemas: Conjunction,
  values: ReturnType<typeof namedValues>,
) {
  const types = declaredTypes(reader, schemas);
  return values === undefined
    ? types
    : types.filter((type) => values.some((value) => isOfType(value, type)));
}

function commonType<T extends string>(a: T, b: T): T | undefined {
  if (a === b) return a;
  if (a === "integer" && b === "number") return a;
  return a === "number" && b === "integer" ? b : undefined;
}

/** Whether `a` requires a key that `b` forbids, or whose values exclude each other. */
function excludedByKey(reader: SchemaReader, a: Conjunction, b: Conjunction): boolean {
  const required = a.flatMap((schema) => {
    const names = reader.keywords(schema)["required"];
    return Array.isArray(names) ? names.map(String) : [];
  });
  return required.some((key) => {
    if (b.some((schema) => forbids(reader, schema, key))) return true;
    const mine = propertySchemas(reader, a, key), other = propertySchemas(reader, b, key);
    if (mine.length === 0 || other.length === 0) return false;
    return expand(reader, mine).every((x) => {
      const values = namedValues(reader, x);
      return values !== undefined &&
        expand(reader, other).every((y) =>
          namedValues(reader, y) !== undefined && excludeEachOther(reader, x, y)
        );
    });
  });
}

function propertySchemas(reader: SchemaReader, schemas: Conjunction, key: string): Schema[] {
  return schemas.flatMap((schema) => reader.child(schema, "properties", key) ?? []);
}

function forbids(reader: SchemaReader, schema: Schema, key: string): boolean {
  const { additionalProperties, patternProperties } = reader.keywords(schema);
  return additionalProperties === false && patternProperties === undefined &&
    reader.child(schema, "properties", key) === undefined;
}
