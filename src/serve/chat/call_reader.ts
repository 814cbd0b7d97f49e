import type { JsonObject } from "../../formats/json.ts";
import { type CallFormat, parseCalls } from "./call_formats.ts";
import { heldLength, type Part, type PartReader } from "./text_feed.ts";

/** All of an answer is content. */
export class ContentReader implements PartReader {
  push(text: string): Part[] {
    return text === "" ? [] : [{ kind: "content", text }];
  }

  end(): Part[] {
    return [];
  }
}

/**
 * Finds the calls in an answer. What has their marks but is no call of a known tool is content, as it
 * was written.
 */
export class CallReader implements PartReader {
  readonly #format: CallFormat;
  readonly #tools: ReadonlyMap<string, JsonObject>;
  readonly #most: number;
  #held = "";
  /** The mark that began the call which is being read, and the white space before it. */
  #mark: string | undefined;
  /** How far a call's end was looked for. */
  #searched = 0;
  #hasContent = false;
  #nCalls = 0;

  /**
   * @param tools by their names, the schemas of their arguments
   * @param most calls that are wanted; what follows them is dropped
   * @param isCall whether the answer has to be a call, whose mark is in the prompt
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
    this.#mark = isCall ? "" : undefined;
  }

  push(text: string): Part[] {
    const parts: Part[] = [];
    if (this.#nCalls >= this.#most) return parts;
    this.#held += text;
    while (this.#mark === undefined ? this.#readContent(parts) : this.#readCall(parts));
    return parts;
  }

  end(): Part[] {
    const parts: Part[] = [];
    if (this.#mark === undefined) {
      // What is between calls, or after them, is white space alone.
      if (this.#nCalls === 0 || this.#held.trim() !== "") this.#content(parts, this.#held);
    } else if (!this.#finishCall(parts, this.#held)) {
      this.#content(parts, this.#mark + this.#held);
    }
    this.#held = "";
    return parts;
  }

  /** @returns whether a call begins */
  #readContent(parts: Part[]): boolean {
    const { open, mayBeBare } = this.#format;
    const start = this.#held.indexOf(open);
    if (mayBeBare && !this.#hasContent && this.#held.trimStart().startsWith("{")) {
      this.#mark = "";
      return true;
    }
    if (start >= 0) {
      const content = this.#held.slice(0, start).trimEnd();
      this.#content(parts, content);
      this.#mark = this.#held.slice(content.length, start + open.length);
      this.#held = this.#held.slice(start + open.length);
      this.#searched = 0;
      return true;
    }
    const certain = this.#held.slice(0, this.#held.length - heldLength(this.#held, [open]));
    // White space before a call is not part of the answer.
    const content = certain.trimEnd();
    this.#held = this.#held.slice(content.length);
    this.#content(parts, content);
    return false;
  }

  /** @returns whether a call ends */
  #readCall(parts: Part[]): boolean {
    const { close } = this.#format;
    if (close === undefined) return false;
    // The mark may also be a part of the arguments.
    for (;;) {
      const end = this.#held.indexOf(close, this.#searched);
      if (end < 0) {
        this.#searched = Math.max(0, this.#held.length - close.length + 1);
        return false;
      }
      this.#searched = end + 1;
      if (!this.#finishCall(parts, this.#held.slice(0, end))) continue;
      this.#held = this.#held.slice(end + close.length);
      this.#mark = undefined;
      if (this.#nCalls < this.#most) return true;
      this.#held = "";
      return false;
    }
  }

  #finishCall(parts: Part[], text: string): boolean {
    const calls = parseCalls(this.#format, text, this.#tools);
    if (calls === undefined) return false;
    const wanted = calls.slice(0, this.#most - this.#nCalls);
    parts.push(...wanted);
    this.#nCalls += wanted.length;
    return true;
  }

  #content(parts: Part[], text: string): void {
    if (text === "") return;
    this.#hasContent = true;
    parts.push({ kind: "content", text });
  }
}
