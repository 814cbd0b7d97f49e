/** Reasoning before an answer: its marks, its reader, and the effort that a request asks for. */
import type { JsonValue } from "../../formats/json.ts";
import { quoteList } from "../../formats/quote.ts";
import { invalid, isGiven, RequestError } from "../../requests/values.ts";
import type { GenerateOptions, ReasoningLimit } from "../../engine/request/options.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import { heldLength, type Part, type PartReader } from "./dialect.ts";

/** Marks around a model's reasoning. */
export interface ReasoningMarks {
  readonly open: string;
  readonly close: string;
}

const KNOWN_MARKS: readonly ReasoningMarks[] = [
  { open: "<think>", close: "</think>" },
  { open: "<seed:think>", close: "</seed:think>" },
  { open: "[THINK]", close: "[/THINK]" },
];

/** Finds the reasoning marks of a model, in its template or its vocabulary. */
export function findMarks(
  template: string | undefined,
  tokenizer: Tokenizer,
): ReasoningMarks | undefined {
  return KNOWN_MARKS.find(({ open, close }) =>
    template?.includes(close) ||
    (tokenizer.idOf(open) !== undefined && tokenizer.idOf(close) !== undefined)
  );
}

/** True if a prompt ends inside the reasoning. */
export function endsInReasoning(
  { open }: ReasoningMarks,
  tokens: ArrayLike<number>,
  tokenizer: Tokenizer,
): boolean {
  const { length } = tokens;
  const count = Math.min(length, 2 * open.length);
  const last = Array.from({ length: count }, (_, i) => tokens[length - count + i]!);
  const known = last.filter((id) => id < tokenizer.vocabSize);
  return tokenizer.decode(known, { skipSpecial: false }).trimEnd().endsWith(open);
}

/**
 * Returns the limit of an answer's reasoning.
 *
 * @param isOpen true if the prompt ends inside the reasoning
 * @param most most tokens of reasoning, at least 1
 * @returns `undefined` if the marks are no tokens
 */
export function reasoningLimit(
  marks: ReasoningMarks,
  isOpen: boolean,
  tokenizer: Tokenizer,
  most: number,
): ReasoningLimit | undefined {
  const [open, close] = [tokenizer.idOf(marks.open), tokenizer.idOf(marks.close)];
  if (open === undefined || close === undefined) return undefined;
  return isOpen ? { most, close } : { most, close, open };
}

/** Reads the reasoning at the beginning of an answer. Another reader takes the rest. */
export class ReasoningReader implements PartReader {
  readonly #marks: ReasoningMarks;
  readonly #rest: PartReader;
  #held = "";
  #state: "start" | "reasoning" | "gap" | "rest";
  #hasReasoning = false;

  /** @param isOpen true if the prompt ends inside the reasoning */
  constructor(marks: ReasoningMarks, isOpen: boolean, rest: PartReader) {
    this.#marks = marks;
    this.#rest = rest;
    this.#state = isOpen ? "reasoning" : "start";
  }

  push(text: string): Part[] {
    if (this.#state === "rest") return this.#rest.push(text);
    this.#held += text;
    const parts = this.#state === "start" ? this.#readStart() : [];
    if (this.#state === "reasoning") parts.push(...this.#readReasoning());
    if (this.#state === "gap") parts.push(...this.#readGap());
    return parts;
  }

  end(): Part[] {
    const held = this.#held;
    this.#held = "";
    if (this.#state === "reasoning") return this.#reasoning(held.trimEnd());
    return [...(this.#state === "start" ? this.#rest.push(held) : []), ...this.#rest.end()];
  }

  #readStart(): Part[] {
    const text = this.#held.trimStart();
    const { open } = this.#marks;
    if (text.startsWith(open)) {
      this.#held = text.slice(open.length);
      this.#state = "reasoning";
    } else if (!open.startsWith(text)) {
      this.#state = "rest";
      const held = this.#held;
      this.#held = "";
      return this.#rest.push(held);
    }
    return [];
  }

  #readReasoning(): Part[] {
    const { close } = this.#marks;
    const end = this.#held.indexOf(close);
    if (end >= 0) {
      const reasoning = this.#held.slice(0, end).trimEnd();
      this.#held = this.#held.slice(end + close.length);
      this.#state = "gap";
      return this.#reasoning(reasoning);
    }
    // White space before the mark is not part of the reasoning.
    const certain = this.#held.slice(0, this.#held.length - heldLength(this.#held, [close]));
    const reasoning = certain.trimEnd();
    this.#held = this.#held.slice(reasoning.length);
    return this.#reasoning(reasoning);
  }

  /** Skips the empty lines between reasoning and answer. */
  #readGap(): Part[] {
    const text = this.#held.trimStart();
    if (text === "") return [];
    this.#state = "rest";
    return this.#rest.push(text);
  }

  #reasoning(text: string): Part[] {
    const shown = this.#hasReasoning ? text : text.trimStart();
    if (shown === "") return [];
    this.#hasReasoning = true;
    return [{ kind: "reasoning", text: shown }];
  }
}

/** Efforts of OpenAI's API. */
const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh"] as const;

/** Efforts that templates with a variable `reasoning_effort` accept, such as gpt-oss's. */
const TEMPLATE_EFFORTS = ["low", "medium", "high"];

/**
 * Adds an effort to options as a template variable: `reasoning_effort` if the template has it,
 * otherwise `enable_thinking`. Clients send an effort to every model, so a template without either
 * ignores it, unless it must not reason and always does.
 *
 * @param options those of the request, whose template variables must not have the same one
 * @param name key of the request, for errors
 * @throws {RequestError} for an effort that the template does not support
 */
export function withEffort<T extends Pick<GenerateOptions, "templateVariables">>(
  options: T,
  effort: JsonValue | undefined,
  template: string | undefined,
  name = "reasoning_effort",
): T {
  if (!isGiven(effort)) return options;
  if (!EFFORTS.some((known) => known === effort)) {
    throw invalid(name, effort, quoteList(EFFORTS));
  }
  const hasEffort = template?.includes("reasoning_effort");
  const variable = hasEffort ? "reasoning_effort" : "enable_thinking";
  if (!template?.includes(variable)) {
    if (effort !== "none" || !KNOWN_MARKS.some(({ close }) => template?.includes(close))) {
      return options;
    }
    throw new RequestError(
      `${name} is "none", but this model always reasons: its chat template has no switch for it`,
      name,
    );
  }
  const given = options.templateVariables ?? {};
  if (variable in given) {
    throw new RequestError(`give ${name} or chat_template_kwargs.${variable}, not both`, name);
  }
  if (hasEffort && !TEMPLATE_EFFORTS.some((known) => known === effort)) {
    throw invalid(name, effort, `${quoteList(TEMPLATE_EFFORTS)} for this model`);
  }
  const value = hasEffort ? effort : effort !== "none";
  return { ...options, templateVariables: { ...given, [variable]: value } };
}
