/** Options of generations that concern a model's thoughts. */
import { ForgeError } from "../../errors.ts";
import type { GenerateOptions, Model, Prompt } from "../../mod.ts";
import { effortVariables, findMarks, reasoningLimit } from "../../serve/chat/reasoning.ts";

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
