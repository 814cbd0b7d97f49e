/** Thoughts of models: their options, and their look on a terminal. */
import { ForgeError } from "../../errors.ts";
import type { GenerateOptions, Model, Prompt } from "../../mod.ts";
import { ContentReader } from "../../serve/chat/call_reader.ts";
import type { Part, PartReader } from "../../serve/chat/dialect.ts";
import {
  effortVariables,
  endsInReasoning,
  findMarks,
  reasoningLimit,
  ReasoningReader,
} from "../../serve/chat/reasoning.ts";

/** Value of `--thinking`. */
export type Thinking = "on" | "off" | number | undefined;

/**
 * Returns the template variables that turn a model's thoughts on or off.
 *
 * @throws {ForgeError} `unsupported` for a model that cannot do so
 */
export function thinkingVariables(
  model: Model,
  thinking: Thinking,
): Pick<GenerateOptions, "templateVariables"> {
  if (thinking === undefined) return {};
  const { chatTemplate } = model.checkpoint;
  const marks = findMarks(chatTemplate, model.tokenizer);
  if (marks === undefined && thinking !== "off") {
    throw new ForgeError("unsupported", "--thinking: this model has no thoughts; valid is off");
  }
  const effort = thinking === "off" ? "none" : "medium";
  const templateVariables = effortVariables(effort, chatTemplate, {}, "--thinking");
  return templateVariables === undefined ? {} : { templateVariables };
}

/** Returns the options that show a model's thoughts, and limit them if `thinking` is a number. */
export function thoughtOptions(
  model: Model,
  prompt: Prompt,
  request: GenerateOptions,
  thinking: Thinking,
): Pick<GenerateOptions, "shownTokens" | "reasoningLimit"> {
  const { tokenizer, checkpoint } = model;
  const marks = findMarks(checkpoint.chatTemplate, tokenizer);
  if (marks === undefined) return {};
  const shownTokens = [marks.open, marks.close].map((mark) => tokenizer.idOf(mark))
    .filter((id) => id !== undefined);
  if (typeof thinking !== "number") return { shownTokens };
  const { tokens } = model.encodePrompt(prompt, request);
  const limit = reasoningLimit(marks, tokens, tokenizer, thinking);
  if (limit !== undefined) return { shownTokens, reasoningLimit: limit };
  throw new ForgeError("unsupported", "--thinking: the thoughts of this model cannot be limited");
}

const DIM = "\x1b[2m";
const PLAIN = "\x1b[22m";

/** Text of an answer for a terminal, with its thoughts apart from the rest. */
export class ThoughtDisplay {
  readonly #reader: PartReader;
  readonly #isColoured: boolean;
  #kind: Part["kind"] | undefined;

  /** @param isColoured true to dim thoughts, false to name them */
  constructor(model: Model, prompt: Prompt, request: GenerateOptions, isColoured: boolean) {
    const { tokenizer, checkpoint } = model;
    const marks = findMarks(checkpoint.chatTemplate, tokenizer);
    this.#isColoured = isColoured;
    if (marks === undefined) {
      this.#reader = new ContentReader();
    } else {
      const { tokens } = model.encodePrompt(prompt, request);
      const isOpen = endsInReasoning(marks, tokens, tokenizer);
      this.#reader = new ReasoningReader(marks, isOpen, new ContentReader());
    }
  }

  /** Returns what is certain after the next text. */
  push(text: string): string {
    return this.#shown(this.#reader.push(text));
  }

  /** Returns the rest of the text. */
  end(): string {
    const rest = this.#shown(this.#reader.end());
    return this.#kind === "reasoning" && this.#isColoured ? rest + PLAIN : rest;
  }

  #shown(parts: readonly Part[]): string {
    return parts.map((part) => {
      if (part.kind !== "reasoning" && part.kind !== "content") return "";
      const previous = this.#kind;
      this.#kind = part.kind;
      if (part.kind === previous) return part.text;
      if (part.kind === "reasoning") return (this.#isColoured ? DIM : "Thoughts: ") + part.text;
      if (previous === undefined) return part.text;
      return `${this.#isColoured ? PLAIN : ""}\n\n${
        this.#isColoured ? "" : "Answer: "
      }${part.text}`;
    }).join("");
  }
}
