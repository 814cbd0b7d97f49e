/** Options of generations that concern a model's thoughts. */
import { ForgeError } from "../../errors.ts";
import type { GenerateOptions, Model, Prompt } from "../../mod.ts";
import {
  endsInReasoning,
  findMarks,
  reasoningLimit,
  type ReasoningMarks,
  withEffort,
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
  return withEffort({}, thinking === "off" ? "none" : "medium", chatTemplate, "--thinking");
}

/** Thoughts before one answer. */
export interface Thoughts {
  readonly marks: ReasoningMarks;
  /** True if the prompt ends inside them. */
  readonly isOpen: boolean;
}

/** Returns the thoughts before the answer to a prompt; `undefined` if the model has none. */
export function findThoughts(
  model: Model,
  prompt: Prompt,
  request: GenerateOptions,
): Thoughts | undefined {
  const { tokenizer, checkpoint } = model;
  const marks = findMarks(checkpoint.chatTemplate, tokenizer);
  if (marks === undefined) return undefined;
  const { tokens } = model.encodePrompt(prompt, request);
  return { marks, isOpen: endsInReasoning(marks, tokens, tokenizer) };
}

/** Returns the options that make the marks of thoughts part of the text, even control tokens. */
export function markOptions(
  { tokenizer, checkpoint }: Model,
): Pick<GenerateOptions, "shownTokens"> {
  const marks = findMarks(checkpoint.chatTemplate, tokenizer);
  if (marks === undefined) return {};
  const ids = [marks.open, marks.close].map((mark) => tokenizer.idOf(mark));
  return { shownTokens: ids.filter((id) => id !== undefined) };
}

/** Returns the options that show thoughts, and limit them if `thinking` is a number. */
export function thoughtOptions(
  model: Model,
  thoughts: Thoughts | undefined,
  thinking: Thinking,
): Pick<GenerateOptions, "shownTokens" | "reasoningLimit"> {
  const shown = markOptions(model);
  if (thoughts === undefined || typeof thinking !== "number") return shown;
  const limit = reasoningLimit(thoughts.marks, thoughts.isOpen, model.tokenizer, thinking);
  if (limit !== undefined) return { ...shown, reasoningLimit: limit };
  throw new ForgeError("unsupported", "--thinking: the thoughts of this model cannot be limited");
}
