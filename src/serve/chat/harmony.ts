/**
 * The harmony format of gpt-oss, as OpenAI describes it: an answer is a sequence of messages in
 * channels. `<|channel|>analysis<|message|>` begins reasoning, `final` the content, and `commentary
 * to=functions.NAME` a call, whose arguments are the message.
 */
import type { Model } from "../../engine/model.ts";
import type { GenerateOptions } from "../../engine/request/options.ts";
import { constraintName } from "../../constrain/spec.ts";
import { RequestError } from "../../requests/values.ts";
import { CallArguments } from "./json_calls.ts";
import { ContentReader } from "./call_reader.ts";
import {
  type ChatRequest,
  type Dialect,
  heldLength,
  type Part,
  type PartReader,
} from "./dialect.ts";
import type { ToolUse } from "./tools.ts";

const START = "<|start|>";
const CHANNEL = "<|channel|>";
const MESSAGE = "<|message|>";
const END = "<|end|>";
const CONSTRAIN = "<|constrain|>";

/** Ends of an answer, which not every model file lists. */
const STOPS = ["<|call|>", "<|return|>"];

const FINAL = `${CHANNEL}final${MESSAGE}`;

/** True if a chat template uses the harmony format. */
export function isHarmony(template: string | undefined): boolean {
  return template !== undefined && template.includes(CHANNEL) && template.includes(MESSAGE);
}

/** @throws {RequestError} for tools that cannot be enforced as requested */
export function harmonyDialect({ tokenizer }: Model, { options, use }: ChatRequest): Dialect {
  if (use === undefined && (constraintName(options) ?? options.constraint) !== undefined) {
    // The constraint applies to the final message, so the answer starts with it, without reasoning.
    return {
      options: { ...options, answerStart: FINAL },
      newReader: () => new ContentReader(),
    };
  }
  const marks = [START, CHANNEL, MESSAGE, END, CONSTRAIN, ...STOPS].map((mark) =>
    tokenizer.idOf(mark)
  );
  const written: GenerateOptions = {
    ...options,
    shownTokens: marks.filter((id) => id !== undefined),
    stop: [options.stop ?? [], STOPS].flat(),
  };
  if (use === undefined) {
    return { options: written, newReader: () => new HarmonyReader(new Set(), Infinity) };
  }
  const templateVariables = { ...options.templateVariables, tools: use.definitions };
  if (use.demanded !== undefined) {
    return demandedCall({ ...options, templateVariables }, use.demanded);
  }
  const strict = use.tools.find(({ isStrict }) => isStrict);
  if (strict !== undefined) {
    throw new RequestError(
      `the strict tool ${strict.name} cannot be enforced unless it is the only choice; valid are ` +
        '"strict": false, or a function by name as "tool_choice"',
      "tools",
    );
  }
  const names = new Set(use.tools.map(({ name }) => name));
  const most = use.isParallel ? Infinity : 1;
  return {
    options: { ...written, templateVariables },
    newReader: () => new HarmonyReader(names, most),
  };
}

/**
 * Forces a call of one tool: its name is in the prompt, and its arguments conform to the schema.
 */
function demandedCall(
  options: GenerateOptions,
  [tool, ...others]: NonNullable<ToolUse["demanded"]>,
): Dialect {
  if (tool === undefined || others.length > 0) {
    throw new RequestError(
      "tool_choice is not one function, but this model's format can enforce only a call of one; " +
        "valid is a function by name",
      "tool_choice",
    );
  }
  const { name, parameters } = tool;
  return {
    options: {
      ...options,
      jsonSchema: parameters,
      answerStart: `${CHANNEL}commentary to=functions.${name} ${CONSTRAIN}json${MESSAGE}`,
    },
    newReader: () => new HarmonyReader(new Set([name]), 1, { kind: "call", name }),
  };
}

/** Kind of a message, by its header. */
type Header =
  | { readonly kind: "reasoning" | "content" }
  | { readonly kind: "call"; readonly name: string };

