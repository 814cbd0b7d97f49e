import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { type CallBody, heldLength, type Part } from "./part_reader.ts";

const PARAMETER = "<parameter=";
const PARAMETER_END = "</parameter>";
const FUNCTION_END = "</function>";

/**
 * Reads a call in the way of Qwen3-Coder and Qwen3.5, which stands between `<tool_call>` marks, too:
 *
 *     <function=NAME>
 *     <parameter=KEY>
 *     value
 *     </parameter>
 *     </function>
 *
 * A value that is a text by its schema is told as it is written. What JSON any other is depends on all of
 * it, so that it is told when it is complete.
 */
export class XmlCall implements CallBody {
  state: CallBody["state"] = "open";
  unsaid: string;
  readonly #tools: ReadonlyMap<string, JsonObject>;
  #held = "";
  #name: string | undefined;
  #isTold = false;
  /** Whether a value is being read that is a text by its schema. */
  #isInText = false;

  /**
   * @param mark what stood before; it is content where no call follows
   * @param tools by their names, the schemas of their arguments
   */
  constructor(mark: string, tools: ReadonlyMap<string, JsonObject>) {
    this.unsaid = mark;
    this.#tools = tools;
  }

  get rest(): string {
    return this.#held;
  }

  push(text: string): Part[] {
    const parts: Part[] = [];
    this.#held += text;
    while (this.state === "open" && this.#step(parts));
    return parts;
  }

  end(): Part[] {
    // What is cut off says nothing that was not told.
    if (!this.#isTold) this.unsaid += this.#held;
    this.#held = "";
    return [];
  }

  /** @returns whether something was read, so that more may be */
  #step(parts: Part[]): boolean {
    const text = this.#held.trimStart();
    if (this.#name === undefined) return this.#readName(text);
    return this.#isInText
      ? this.#readText(this.#name, parts)
      : this.#readBody(this.#name, text, parts);
  }

  #readName(text: string): boolean {
    const [head, name] = /^<function=([\w.-]+)>/.exec(text) ?? [];
    if (head !== undefined && name !== undefined && this.#tools.has(name)) {
      this.#name = name;
      return this.#goOn(text.slice(head.length));
    }
    return this.#wait(/^<function=[\w.-]{0,64}$/.test(text) || "<function=".startsWith(text));
  }

  #readBody(name: string, text: string, parts: Part[]): boolean {
    if (text.startsWith(FUNCTION_END)) {
      this.#tell(name, this.#isTold ? "}" : "{}", parts);
      parts.push({ kind: "called" });
      this.state = "ended";
      return this.#goOn(text.slice(FUNCTION_END.length));
    }
    const [head, key] = /^<parameter=([^<>\n]+)>/.exec(text) ?? [];
    if (head === undefined || key === undefined) {
      const mayBegin = [PARAMETER, FUNCTION_END].some((mark) => mark.startsWith(text)) ||
        /^<parameter=[^<>\n]*$/.test(text);
      return this.#wait(mayBegin);
    }
    const before = `${this.#isTold ? "," : "{"}${JSON.stringify(key)}:`;
    if (isText(propertyOf(this.#tools.get(name)!, key))) {
      // A newline may be what comes next, and is not part of the value.
      if (text.length === head.length) return false;
      this.#tell(name, `${before}"`, parts);
      this.#isInText = true;
      return this.#goOn(text.slice(head.length).replace(/^\n/, ""));
    }
    const end = text.indexOf(PARAMETER_END);
    if (end < 0) return false;
    const value = readValue(text.slice(head.length, end).replace(/^\n|\n$/g, ""));
    this.#tell(name, before + JSON.stringify(value), parts);
    return this.#goOn(text.slice(end + PARAMETER_END.length));
  }

  #readText(name: string, parts: Part[]): boolean {
    const end = this.#held.indexOf(PARAMETER_END);
    if (end >= 0) {
      const last = this.#held.slice(0, end).replace(/\n$/, "");
      this.#tell(name, `${escaped(last)}"`, parts);
      this.#isInText = false;
      return this.#goOn(this.#held.slice(end + PARAMETER_END.length));
    }
    const marks = [PARAMETER_END, `\n${PARAMETER_END}`];
    const certain = this.#held.slice(0, this.#held.length - heldLength(this.#held, marks));
    if (certain !== "") this.#tell(name, escaped(certain), parts);
    this.#held = this.#held.slice(certain.length);
    return false;
  }

  #goOn(rest: string): true {
    if (!this.#isTold) this.unsaid += this.#held.slice(0, this.#held.length - rest.length);
    this.#held = rest;
    return true;
  }

  /** Waits for more, or finds that it is no call. */
  #wait(mayBeCall: boolean): false {
    if (!mayBeCall) this.state = "broken";
    return false;
  }

  #tell(name: string, text: string, parts: Part[]): void {
    if (!this.#isTold) parts.push({ kind: "call", name });
    parts.push({ kind: "arguments", text });
    this.#isTold = true;
    this.unsaid = "";
  }
}

function propertyOf({ properties }: JsonObject, key: string): JsonValue | undefined {
  return isJsonObject(properties) && Object.hasOwn(properties, key) ? properties[key] : undefined;
}

function isText(schema: JsonValue | undefined): boolean {
  return isJsonObject(schema) && schema.type === "string";
}

/** What a text is inside of JSON's quotes. */
function escaped(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

/** A value is JSON, unless it is none. */
function readValue(text: string): JsonValue {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
