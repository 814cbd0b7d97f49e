import { ForgeError } from "../errors.ts";
import type { JsonValue } from "../formats/json.ts";
import { LIMITS, tooLarge } from "./limits.ts";
import type { ConstraintScope } from "./scope.ts";

/** A JSON schema, as parsed JSON. */
export type JsonSchema = boolean | { readonly [keyword: string]: unknown };

/** What an answer must conform to. At most one may be given. */
export interface ConstraintOptions {
  /** The answer is the JSON text of a value that is valid for the schema. */
  readonly jsonSchema?: JsonSchema | undefined;
  /** The answer is the JSON text of an object. @default false */
  readonly jsonObject?: boolean | undefined;
  /** The whole answer matches a regular expression in JavaScript's syntax, with its `u` flag. */
  readonly regex?: string | undefined;
  /** The answer is what the rule `root` of a grammar in EBNF describes. */
  readonly grammar?: string | undefined;
  /** Where in the answer the constraint holds. @default in all of it */
  readonly constraintScope?: ConstraintScope | undefined;
}

/** One constraint. */
export type ConstraintSpec =
  | { readonly kind: "json_schema"; readonly schema: JsonValue }
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "grammar"; readonly source: string }
  /** One of some texts, what conforms to a constraint, and one of other texts. */
  | {
    readonly kind: "framed";
    readonly before: readonly string[];
    readonly inner: ConstraintSpec;
    readonly behind: readonly string[];
  };

/**
 * The constraint that options ask for, if they ask for one.
 *
 * @throws {ForgeError} `usage` when there are several, or a value has the wrong type
 */
export function constraintSpec(options: ConstraintOptions): ConstraintSpec | undefined {
  const { jsonSchema, jsonObject = false, regex, grammar } = options;
  const given = [
    jsonSchema !== undefined && "jsonSchema",
    jsonObject !== false && "jsonObject",
    regex !== undefined && "regex",
    grammar !== undefined && "grammar",
  ].filter((name) => name !== false);
  if (given.length > 1) {
    throw new ForgeError("usage", `${given.join(" and ")} are given; valid is one of them`);
  }
  if (jsonSchema !== undefined) return { kind: "json_schema", schema: jsonValue(jsonSchema) };
  if (jsonObject !== false) {
    if (jsonObject !== true) throw wrongType("jsonObject", jsonObject, "true or false");
    return { kind: "json_schema", schema: { type: "object" } };
  }
  if (regex !== undefined) {
    if (typeof regex !== "string") throw wrongType("regex", regex, "a string");
    return { kind: "regex", pattern: regex };
  }
  if (grammar === undefined) return undefined;
  if (typeof grammar !== "string") throw wrongType("grammar", grammar, "a string");
  return { kind: "grammar", source: grammar };
}

/** The option that names a constraint, if one does. */
export function constraintName(options: ConstraintOptions): string | undefined {
  if (options.jsonSchema !== undefined) return "json_schema";
  if (options.jsonObject) return "json_object";
  if (options.regex !== undefined) return "regex";
  return options.grammar === undefined ? undefined : "grammar";
}

/** The schema as JSON has it: what JSON cannot hold is not taken over silently. */
function jsonValue(schema: unknown): JsonValue {
  checkNesting(schema);
  let text: string | undefined;
  try {
    text = JSON.stringify(schema);
  } catch (error) {
    const reason = error instanceof Error ? error.message.split("\n")[0] : String(error);
    throw new ForgeError("usage", `jsonSchema is not JSON: ${reason}`);
  }
  if (text === undefined) throw wrongType("jsonSchema", schema, "an object, true or false");
  return JSON.parse(text);
}

/** Refuses what nests too deeply to be read by recursion, or holds itself. */
function checkNesting(schema: unknown): void {
  let level: unknown[] = [schema];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > LIMITS.nesting) {
      throw tooLarge(`the schema nests deeper than ${LIMITS.nesting} levels`);
    }
    level = level.flatMap((value) =>
      typeof value === "object" && value !== null
        ? Object.values(value).filter((inner) => typeof inner === "object" && inner !== null)
        : []
    );
  }
}

function wrongType(name: string, value: unknown, valid: string): ForgeError {
  return new ForgeError("usage", `${name} is a ${typeof value}; valid is ${valid}`);
}
