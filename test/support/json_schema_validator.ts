/**
 * An independent validator of JSON schemas: ajv, for draft 2020-12, with formats. It is a
 * dependency of tests alone, so deno.json names it for this folder only.
 */
import ajv from "ajv";
import ajvFormats from "ajv-formats";

/** Returns the error of a value, or `undefined` if it is valid. */
export type Validator = (value: unknown) => string | undefined;

/** @throws if ajv finds the schema itself invalid */
export function validator(schema: unknown): Validator {
  if (typeof schema !== "boolean" && (typeof schema !== "object" || schema === null)) {
    throw new TypeError("a schema is an object, true or false");
  }
  // Multiples of decimals are compared with a tolerance: 0.07 / 0.01 is not a whole number in
  // doubles.
  const judge = new ajv.default({ strict: false, allErrors: true, multipleOfPrecision: 6 });
  ajvFormats.default(judge);
  const validate = judge.compile(schema);
  return (value) => validate(value) ? undefined : judge.errorsText(validate.errors);
}
