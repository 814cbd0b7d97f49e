/**
 * How models write tool calls. Which way is a model's own, its chat template tells, which shows the
 * model calls of the past and what a call looks like.
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { JsonCalls } from "./json_calls.ts";
import type { CallBody } from "./part_reader.ts";
import type { Tool } from "./tools.ts";
import { XmlCall } from "./xml_calls.ts";

/** One way to write calls. */
export interface CallFormat {
  /** What calls begin with. */
  readonly open: string;
  /** What one ends with; without it, at the end of the answer. */
  readonly close: string | undefined;
  /** Whether an answer that begins with `{` may be a call without the mark. */
  readonly mayBeBare: boolean;
  /** What an answer that has to be a call begins with. */
  readonly start: string;
  /** The key of a call's arguments. */
  readonly argumentsKey: "arguments" | "parameters";
  /** Whether calls stand in a list. */
  readonly isList: boolean;
  /** How a call is written between the marks; only JSON can be enforced. */
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

/** What a template has where calls are written in ways that are not known here. */
const UNKNOWN_WAYS = /<arg_key>|\[ARGS\]|<seed:tool_call>|tool▁call/;

/**
 * How a model writes calls.
 *
 * @param template of its conversations
 * @returns `undefined` where it writes none, or in a way that is not known here
 */
export function findCallFormat(template: string): CallFormat | undefined {
  if (!/\btools\b/.test(template) || UNKNOWN_WAYS.test(template)) return undefined;
  if (template.includes("<tool_call>")) {
    if (!template.includes("<function=")) return HERMES;
    return template.includes("<parameter=") ? QWEN_XML : undefined;
  }
  if (template.includes("[TOOL_CALLS]")) return MISTRAL;
  if (/"parameters"\s*:/.test(template) && template.includes("<|start_header_id|>")) return LLAMA;
  return undefined;
}

/**
 * Reads what stands behind a format's mark.
 *
 * @param mark as it stood in the answer
 * @param tools by their names, the schemas of their arguments
 * @param most calls that are wanted
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
 * The schema of what stands between the marks of a call: a call of one of some tools, or a list of them.
 *
 * @param most calls in the list
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

/** Keywords whose values are no schemas. */
const VALUES = ["const", "enum", "default", "examples"];

/** A schema whose references into itself hold where it is a part of another. */
function rebased(schema: JsonObject, place: string): JsonObject {
  const walk = (value: JsonValue | undefined, key: string): JsonValue => {
    if (key === "$ref" && typeof value === "string" && value.startsWith("#")) {
      return place + value.slice(1);
    }
    if (Array.isArray(value)) return value.map((item) => walk(item, ""));
    if (!isJsonObject(value) || VALUES.includes(key)) return value ?? null;
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => [name, walk(member, name)]),
    );
  };
  return walk(schema, "") as JsonObject;
}
