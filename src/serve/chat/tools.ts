/** The tools of a request, and whether the answer has to call one. */
import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { quote, quoteList } from "../../formats/quote.ts";
import {
  checkKeys,
  invalid,
  isGiven,
  readBoolean,
  readObject,
  readString,
  RequestError,
} from "../../requests/values.ts";

/** A function that the model may call. */
export interface Tool {
  readonly name: string;
  /** The JSON schema of its arguments. */
  readonly parameters: JsonObject;
  /** Whether arguments that do not conform are not to be had. */
  readonly isStrict: boolean;
}

/** What a request says about tools. */
export interface ToolUse {
  readonly tools: readonly Tool[];
  /** As the chat template gets them. */
  readonly definitions: readonly JsonObject[];
  /** Tools of which the answer has to call one. */
  readonly demanded: readonly Tool[] | undefined;
  /** Whether the answer may have several calls. */
  readonly isParallel: boolean;
}

const MAX_TOOLS = 128;

/** A function without parameters takes no arguments. */
const NO_ARGUMENTS: JsonObject = { type: "object", properties: {}, additionalProperties: false };

/**
 * Reads `tools`, `tool_choice` and `parallel_tool_calls`.
 *
 * @returns `undefined` where no tool may be called
 * @throws {RequestError}
 */
export function readTools(body: JsonObject): ToolUse | undefined {
  const { tools, tool_choice, parallel_tool_calls } = body;
  const isParallel = !isGiven(parallel_tool_calls) ||
    readBoolean(parallel_tool_calls, "parallel_tool_calls");
  const list = isGiven(tools) ? readList(tools) : [];
  if (list.length === 0) {
    if (!isGiven(tool_choice) || tool_choice === "none" || tool_choice === "auto") return undefined;
    throw new RequestError("tool_choice needs tools", "tool_choice");
  }
  const read = list.map((tool, i) => readTool(tool, `tools[${i}]`));
  const names = read.map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) {
    throw new RequestError(`tools has two functions named ${quote(twice)}`, "tools");
  }
  if (tool_choice === "none") return undefined;
  return {
    tools: read,
    definitions: list.filter((tool) => isJsonObject(tool)),
    demanded: readChoice(tool_choice, read),
    isParallel,
  };
}

function readList(tools: JsonValue): JsonValue[] {
  if (!Array.isArray(tools)) throw invalid("tools", tools, "a list of tools");
  if (tools.length <= MAX_TOOLS) return tools;
  throw new RequestError(`tools has ${tools.length}; at most ${MAX_TOOLS} are valid`, "tools");
}

function readTool(tool: JsonValue, place: string): Tool {
  const { type, function: described, ...others } = readObject(tool, place);
  checkKeys(others, []);
  if (type !== "function") throw invalid(`${place}.type`, type, '"function"');
  const name = `${place}.function`;
  const definition = readObject(described, name);
  checkKeys(definition, ["name", "description", "parameters", "strict"]);
  const { parameters, strict } = definition;
  return {
    name: readName(definition.name, `${name}.name`),
    isStrict: isGiven(strict) && readBoolean(strict, `${name}.strict`),
    parameters: isGiven(parameters) ? readObject(parameters, `${name}.parameters`) : NO_ARGUMENTS,
  };
}

function readName(value: JsonValue | undefined, place: string): string {
  const name = readString(value, place);
  if (/^[\w.-]{1,64}$/.test(name)) return name;
  throw invalid(place, value, "1 to 64 letters, digits, dots, dashes and underscores");
}

function readChoice(
  choice: JsonValue | undefined,
  tools: readonly Tool[],
): readonly Tool[] | undefined {
  if (!isGiven(choice) || choice === "auto") return undefined;
  if (choice === "required") return tools;
  if (!isJsonObject(choice) || choice.type !== "function" || !isJsonObject(choice.function)) {
    const valid = '"none", "auto", "required" or {"type": "function", "function": {"name": …}}';
    throw invalid("tool_choice", choice, valid);
  }
  const name = readString(choice.function.name, "tool_choice.function.name");
  const tool = tools.find((one) => one.name === name);
  if (tool !== undefined) return [tool];
  const names = quoteList(tools.map((one) => one.name));
  throw invalid("tool_choice.function.name", name, names);
}
