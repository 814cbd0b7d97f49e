import type { JsonObject, JsonValue } from "../../formats/json.ts";
import { FORMATS } from "./formats.ts";
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";

/** Returns an error for an invalid value of a keyword. */
export function wrong(
  path: string,
  keyword: string,
  value: JsonValue | undefined,
  valid: string,
): ForgeError {
  const shown = quote(typeof value === "string" ? value : JSON.stringify(value) ?? "undefined");
  return new ForgeError(
    "usage",
    `JSON schema: ${keyword} at ${quote(path)} is ${shown}; valid is ${valid}`,
  );
}

/** Returns an error for a keyword that cannot be enforced. */
export function refused(path: string, keyword: string, reason: string): ForgeError {
  return new ForgeError(
    "unsupported",
    `JSON schema: the keyword ${quote(keyword)} at ${quote(path)} ${reason}`,
  );
}

/** The types of JSON Schema. An integer is a number as well. */
export const TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"] as const;
export type TypeName = typeof TYPES[number];

/** The type a keyword applies to. Values of other types pass. */
export const TYPE_OF_KEYWORD: Readonly<Record<string, TypeName>> = {
  minLength: "string",
  maxLength: "string",
  pattern: "string",
  format: "string",
  minimum: "number",
  maximum: "number",
  exclusiveMinimum: "number",
  exclusiveMaximum: "number",
  multipleOf: "number",
  items: "array",
  prefixItems: "array",
  minItems: "array",
  maxItems: "array",
  uniqueItems: "array",
  properties: "object",
  required: "object",
  additionalProperties: "object",
  patternProperties: "object",
  propertyNames: "object",
  minProperties: "object",
  maxProperties: "object",
};

type Check = (value: JsonValue) => boolean;

const isCount: Check = (value) =>
  typeof value === "number" && Number.isInteger(value) && value >= 0;
const isFinite: Check = (value) => typeof value === "number" && Number.isFinite(value);
const isString: Check = (value) => typeof value === "string";
const isStrings: Check = (value) => Array.isArray(value) && value.every(isString);
const isType: Check = (value) => TYPES.some((type) => type === value);
const isSome: Check = (value) => Array.isArray(value) && value.length > 0;
/** Subschemas are checked when they are read. */
const isAnything: Check = () => true;

/** Enforced keywords: a check of the keyword's value, and the description of valid values. */
const ENFORCED: Readonly<Record<string, readonly [Check, string]>> = {
  type: [
    (value) => isType(value) || (Array.isArray(value) && value.length > 0 && value.every(isType)),
    `one or some of ${TYPES.join(", ")}`,
  ],
  enum: [isSome, "an array of values"],
  const: [isAnything, ""],
  $ref: [isString, "a string"],
  $defs: [isAnything, ""],
  definitions: [isAnything, ""],
  allOf: [isSome, "an array of schemas"],
  anyOf: [isSome, "an array of schemas"],
  oneOf: [isSome, "an array of schemas"],
  minLength: [isCount, "a whole number from 0"],
  maxLength: [isCount, "a whole number from 0"],
  pattern: [isString, "a string"],
  format: [isString, "a string"],
  minimum: [isFinite, "a number"],
  maximum: [isFinite, "a number"],
  exclusiveMinimum: [isFinite, "a number"],
  exclusiveMaximum: [isFinite, "a number"],
  multipleOf: [(value) => isFinite(value) && Number(value) > 0, "a number above 0"],
  items: [(value) => !Array.isArray(value), "a schema; for a tuple, write prefixItems"],
  prefixItems: [isSome, "an array of schemas"],
  minItems: [isCount, "a whole number from 0"],
  maxItems: [isCount, "a whole number from 0"],
  uniqueItems: [(value) => typeof value === "boolean", "true or false"],
  properties: [isAnything, ""],
  required: [isStrings, "an array of strings"],
  additionalProperties: [isAnything, ""],
  patternProperties: [isAnything, ""],
  propertyNames: [isAnything, ""],
  minProperties: [isCount, "a whole number from 0"],
  maxProperties: [isCount, "a whole number from 0"],
};

/** Keywords without effect on validity. */
const ANNOTATIONS: ReadonlySet<string> = new Set([
  "$schema",
  "$comment",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly",
]);

/** Reasons for rejecting keywords, where there is more to say. */
const REASONS: Readonly<Record<string, string>> = {
  nullable: `is OpenAPI's; write "type": [..., "null"]`,
  additionalItems: "is of an old draft; write prefixItems and items",
  dependencies: "is of an old draft, and cannot be enforced",
  $id: "is only supported at the root",
  unevaluatedProperties: "cannot be enforced; additionalProperties can",
  unevaluatedItems: "cannot be enforced; items can",
};

/** Keywords of the standard, and of its older drafts, that forge does not enforce. */
const REFUSED: ReadonlySet<string> = new Set([
  "not",
  "if",
  "then",
  "else",
  "contains",
  "minContains",
  "maxContains",
  "dependentRequired",
  "dependentSchemas",
  "contentEncoding",
  "contentMediaType",
  "contentSchema",
  "$anchor",
  "$dynamicRef",
  "$dynamicAnchor",
  "$recursiveRef",
  "$recursiveAnchor",
  "$vocabulary",
  "id",
  ...Object.keys(REASONS),
]);

/**
 * Rejects keywords that forge does not enforce, by name, and invalid values of keywords. Names that
 * begin with "x-" are annotations.
 */
export function checkKeywords(schema: JsonObject, path: string): void {
  for (const [keyword, value] of Object.entries(schema)) {
    if (value === undefined || ANNOTATIONS.has(keyword) || keyword.startsWith("x-")) continue;
    if (keyword === "$id" && path === "#") continue;
    if (keyword === "nullable" && value === false) continue;
    const rule = Object.hasOwn(ENFORCED, keyword) ? ENFORCED[keyword] : undefined;
    if (rule === undefined) {
      const reason = REFUSED.has(keyword)
        ? REASONS[keyword] ?? "cannot be enforced"
        : "is not known";
      throw refused(path, keyword, reason);
    }
    const [check, valid] = rule;
    if (!check(value)) throw wrong(path, keyword, value, valid);
    if (keyword === "format" && !Object.hasOwn(FORMATS, String(value))) {
      const known = Object.keys(FORMATS).join(", ");
      throw wrong(path, keyword, value, `${known}: no other is enforced`);
    }
  }
}
