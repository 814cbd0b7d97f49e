import { ForgeError } from "../errors.ts";
import type { JsonValue } from "../formats/json.ts";
import { show } from "../formats/quote.ts";
import { LIMITS, tooLarge } from "./limits.ts";

/**
 * The part of an answer to which a constraint applies: after a token; before it the text is free.
 */
export interface ConstraintScope {
  /** Token after which the constraint applies. */
  readonly after: number;
  /**
   * Token that makes an answer free if it begins with it, such as the one that opens a model's
   * thoughts. Other answers are constrained from their beginning. Without it every answer begins
   * free.
   */
  readonly opener?: number | undefined;
  /** One of these texts stands between the token and the constrained text. @default [""] */
  readonly prefixes?: readonly string[] | undefined;
  /** One of these texts follows the constrained text. @default [""] */
  readonly suffixes?: readonly string[] | undefined;
  /** True if the answer may end without constrained text. @default false */
  readonly isOptional?: boolean | undefined;
  /** True if free text follows the constrained text, which may come again. @default false */
  readonly repeats?: boolean | undefined;
}

/** @throws {ForgeError} `usage` for a token outside of the vocabulary */
export function checkScope({ after, opener = 0 }: ConstraintScope, vocabSize: number): void {
  for (const [name, id] of Object.entries({ after, opener })) {
    if (Number.isInteger(id) && id >= 0 && id < vocabSize) continue;
    throw new ForgeError(
      "usage",
      `constraintScope.${name} is ${id}; valid ids are 0 to ${vocabSize - 1}`,
    );
  }
}

/** A JSON schema, as parsed JSON. */
export type JsonSchema = boolean | { readonly [keyword: string]: unknown };

/** Constraint on an answer. At most one may be given, with an optional scope. */
export interface ConstraintOptions {
  /** The answer is the JSON text of a value that is valid for the schema. */
  readonly jsonSchema?: JsonSchema | undefined;
  /** The answer is the JSON text of an object. @default false */
  readonly jsonObject?: boolean | undefined;
  /** The whole answer matches a regular expression in JavaScript's syntax, with its `u` flag. */
  readonly regex?: string | undefined;
  /** The answer is what the rule `root` of a grammar in EBNF describes. */
  readonly grammar?: string | undefined;
  /** The part of the answer to which the constraint applies. @default all of it */
  readonly constraintScope?: ConstraintScope | undefined;
}

/** One constraint. */
export type ConstraintSpec =
  | { readonly kind: "json_schema"; readonly schema: JsonValue }
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "grammar"; readonly source: string }
  /** A prefix, a text that conforms to `inner`, and a suffix. */
  | {
    readonly kind: "framed";
    readonly prefixes: readonly string[];
    readonly inner: ConstraintSpec;
    readonly suffixes: readonly string[];
  };

/**
 * Returns the constraint that options specify, if any.
 *
 * @throws {ForgeError} `usage` for several constraints, or a value of the wrong type
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

/** Returns the kind of constraint that options specify, if any. */
export function constraintName(options: ConstraintOptions): string | undefined {
  if (options.jsonSchema !== undefined) return "json_schema";
  if (options.jsonObject) return "json_object";
  if (options.regex !== undefined) return "regex";
  return options.grammar === undefined ? undefined : "grammar";
}

/** Converts a schema to plain JSON; rejects values that JSON cannot represent. */
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

/** Rejects nesting that is too deep for recursion, and cycles. */
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
  return new ForgeError("usage", `${name} is ${show(value)}; valid is ${valid}`);
}
