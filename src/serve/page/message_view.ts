/// <reference lib="dom" />
/** One message on the page. */
import type { AnswerStats, Message, TokenProbability, ToolCall } from "./conversation.ts";
import { renderMarkdown } from "./markdown.ts";

/** Reactions to the buttons of messages; an index counts the messages of the conversation. */
export interface MessageActions {
  /** Replaces a message of the user and asks again. */
  edit(index: number, text: string): void;
  /** Drops an answer and asks again. */
  retry(index: number): void;
  /** Sends the result of a tool. */
  answerCall(call: ToolCall, result: string): void;
}

/** Place of a message in the conversation. */
export interface MessageState {
  /** True while the answer is generated. @default false */
  readonly isGrowing?: boolean;
  /** True for the last message, whose tool calls can be answered. @default false */
  readonly isLast?: boolean;
}

const NAMES = { user: "You", assistant: "Model", tool: "Tool" } as const;

/** Shows a message and follows its changes. */
export class MessageView {
  readonly element: HTMLElement = document.createElement("article");
  readonly #index: number;
  readonly #actions: MessageActions;
  #message: Message;
  #state: MessageState = {};
  #showsTokens = false;
  /** True if the reader unfolded the thoughts. */
  #isUnfolded = false;

  constructor(message: Message, index: number, actions: MessageActions, state: MessageState) {
    this.#message = message;
    this.#index = index;
    this.#actions = actions;
    this.element.className = message.role;
    this.update(message, state);
  }

  /** Shows the message as it is now. */
  update(message: Message, state: MessageState = this.#state): void {
    const { isGrowing = false, isLast = false } = state;
    this.#message = message;
    this.#state = state;
    this.element.ariaBusy = String(isGrowing);
    this.element.replaceChildren(
      heading(NAMES[message.role]),
      ...(message.reasoning === undefined ? [] : [this.#thoughts(message.reasoning, isGrowing)]),
      this.#body(),
      ...(message.toolCalls ?? []).map((call) => this.#call(call, isLast && !isGrowing)),
      ...(message.failure === undefined ? [] : [paragraph("error", message.failure)]),
      ...(isGrowing ? [] : [this.#buttons()]),
    );
  }

  #thoughts(reasoning: string, isGrowing: boolean): HTMLElement {
    const details = document.createElement("details");
    const summary = document.createElement("summary");
    const isThinking = isGrowing && this.#message.content === "";
    summary.textContent = isThinking ? "Thinking…" : "Thoughts";
    details.open = this.#isUnfolded;
    details.addEventListener("toggle", () => this.#isUnfolded = details.open);
    details.append(summary, paragraph("plain", reasoning.trim()));
    return details;
  }

  #body(): HTMLElement {
    const { role, content, tokens } = this.#message;
    const body = document.createElement("div");
    body.className = "body";
    if (this.#showsTokens && tokens !== undefined) {
      body.classList.add("plain");
      body.append(...tokens.map(tokenSpan));
    } else if (role === "assistant") {
      body.append(renderMarkdown(content));
    } else {
      body.classList.add("plain");
      body.textContent = content;
    }
    return body;
  }

  #call(call: ToolCall, canAnswer: boolean): HTMLElement {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const code = document.createElement("code");
    const pre = document.createElement("pre");
    caption.textContent = `Call of ${call.name}`;
    code.textContent = call.arguments;
    pre.tabIndex = 0;
    pre.append(code);
    figure.append(caption, pre);
    if (!canAnswer) return figure;
    const form = document.createElement("form");
    const input = document.createElement("input");
    input.ariaLabel = input.placeholder = `Result of ${call.name}`;
    form.append(input);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#actions.answerCall(call, input.value);
    });
    figure.append(form);
    return figure;
  }

  #buttons(): HTMLElement {
    const { role, content, tokens, stats } = this.#message;
    const row = document.createElement("div");
    row.className = "actions";
    if (role === "user") row.append(button("Edit", () => this.#edit()));
    if (role === "assistant") {
      row.append(
        button("Copy", () => copy(content)),
        button("Retry", () => this.#actions.retry(this.#index)),
      );
    }
    if (tokens !== undefined) {
      const toggle = button(this.#showsTokens ? "Text" : "Probabilities", () => {
        this.#showsTokens = !this.#showsTokens;
        this.update(this.#message);
      });
      row.append(toggle);
    }
    if (stats !== undefined) row.append(describeStats(stats));
    return row;
  }

  #edit(): void {
    const form = document.createElement("form");
    const input = document.createElement("textarea");
    input.value = this.#message.content;
    input.ariaLabel = "Edited message";
    input.rows = Math.min(12, this.#message.content.split("\n").length + 1);
    const send = document.createElement("button");
    send.textContent = "Send";
    const cancel = button(
      "Cancel",
      () => this.update(this.#message),
    );
    const row = document.createElement("div");
    row.className = "actions";
    row.append(send, cancel);
    form.append(input, row);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#actions.edit(this.#index, input.value);
    });
    this.element.replaceChildren(heading(NAMES.user), form);
    input.focus();
  }
}

function heading(text: string): HTMLElement {
  const node = document.createElement("h2");
  node.textContent = text;
  return node;
}

function paragraph(className: string, text: string): HTMLElement {
  const node = document.createElement("p");
  node.className = className;
  node.textContent = text;
  return node;
}

/** Returns a button that calls `act`. */
export function button(label: string, act: () => void): HTMLButtonElement {
  const node = document.createElement("button");
  node.type = "button";
  node.textContent = label;
  node.addEventListener("click", act);
  return node;
}

/** Copies a text. Without encryption, browsers have no clipboard for pages of other machines. */
function copy(text: string): void {
  if (navigator.clipboard !== undefined) return void navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Least probability of each colour but the last. */
const LEVELS = [0.9, 0.6, 0.3, 0.1];

/** Shows a token, coloured by its probability, with its likeliest alternatives on hover. */
function tokenSpan({ text, logprob, top }: TokenProbability): HTMLElement {
  const span = document.createElement("span");
  const probability = Math.exp(logprob);
  const level = LEVELS.findIndex((least) => probability >= least);
  span.className = `token-${level < 0 ? LEVELS.length : level}`;
  span.textContent = text;
  const lines = top.map((other) => `${percent(other.logprob)}  ${JSON.stringify(other.text)}`);
  span.title = [`${percent(logprob)}  this token`, ...lines].join("\n");
  return span;
}

function percent(logprob: number): string {
  return `${(100 * Math.exp(logprob)).toFixed(1)}%`;
}

function describeStats(stats: AnswerStats): HTMLElement {
  const { promptTokens, cachedTokens, answerTokens, prefillRate, decodeRate, kvBytes } = stats;
  const node = document.createElement("span");
  const computed = cachedTokens > 0 ? ` (${cachedTokens} cached)` : "";
  node.textContent = [
    `${promptTokens}${computed} + ${answerTokens} tokens`,
    ...(prefillRate > 0 ? [`prompt ${prefillRate.toFixed(0)}/s`] : []),
    ...(decodeRate > 0 ? [`answer ${decodeRate.toFixed(1)}/s`] : []),
    `${(kvBytes / 2 ** 20).toFixed(1)} MiB of cache`,
  ].join(" · ");
  return node;
}
