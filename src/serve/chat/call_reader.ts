import type { JsonObject } from "../../formats/json.ts";
import { type CallFormat, readBody } from "./call_formats.ts";
import { type CallBody, heldLength, type Part, type PartReader } from "./dialect.ts";

/** Reads an answer that is content only. */
export class ContentReader implements PartReader {
  push(text: string): Part[] {
    return text === "" ? [] : [{ kind: "content", text }];
  }

  end(): Part[] {
    return [];
  }
}

/**
 * Finds the calls in an answer. Marked text that is not a call of a known tool becomes content, as
 * it was written.
 */
export class CallReader implements PartReader {
  readonly #format: CallFormat;
  readonly #tools: ReadonlyMap<string, JsonObject>;
  readonly #most: number;
  #held = "";
  /** Reader of the text after the last mark, until it ends. */
  #body: CallBody | undefined;
  /** True after a call, while its closing mark may follow. */
  #isClosing = false;
  #hasContent = false;
  #nCalls = 0;

  /**
   * @param tools schemas of arguments, by the name of the tool
   * @param most limit of calls; text after the last is dropped
   * @param isCall true if the prompt ends with the mark of a call
   */
  constructor(
    format: CallFormat,
    tools: ReadonlyMap<string, JsonObject>,
    most: number,
    isCall: boolean,
  ) {
    this.#format = format;
    this.#tools = tools;
    this.#most = most;
    if (isCall) this.#beginCall("");
  }

  push(text: string): Part[] {
    const parts: Part[] = [];
    this.#held += text;
    while (this.#step(parts));
    return parts;
  }

  end(): Part[] {
    const parts: Part[] = [];
    if (this.#body !== undefined) {
      parts.push(...this.#body.end());
      this.#content(parts, this.#body.unreported);
    } else if (!this.#isClosing && (this.#nCalls === 0 || this.#held.trim() !== "")) {
      // White space after a call is not content.
      this.#content(parts, this.#held);
    }
    this.#held = "";
    return parts;
  }

  /** @returns true if there may be more to read */
  #step(parts: Part[]): boolean {
    if (this.#body !== undefined) return this.#readCall(this.#body, parts);
    if (this.#nCalls >= this.#most) {
      this.#held = "";
      return false;
    }
    return this.#isClosing ? this.#readClose() : this.#readContent(parts);
  }

  #readContent(parts: Part[]): boolean {
    const { open, mayBeBare } = this.#format;
    const start = this.#held.indexOf(open);
    if (mayBeBare && !this.#hasContent && this.#held.trimStart().startsWith("{")) {
      this.#beginCall("");
      return true;
    }
    if (start >= 0) {
      const content = this.#held.slice(0, start).trimEnd();
      this.#content(parts, content);
      this.#beginCall(this.#held.slice(content.length, start + open.length));
      this.#held = this.#held.slice(start + open.length);
      return true;
    }
    const certain = this.#held.slice(0, this.#held.length - heldLength(this.#held, [open]));
    // White space before a call is not content.
    const content = certain.trimEnd();
    this.#held = this.#held.slice(content.length);
    this.#content(parts, content);
    return false;
  }

  #beginCall(mark: string): void {
    this.#body = readBody(this.#format, mark, this.#tools, this.#most - this.#nCalls);
  }

  #readCall(body: CallBody, parts: Part[]): boolean {
    const read = body.push(this.#held);
    this.#held = "";
    parts.push(...read);
    this.#nCalls += read.filter(({ kind }) => kind === "call").length;
    if (body.state === "open") return false;
    this.#isClosing = body.state === "ended" && this.#format.close !== undefined;
    this.#content(parts, body.state === "broken" ? body.unreported : "");
    this.#held = body.rest;
    this.#body = undefined;
    return true;
  }

  /** Skips the closing mark if present. @returns false if that is not known yet */
  #readClose(): boolean {
    const { close = "" } = this.#format;
    const text = this.#held.trimStart();
    if (!text.startsWith(close) && close.startsWith(text)) return false;
    if (text.startsWith(close)) this.#held = text.slice(close.length);
    this.#isClosing = false;
    return true;
  }

  #content(parts: Part[], text: string): void {
    if (text === "") return;
    this.#hasContent = true;
    parts.push({ kind: "content", text });
  }
}
