/**
 * Random schemas: rejected, or every allowed text is valid to ajv. Random sources: at most an
 * error.
 */
import { assert, assertEquals } from "@std/assert";
import type { Constraints } from "../../src/constrain/constraints.ts";
import type { ConstraintSpec } from "../../src/constrain/spec.ts";
import type { Constraint } from "../../src/engine/request/constraint.ts";
import { ForgeError } from "../../src/errors.ts";
import { validator } from "../support/json_schema_validator.ts";
import { Random } from "../support/random.ts";
import { randomText, spec, withConstraints } from "../unit/constrain/support.ts";

const SCHEMAS = 120, TEXTS_EACH = 4;

type Schema = boolean | Record<string, unknown>;

/** A schema of random keywords, which may contradict each other or not be enforceable. */
function randomSchema(random: Random, depth: number): Schema {
  if (random.chance(0.05)) return random.chance(0.7);
  const schema: Record<string, unknown> = {};
  const inner = () => randomSchema(random, depth - 1);
  const names = ["a", "b", "ab", 'q"', "é"];
  const some = (probability: number, keyword: string, make: () => unknown) => {
    if (random.chance(probability)) schema[keyword] = make();
  };
  const type = random.pick(["string", "integer", "number", "array", "object", "boolean", "null"]);
  some(0.8, "type", () => random.chance(0.15) ? [...new Set([type, "null"])] : type);
  some(0.06, "enum", () => [1, "a", null, { a: 1 }, [true], -0.5].filter(() => random.chance(0.6)));
  if (Array.isArray(schema["enum"]) && schema["enum"].length === 0) delete schema["enum"];
  some(0.03, "const", () => random.pick<unknown>(["a", 2, { b: [] }]));
  if (type === "string") {
    some(0.3, "minLength", () => random.int(0, 4));
    some(0.4, "maxLength", () => random.int(2, 9));
    some(0.3, "pattern", () => random.pick(["a", "^[a-cé]*$", "\\d+", "^.{2,3}$", '"|\\\\', "^$"]));
    some(0.1, "format", () => random.pick(["date", "uuid", "ipv4", "regex"]));
  } else if (type === "integer" || type === "number") {
    some(0.4, "minimum", () => random.int(-20, 20) / random.pick([1, 4]));
    some(0.4, "maximum", () => random.int(-5, 200) / random.pick([1, 8]));
    some(0.1, "exclusiveMinimum", () => random.int(-9, 9));
    some(0.1, "exclusiveMaximum", () => random.int(-9, 99));
    some(0.2, "multipleOf", () => random.pick([1, 2, 3, 0.5, 7, 0.01]));
  } else if (type === "array" && depth > 0) {
    some(0.6, "items", inner);
    some(0.3, "prefixItems", () => Array.from({ length: random.int(1, 2) }, inner));
    some(0.3, "minItems", () => random.int(0, 2));
    some(0.4, "maxItems", () => random.int(0, 4));
    some(0.1, "uniqueItems", () => random.chance(0.5));
  } else if (type === "object" && depth > 0) {
    const chosen = names.filter(() => random.chance(0.5));
    some(0.8, "properties", () => Object.fromEntries(chosen.map((name) => [name, inner()])));
    some(0.5, "required", () => names.filter(() => random.chance(0.25)));
    some(0.4, "additionalProperties", inner);
    some(0.15, "patternProperties", () => ({ [random.pick(["^a", "b$", "é"])]: inner() }));
    some(0.1, "propertyNames", () => ({ maxLength: random.int(1, 3) }));
    some(0.2, "minProperties", () => random.int(0, 2));
    some(0.2, "maxProperties", () => random.int(0, 4));
  }
  if (depth > 0) {
    some(0.1, "anyOf", () => Array.from({ length: 2 }, inner));
    some(0.06, "oneOf", () => Array.from({ length: 2 }, inner));
    some(0.1, "allOf", () => Array.from({ length: random.int(1, 2) }, inner));
    some(0.05, "$ref", () => "#/$defs/leaf");
    some(0.02, "not", inner);
  }
  return schema;
}

/** Returns the compiled constraint, or `undefined` if it is rejected. */
async function compiled(
  constraints: Constraints,
  source: ConstraintSpec,
): Promise<Constraint | undefined> {
  try {
    return await constraints.compile(source, false);
  } catch (error) {
    assert(error instanceof ForgeError, `${JSON.stringify(source)}: ${error}`);
    assert(error.code === "usage" || error.code === "unsupported", error.message);
    assert(!error.message.includes("\n"), error.message);
    return undefined;
  }
}

Deno.test("fuzz: random schemas are rejected or enforced", async () => {
  const random = new Random("schema fuzz");
  let enforced = 0;
  await withConstraints(async (constraints) => {
    for (let i = 0; i < SCHEMAS; i++) {
      const root = randomSchema(random, 3);
      const schema = typeof root === "boolean"
        ? root
        : { ...root, $defs: { leaf: { type: "integer", minimum: 0, maximum: 99 } } };
      const constraint = await compiled(constraints, spec.schema(schema));
      if (constraint === undefined) continue;
      enforced++;
      const validate = validator(schema);
      for (let j = 0; j < TEXTS_EACH; j++) {
        const text = randomText(constraint, random, 200);
        if (text === undefined) continue;
        const wrong = validate(JSON.parse(text));
        assertEquals(wrong, undefined, `${JSON.stringify(schema)}: ${text}: ${wrong}`);
      }
    }
  });
  assert(enforced > SCHEMAS / 4, `${enforced} of ${SCHEMAS} were enforced`);
});

Deno.test("fuzz: random grammars and patterns compile or are rejected", async () => {
  const random = new Random("grammar fuzz");
  const pieces = [
    ...[
      "root ::= ",
      "a ::= ",
      "\n",
      '"x"',
      "'é'",
      "[a-z]",
      "[^",
      "]",
      "(",
      ")",
      "|",
      "*",
      "+",
      "?",
    ],
    ...["{2}", "{,}", "{1,3}", "a", "root", "#", "\\", "::=", ".", '"', "\\u00", "(?=", "^", "$"],
  ];
  await withConstraints(async (constraints) => {
    for (let i = 0; i < 600; i++) {
      const source = Array.from({ length: random.int(0, 10) }, () => random.pick(pieces)).join(" ");
      const kind = random.chance(0.5) ? spec.regex(source) : spec.grammar(`root ::= ${source}`);
      const constraint = await compiled(constraints, kind);
      if (constraint !== undefined) randomText(constraint, random, 20);
    }
  });
});
