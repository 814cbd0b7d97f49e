import { intersect, isEmpty } from "../automata/automaton.ts";
import { checkLimit, LIMITS } from "../limits.ts";
import {
  type Conjunction,
  declaredTypes,
  isOfType,
  namedValues,
  namesUnder,
} from "./conjunction.ts";
import { refused, wrong } from "./refusals.ts";
import { numberTexts, stringRulesTexts } from "./scalars.ts";
import type { Schema, SchemaReader } from "./schema.ts";

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

/** Whether it can be seen that no value is valid for both. */
function excludeEachOther(reader: SchemaReader, a: Conjunction, b: Conjunction): boolean {
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
  return namesUnder(reader, a, "required").some((key) => {
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
