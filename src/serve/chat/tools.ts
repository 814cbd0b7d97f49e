/** Tools of a request: reading them, and finding the schemas that can be enforced. */
import { ForgeError } from "../../errors.ts";
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
import { type CallFormat, callSchema } from "./call_formats.ts";

/** A function that the model may call. */
export interface Tool {
  readonly name: string;
  /** JSON schema of its arguments. */
  readonly parameters: JsonObject;
  /** True if arguments must conform to the schema. */
  readonly isStrict: boolean;
}

/** Tools of a request, and the calls that are allowed. */
export interface ToolUse {
  readonly tools: readonly Tool[];
  /** The tools as the chat template gets them. */
  readonly definitions: readonly JsonObject[];
  /** Tools of which the answer must call one, if it must call any. */
  readonly demanded: readonly Tool[] | undefined;
  /** True if the answer may have several calls. */
  readonly isParallel: boolean;
}

const MAX_TOOLS = 128;

/** Schema of a function without parameters. */
const NO_ARGUMENTS: JsonObject = { type: "object", properties: {}, additionalProperties: false };

/**
 * Reads `tools`, `tool_choice` and `parallel_tool_calls`.
 *
 * @returns `undefined` if no tool may be called
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
  const object = readObject(tool, place);
  if (object.type !== "function") throw invalid(`${place}.type`, object.type, '"function"');
  checkKeys(object, ["type", "function"]);
  const name = `${place}.function`;
  const definition = readObject(object.function, name);
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

/** Number of sets of tools in the cache. */
const CACHE_SIZE = 32;

/** Schema that replaces parameters that cannot be enforced. */
const ANY_ARGUMENTS: JsonObject = { type: "object" };

/**
 * Replaces the parameters of tools that cannot be enforced by any object. Tools often come from
 * programs written without forge, and the model need not call them, so only a strict tool is
 * rejected.
 */
export class EnforceableTools {
  /** Results by format and tools; the least recently used comes first. */
  readonly #known = new Map<string, readonly Tool[]>();

  /**
   * Returns the tools with parameters that can be enforced.
   *
   * @throws {RequestError} for a strict tool that cannot be enforced, with the reason
   */
  async of(format: CallFormat, tools: readonly Tool[]): Promise<readonly Tool[]> {
    const key = JSON.stringify([format.open, tools]);
    const enforceable = this.#known.get(key) ?? await makeEnforceable(format, tools);
    this.#known.delete(key);
    this.#known.set(key, enforceable);
    const [oldest] = this.#known.keys();
    if (this.#known.size > CACHE_SIZE) this.#known.delete(oldest!);
    return enforceable;
  }
}

async function makeEnforceable(
  format: CallFormat,
  tools: readonly Tool[],
): Promise<readonly Tool[]> {
  const { translate } = await import("../../constrain/grammar/translate.ts");
  const refusal = (some: readonly Tool[]): ForgeError | undefined => {
    try {
      translate({ kind: "json_schema", schema: callSchema(format, some, Infinity) }, false);
      return undefined;
    } catch (error) {
      if (error instanceof ForgeError) return error;
      throw error;
    }
  };
  if (refusal(tools) === undefined) return tools;
  const each = tools.map((tool) => {
    const reason = refusal([tool]);
    if (reason === undefined) return tool;
    if (!tool.isStrict) return { ...tool, parameters: ANY_ARGUMENTS };
    throw new RequestError(
      `the strict tool ${tool.name} cannot be enforced: ${reason.message}`,
      "tools",
    );
  });
  const together = refusal(each);
  if (together === undefined) return each;
  if (each.some(({ isStrict }) => isStrict)) {
    throw new RequestError(`the tools cannot be enforced together: ${together.message}`, "tools");
  }
  return each.map((tool) => ({ ...tool, parameters: ANY_ARGUMENTS }));
}
