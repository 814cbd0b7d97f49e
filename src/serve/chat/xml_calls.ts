/**
 * Calls in the way of Qwen3-Coder and Qwen3.5, which stand between `<tool_call>` marks, too:
 *
 *     <function=NAME>
 *     <parameter=KEY>
 *     value
 *     </parameter>
 *     </function>
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";

/**
 * The function that a text calls, and its arguments as an object.
 *
 * @param tools by their names, the schemas of their arguments
 * @returns `undefined` where the text is no call of one of them
 */
export function parseXmlCall(
  text: string,
  tools: ReadonlyMap<string, JsonObject>,
): { readonly name: string; readonly arguments: JsonObject } | undefined {
  const [, name = "", body = ""] = /^\s*<function=([\w.-]+)>(.*)<\/function>\s*$/s.exec(text) ?? [];
  const schema = tools.get(name);
  if (schema === undefined) return undefined;
  const values: [string, JsonValue][] = [];
  let rest = body.trimStart();
  while (rest !== "") {
    const [, key] = /^<parameter=([^<>\n]+)>/.exec(rest) ?? [];
    const end = rest.indexOf("</parameter>");
    if (key === undefined || end < 0) return undefined;
    const value = rest.slice(`<parameter=${key}>`.length, end);
    values.push([key, readValue(value.replace(/^\n|\n$/g, ""), propertyOf(schema, key))]);
    rest = rest.slice(end + "</parameter>".length).trimStart();
  }
  return { name, arguments: Object.fromEntries(values) };
}

function propertyOf({ properties }: JsonObject, key: string): JsonValue | undefined {
  return isJsonObject(properties) && Object.hasOwn(properties, key) ? properties[key] : undefined;
}

/** A value is JSON, unless it is a text by its schema or is none. */
function readValue(text: string, schema: JsonValue | undefined): JsonValue {
  if (isJsonObject(schema) && schema.type === "string") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
