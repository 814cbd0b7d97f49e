/** Sends requests to a handler, as a client of OpenAI's API does. */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { load, type LoadOptions, type Model } from "../../src/mod.ts";
import { createHandler, type Handler, type ServeOptions } from "../../src/serve/mod.ts";

/** Folder of the bundled model. */
export const DEMO = join(import.meta.dirname ?? ".", "..", "..", "models", "demo");

export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
}

export interface ToolCall {
  readonly index?: number;
  readonly id: string;
  readonly type: string;
  readonly function: { readonly name: string; readonly arguments: string };
}

/** Next part of a call's arguments in a stream. */
export interface CallDelta {
  readonly index: number;
  readonly function: { readonly arguments: string };
}

export interface Message {
  readonly role?: string;
  readonly content?: string | null;
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly ToolCall[];
}

export interface ChatLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
  readonly top_logprobs: readonly Omit<ChatLogprob, "top_logprobs">[];
}

export interface TextLogprobs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly number[];
  readonly top_logprobs: readonly Readonly<Record<string, number>>[];
  readonly text_offset: readonly number[];
}

/** A choice of any endpoint, whole or as part of a stream. */
export interface Choice {
  readonly index: number;
  readonly text?: string;
  readonly message?: Message;
  readonly delta?: Omit<Message, "tool_calls"> & {
    readonly tool_calls?: readonly (ToolCall | CallDelta)[];
  };
  readonly finish_reason: string | null;
  readonly logprobs: null | { readonly content: readonly ChatLogprob[] } | TextLogprobs;
}

export interface Answer {
  readonly id: string;
  readonly object: string;
  readonly created: number;
  readonly model: string;
  readonly choices: readonly Choice[];
  readonly usage?: Usage | null;
}

export interface Failure {
  readonly message: string;
  readonly type: string;
  readonly param: string | null;
  readonly code: string | null;
}

/** Asserts that a time is of the last hour, in seconds since 1970. */
export function assertRecent(seconds: number): void {
  const now = Date.now() / 1000;
  assert(seconds > now - 3600 && seconds <= now, `${seconds} at ${now}`);
}

/** A model served by a handler, without a network. */
export class Client implements AsyncDisposable {
  readonly model: Model;
  readonly handler: Handler;

  constructor(model: Model, options: ServeOptions = {}) {
    this.model = model;
    this.handler = createHandler(model, options);
  }

  static async open(
    folder: string,
    options: ServeOptions = {},
    loading: LoadOptions = {},
  ): Promise<Client> {
    return new Client(await load(folder, { device: "cpu", ...loading }), options);
  }

  get(path: string, init: RequestInit = {}): Promise<Response> {
    return this.handler(new Request(`http://localhost:8080${path}`, init));
  }

  post(path: string, body: unknown, init: RequestInit = {}): Promise<Response> {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    return this.get(path, { method: "POST", body: text, ...init });
  }

  /** Posts a request and returns the whole answer. */
  async answer(path: string, body: unknown): Promise<Answer> {
    const response = await this.post(path, body);
    const text = await response.text();
    assertEquals(response.status, 200, text);
    assertEquals(response.headers.get("content-type"), "application/json");
    return JSON.parse(text);
  }

  chat(body: object): Promise<Answer> {
    return this.answer("/v1/chat/completions", body);
  }

  complete(body: object): Promise<Answer> {
    return this.answer("/v1/completions", body);
  }

  /** Returns the parts of a streamed answer and checks their format. */
  async stream(path: string, body: object): Promise<Answer[]> {
    const response = await this.post(path, { ...body, stream: true });
    const text = await response.text();
    assertEquals(response.status, 200, text);
    assertEquals(response.headers.get("content-type"), "text/event-stream; charset=utf-8");
    const events = text.split("\n\n");
    assertEquals(events.splice(-2), ["data: [DONE]", ""]);
    const parts: Answer[] = events.map((event) => {
      assert(event.startsWith("data: ") && !event.includes("\n"), event);
      return JSON.parse(event.slice(6));
    });
    for (const { id, created, model } of parts) {
      assertEquals({ id, model }, { id: parts[0]!.id, model: parts[0]!.model });
      assertEquals(created, parts[0]!.created);
    }
    assertRecent(parts[0]!.created);
    return parts;
  }

  /** Returns the error of a rejected request. */
  async refusal(path: string, body: unknown, status = 400): Promise<Failure> {
    const response = await this.post(path, body);
    const text = await response.text();
    assertEquals(response.status, status, text);
    const { error } = JSON.parse(text);
    assertEquals(Object.keys(error), ["message", "type", "param", "code"]);
    assert(!error.message.includes("\n"), error.message);
    return error;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.model[Symbol.asyncDispose]();
  }
}

/** Joins the streamed parts of one choice. */
export function joined(parts: readonly Answer[], index = 0): Message & { finish: string } {
  let content = "", reasoning = "", finish = "";
  const calls: ToolCall[] = [];
  for (const choice of parts.flatMap(({ choices }) => choices)) {
    if (choice.index !== index) continue;
    assertEquals(finish, "", "nothing follows the end");
    content += choice.delta?.content ?? choice.text ?? "";
    reasoning += choice.delta?.reasoning_content ?? "";
    for (const delta of choice.delta?.tool_calls ?? []) addCall(calls, delta);
    finish = choice.finish_reason ?? "";
  }
  return {
    content,
    finish,
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
}

/** Adds a streamed part: the start of a call, or more arguments of the last call. */
function addCall(calls: ToolCall[], delta: ToolCall | CallDelta): void {
  if ("id" in delta) {
    assertEquals([delta.index, delta.type, delta.function.arguments], [
      calls.length,
      "function",
      "",
    ]);
    calls.push(delta);
    return;
  }
  const last = calls.at(-1)!;
  assertEquals([Object.keys(delta), delta.index], [["index", "function"], calls.length - 1]);
  assertEquals(Object.keys(delta.function), ["arguments"]);
  const text = last.function.arguments + delta.function.arguments;
  calls[calls.length - 1] = { ...last, function: { ...last.function, arguments: text } };
}

export function user(content: string): { role: string; content: string } {
  return { role: "user", content };
}
