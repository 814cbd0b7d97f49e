/** Formats in which models write tool calls. A model's chat template shows its format. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { JsonCalls } from "./json_calls.ts";
import type { CallBody } from "./dialect.ts";
import type { Tool } from "./tools.ts";
import { XmlCall } from "./xml_calls.ts";

/** A format of tool calls. */
export interface CallFormat {
  /** Mark before a call. */
  readonly open: string;
  /** Mark after a call. Without one, the call ends with its JSON. */
  readonly close: string | undefined;
  /** True if an answer that begins with `{` may be a call without the mark. */
  readonly mayBeBare: boolean;
  /** Beginning of an answer that must be a call. */
  readonly start: string;
  /** Key of a call's arguments. */
  readonly argumentsKey: "arguments" | "parameters";
  /** True if calls are in a list. */
  readonly isList: boolean;
  /** Syntax between the marks; only JSON can be enforced. */
  readonly syntax: "json" | "xml";
}

/** `<tool_call>{"name": …, "arguments": …}</tool_call>`, of Hermes, Qwen and others. */
const HERMES: CallFormat = {
  open: "<tool_call>",
  close: "</tool_call>",
  mayBeBare: false,
  start: "<tool_call>\n",
  argumentsKey: "arguments",
  isList: false,
  syntax: "json",
};

/** `<tool_call><function=NAME>…</function></tool_call>`, of Qwen3-Coder and Qwen3.5. */
const QWEN_XML: CallFormat = { ...HERMES, syntax: "xml" };

/** `[TOOL_CALLS][{"name": …, "arguments": …}]`, of Mistral's models. */
const MISTRAL: CallFormat = {
  open: "[TOOL_CALLS]",
  close: undefined,
  mayBeBare: false,
  start: "[TOOL_CALLS]",
  argumentsKey: "arguments",
  isList: true,
  syntax: "json",
};

/** `{"name": …, "parameters": …}`, of Llama 3.1 and later. */
const LLAMA: CallFormat = {
  open: "<|python_tag|>",
  close: undefined,
  mayBeBare: true,
  start: "",
  argumentsKey: "parameters",
  isList: false,
  syntax: "json",
};

/** Marks in templates of unsupported formats. */
const UNSUPPORTED = /<arg_key>|\[ARGS\]|<seed:tool_call>|tool▁call/;

/**
 * Finds the format of a model's calls by its chat template.
 *
 * @returns `undefined` if the template has no calls, or an unsupported format
 */
export function findCallFormat(template: string): CallFormat | undefined {
  if (!/\btools\b/.test(template) || UNSUPPORTED.test(template)) return undefined;
  if (template.includes("<tool_call>")) {
    if (!template.includes("<function=")) return HERMES;
    return template.includes("<parameter=") ? QWEN_XML : undefined;
  }
  if (template.includes("[TOOL_CALLS]")) return MISTRAL;
  if (/"parameters"\s*:/.test(template) && template.includes("<|start_header_id|>")) return LLAMA;
  return undefined;
}

/**
 * Returns a reader for the text after a format's mark.
 *
 * @param mark as written in the answer
 * @param tools schemas of arguments, by the name of the tool
 * @param most limit of calls
 */
export function readBody(
  format: CallFormat,
  mark: string,
  tools: ReadonlyMap<string, JsonObject>,
  most: number,
): CallBody {
  return format.syntax === "xml"
    ? new XmlCall(mark, tools)
    : new JsonCalls(mark, format.isList, (name) => tools.has(name), most);
}

/**
 * Returns the schema of the JSON between the marks: a call of one of the tools, or a list of calls.
 *
 * @param most limit of calls in a list
 */
export function callSchema(
  format: CallFormat,
  tools: readonly Pick<Tool, "name" | "parameters">[],
  most: number,
): JsonObject {
  const place = format.isList ? "#/items" : "#";
  const calls = tools.map(({ name, parameters }, i): JsonObject => ({
    type: "object",
    properties: {
      name: { const: name },
      [format.argumentsKey]: rebased(
        parameters,
        `${place}/anyOf/${i}/properties/${format.argumentsKey}`,
      ),
    },
    required: ["name", format.argumentsKey],
    additionalProperties: false,
  }));
  const call: JsonObject = { anyOf: calls };
  if (!format.isList) return call;
  return {
    type: "array",
    items: call,
    minItems: 1,
    ...(most < Infinity ? { maxItems: most } : {}),
  };
}

/** Keywords whose values are not schemas. */
const VALUES = ["const", "enum", "default", "examples"];

/** Keywords whose values are schemas by name. */
const NAMED = ["properties", "patternProperties", "$defs", "definitions"];

/** Rewrites the local references of a schema that becomes part of another at `place`. */
function rebased(schema: JsonObject, place: string): JsonObject {
  // The key is a keyword; it is empty for items of lists and for schemas by name.
  const walk = (value: JsonValue | undefined, key: string): JsonValue => {
    if (key === "$ref" && typeof value === "string" && value.startsWith("#")) {
      return place + value.slice(1);
    }
    if (VALUES.includes(key)) return value ?? null;
    if (Array.isArray(value)) return value.map((item) => walk(item, ""));
    if (!isJsonObject(value)) return value ?? null;
    const isNamed = NAMED.includes(key);
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => [name, walk(member, isNamed ? "" : name)]),
    );
  };
  return walk(schema, "") as JsonObject;
}
