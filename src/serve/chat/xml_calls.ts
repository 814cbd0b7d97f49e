import { isJsonObject, type JsonObject, type JsonValue } from "../../formats/json.ts";
import { type CallBody, heldLength, type Part } from "./dialect.ts";

const PARAMETER = "<parameter=";
const PARAMETER_END = "</parameter>";
const FUNCTION_END = "</function>";

/**
 * Reads a call of Qwen3-Coder or Qwen3.5, between `<tool_call>` marks:
 *
 *     <function=NAME>
 *     <parameter=KEY>
 *     value
 *     </parameter>
 *     </function>
 *
 * A value whose schema has type string is reported as it is written. Another value is reported when
 * it is complete, because only then its JSON is known.
 */
export class XmlCall implements CallBody {
  state: CallBody["state"] = "open";
  unreported: string;
  readonly #tools: ReadonlyMap<string, JsonObject>;
  #held = "";
  #name: string | undefined;
  #isReported = false;
  /** True inside a value whose schema has type string. */
  #isInText = false;

  /**
   * @param mark text before the body; it is content if no call follows
   * @param tools schemas of arguments, by the name of the tool
   */
  constructor(mark: string, tools: ReadonlyMap<string, JsonObject>) {
    this.unreported = mark;
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
    // The rest of a reported call that was cut off is dropped.
    if (!this.#isReported) this.unreported += this.#held;
    this.#held = "";
    return [];
  }

  /** @returns true if there may be more to read */
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
      this.#report(name, this.#isReported ? "}" : "{}", parts);
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
    const before = `${this.#isReported ? "," : "{"}${JSON.stringify(key)}:`;
    if (isString(propertyOf(this.#tools.get(name)!, key))) {
      // A newline after the mark is not part of the value.
      if (text.length === head.length) return false;
      this.#report(name, `${before}"`, parts);
      this.#isInText = true;
      return this.#goOn(text.slice(head.length).replace(/^\n/, ""));
    }
    const end = text.indexOf(PARAMETER_END);
    if (end < 0) return false;
    const value = readValue(text.slice(head.length, end).replace(/^\n|\n$/g, ""));
    this.#report(name, before + JSON.stringify(value), parts);
    return this.#goOn(text.slice(end + PARAMETER_END.length));
  }

  #readText(name: string, parts: Part[]): boolean {
    const end = this.#held.indexOf(PARAMETER_END);
    if (end >= 0) {
      const last = this.#held.slice(0, end).replace(/\n$/, "");
      this.#report(name, `${escaped(last)}"`, parts);
      this.#isInText = false;
      return this.#goOn(this.#held.slice(end + PARAMETER_END.length));
    }
    const marks = [PARAMETER_END, `\n${PARAMETER_END}`];
    const certain = this.#held.slice(0, this.#held.length - heldLength(this.#held, marks));
    if (certain !== "") this.#report(name, escaped(certain), parts);
    this.#held = this.#held.slice(certain.length);
    return false;
  }

  #goOn(rest: string): true {
    if (!this.#isReported) this.unreported += this.#held.slice(0, this.#held.length - rest.length);
    this.#held = rest;
    return true;
  }

  /** Waits for more text, unless it cannot become a call. */
  #wait(mayBeCall: boolean): false {
    if (!mayBeCall) this.state = "broken";
    return false;
  }

  #report(name: string, text: string, parts: Part[]): void {
    if (!this.#isReported) parts.push({ kind: "call", name });
    parts.push({ kind: "arguments", text });
    this.#isReported = true;
    this.unreported = "";
  }
}

function propertyOf({ properties }: JsonObject, key: string): JsonValue | undefined {
  return isJsonObject(properties) && Object.hasOwn(properties, key) ? properties[key] : undefined;
}

function isString(schema: JsonValue | undefined): boolean {
  return isJsonObject(schema) && schema.type === "string";
}

/** Escapes a text for a JSON string. */
function escaped(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

/** Parses a value as JSON. Text that is not JSON is the value itself. */
function readValue(text: string): JsonValue {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
