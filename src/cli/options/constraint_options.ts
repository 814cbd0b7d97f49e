/** Translation of the constraint flags into options of the library. */
import { ForgeError } from "../../errors.ts";
import { isJsonObject, type JsonValue, kindOf } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import type { ConstraintOptions, JsonSchema } from "../../mod.ts";
import { readTextFile } from "../input/text_source.ts";
import type { ConstraintFlags } from "./flags.ts";

/**
 * Returns the constraint of the flags. Reads files that they name.
 *
 * @throws {ForgeError} `usage` for several constraints or a schema that is not JSON; as
 * `readTextFile`
 */
export async function constraintOptions(
  flags: ConstraintFlags,
  signal?: AbortSignal,
): Promise<ConstraintOptions> {
  const { jsonSchema, jsonObject, regex, grammar } = flags;
  const given = [
    jsonSchema !== undefined && "--json-schema",
    jsonObject && "--json-object",
    regex !== undefined && "--regex",
    grammar !== undefined && "--grammar",
  ].filter((flag) => typeof flag === "string");
  if (given.length > 1) {
    throw new ForgeError("usage", `${given.join(" and ")} exclude each other; give only one`);
  }
  return {
    jsonSchema: jsonSchema === undefined ? undefined : await readSchema(jsonSchema, signal),
    jsonObject,
    regex,
    grammar: grammar === undefined ? undefined : await readGrammar(grammar, signal),
  };
}

/** Returns a grammar, read from a file unless the source is a grammar itself. */
async function readGrammar(source: string, signal: AbortSignal | undefined): Promise<string> {
  return source.includes("::=") ? source : await readTextFile(source, signal);
}

/** Returns a schema, read from a file unless the source is JSON itself. */
async function readSchema(source: string, signal: AbortSignal | undefined): Promise<JsonSchema> {
  const isJson = /^\s*(?:\{|(?:true|false)\s*$)/.test(source);
  const text = isJson ? source : await readTextFile(source, signal);
  const where = isJson ? "--json-schema" : quote(source);
  let value: JsonValue;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/\p{Cc}+/gu, " ") : String(error);
    throw new ForgeError("usage", `${where} is not valid JSON: ${reason}`);
  }
  if (typeof value === "boolean" || isJsonObject(value)) return value;
  throw new ForgeError(
    "usage",
    `${where} holds ${kindOf(value)}; a schema is an object, true or false`,
  );
}
