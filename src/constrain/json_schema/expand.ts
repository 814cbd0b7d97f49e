import { type Automaton, intersect, isEmpty } from "../automata/automaton.ts";
import { checkLimit, countSteps, LIMITS } from "../limits.ts";
import {
  canonicalText,
  type Conjunction,
  declaredTypes,
  isOfType,
  namedValues,
  namesUnder,
} from "./conjunction.ts";
import { refused, wrong } from "./keywords.ts";
import { numberTexts, stringRulesTexts } from "./scalars.ts";
import type { TypeName } from "./keywords.ts";
import type { Schema, SchemaReader } from "./schema.ts";

/** Steps counted for comparing two alternatives, in addition to those of automata and values. */
const COMPARISON_STEPS = 50;

/** Expands schemas that apply together: a value is valid if one of the alternatives allows it. */
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
      "one that does not refer to itself",
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
    const alternatives = options.flat();
    const crossed = cross(result, alternatives);
    // Alternatives are compared pairwise, so `cross` checks their number first.
    if (keyword === "oneOf") rejectOverlaps(reader, schema, options);
    result = crossed;
  }
  return result;
}

/** Combines each alternative on the left with each on the right. */
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

/** Rejects `oneOf` unless its alternatives exclude each other, because their union is generated. */
function rejectOverlaps(
  reader: SchemaReader,
  schema: Schema,
  options: readonly (readonly Conjunction[])[],
): void {
  const described = options.map((option) => option.map((part) => new Alternative(reader, part)));
  described.forEach((option, i) =>
    described.slice(0, i).forEach((other, j) => {
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

/** An alternative with its properties, each computed once for all comparisons. */
class Alternative {
  readonly schemas: Conjunction;
  /** Canonical texts of the values of `enum` and `const`. */
  readonly values: ReadonlySet<string> | undefined;
  readonly types: readonly TypeName[];
  readonly #reader: SchemaReader;
  #strings: Automaton | undefined;
  #numbers: Automaton | undefined;

  constructor(reader: SchemaReader, schemas: Conjunction) {
    this.#reader = reader;
    this.schemas = schemas;
    const values = namedValues(reader, schemas);
    countSteps(values?.length ?? 1);
    this.values = values && new Set(values.map(canonicalText));
    const types = declaredTypes(reader, schemas);
    this.types = values === undefined
      ? types
      : types.filter((type) => values.some((value) => isOfType(value, type)));
  }

  get strings(): Automaton {
    return this.#strings ??= stringRulesTexts(this.#reader, this.schemas);
  }

  get numbers(): Automaton {
    return this.#numbers ??= numberTexts(this.#reader, this.schemas, false);
  }
}

/** True if provably no value is valid for both. */
function excludeEachOther(reader: SchemaReader, a: Alternative, b: Alternative): boolean {
  countSteps(COMPARISON_STEPS);
  const shared = a.types.flatMap((type) =>
    b.types.flatMap((other) => commonType(type, other) ?? [])
  );
  if (shared.length === 0) return true;
  if (a.values !== undefined && b.values !== undefined) {
    const { values } = b;
    countSteps(a.values.size);
    return a.values.values().every((value) => !values.has(value));
  }
  if (a.values !== undefined || b.values !== undefined) return false;
  return shared.every((type) => {
    if (type === "string") return isEmpty(intersect(a.strings, b.strings));
    if (type === "number" || type === "integer") return isEmpty(intersect(a.numbers, b.numbers));
    if (type !== "object") return false;
    return excludedByKey(reader, a.schemas, b.schemas) ||
      excludedByKey(reader, b.schemas, a.schemas);
  });
}

function commonType<T extends string>(a: T, b: T): T | undefined {
  if (a === b) return a;
  if (a === "integer" && b === "number") return a;
  return a === "number" && b === "integer" ? b : undefined;
}

/** True if `a` requires a key that `b` forbids, or whose values exclude each other. */
function excludedByKey(reader: SchemaReader, a: Conjunction, b: Conjunction): boolean {
  return namesUnder(reader, a, "required").some((key) => {
    countSteps(COMPARISON_STEPS);
    if (b.some((schema) => forbids(reader, schema, key))) return true;
    const mine = propertySchemas(reader, a, key), other = propertySchemas(reader, b, key);
    if (mine.length === 0 || other.length === 0) return false;
    const others = expand(reader, other).map((schemas) => new Alternative(reader, schemas));
    return expand(reader, mine).every((schemas) => {
      const x = new Alternative(reader, schemas);
      return x.values !== undefined &&
        others.every((y) => y.values !== undefined && excludeEachOther(reader, x, y));
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