/** A message that is being read. Calls above the limit are dropped. */
type Body = { readonly kind: "reasoning" | "content" | "dropped" } | CallArguments;

/** Reads the messages of an answer. A call of an unknown tool is content. */
export class HarmonyReader implements PartReader {
  readonly #names: ReadonlySet<string>;
  readonly #most: number;
  #held = "";
  /** Message that is being read; `undefined` inside a header. */
  #body: Body | undefined;
  #isFirst = true;
  #nCalls = 0;

  /**
   * @param names names of the tools
   * @param most limit of calls
   * @param header header of the message that the prompt begins, if any
   */
  constructor(names: ReadonlySet<string>, most: number, header?: Header) {
    this.#names = names;
    this.#most = most;
    if (header !== undefined) this.#begin(header);
  }

  push(text: string): Part[] {
    this.#held += text;
    const parts: Part[] = [];
    while (this.#body === undefined ? this.#readHeader() : this.#readBody(this.#body, parts));
    return parts;
  }

  end(): Part[] {
    const parts: Part[] = [];
    // An incomplete header is dropped.
    if (this.#body !== undefined) this.#finish(this.#body, this.#held, parts);
    this.#held = "";
    this.#body = undefined;
    return parts;
  }

  /** @returns true if a message begins */
  #readHeader(): boolean {
    if (this.#isFirst && !mayBeHeader(this.#held)) {
      this.#begin({ kind: "content" });
      return true;
    }
    const end = this.#held.indexOf(MESSAGE);
    if (end < 0) return false;
    const header = this.#held.slice(0, end);
    this.#held = this.#held.slice(end + MESSAGE.length);
    this.#begin(readHeader(header));
    return true;
  }

  #begin(header: Header): void {
    this.#isFirst = false;
    if (header.kind !== "call") this.#body = header;
    else if (!this.#names.has(header.name)) this.#body = { kind: "content" };
    else if (this.#nCalls >= this.#most) this.#body = { kind: "dropped" };
    else this.#body = new CallArguments(header.name);
  }

  /** @returns true if the message ends */
  #readBody(body: Body, parts: Part[]): boolean {
    const marks = [END, START, CHANNEL];
    const ends = marks.map((mark) => this.#held.indexOf(mark)).filter((at) => at >= 0);
    if (ends.length > 0) {
      const end = Math.min(...ends);
      this.#finish(body, this.#held.slice(0, end), parts);
      this.#held = this.#held.slice(end);
      this.#body = undefined;
      return true;
    }
    const certain = this.#held.length - heldLength(this.#held, marks);
    this.#continue(body, this.#held.slice(0, certain), parts);
    this.#held = this.#held.slice(certain);
    return false;
  }

  #finish(body: Body, text: string, parts: Part[]): void {
    this.#continue(body, text, parts);
    if (body instanceof CallArguments) parts.push(...body.end());
  }

  #continue(body: Body, text: string, parts: Part[]): void {
    if (text === "") return;
    if (body instanceof CallArguments) {
      const read = body.push(text);
      if (read.some(({ kind }) => kind === "call")) this.#nCalls++;
      parts.push(...read);
    } else if (body.kind !== "dropped") parts.push({ kind: body.kind, text });
  }
}

/** True if an answer that begins with this text may begin with a header. */
function mayBeHeader(text: string): boolean {
  return [CHANNEL, START, MESSAGE, " to="].some((mark) =>
    text.startsWith(mark) || mark.startsWith(text)
  );
}

/** Reads a header, such as `<|channel|>commentary to=functions.now <|constrain|>json`. */
function readHeader(header: string): Header {
  const [, name] = /\bto=functions\.([\w.-]+)/.exec(header) ?? [];
  if (name !== undefined) return { kind: "call", name };
  const isReasoning = header.includes(`${CHANNEL}analysis`) || /\bto=/.test(header);
  return { kind: isReasoning ? "reasoning" : "content" };
}
