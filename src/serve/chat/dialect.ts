import { constraintName } from "../../constrain/spec.ts";
import type { Model } from "../../engine/model.ts";
import type { GenerateOptions } from "../../engine/options.ts";
import { RequestError } from "../../requests/values.ts";
import { CallReader, ContentReader } from "./call_reader.ts";
import { type CallFormat, callSchema, findCallFormat } from "./call_formats.ts";
import { endsInThought, findMarks, type ReasoningMarks, ReasoningReader } from "./reasoning.ts";
import type { PartReader } from "./text_feed.ts";
import type { ToolUse } from "./tools.ts";

/** How one request's answers are written by the model, and read. */
export interface Dialect {
  /** What generating them takes beside the request's own options. */
  readonly options: GenerateOptions;
  /** A reader for one answer. @param prompt the tokens before it */
  newReader(prompt: ArrayLike<number>): PartReader;
}

/**
 * Settles how answers to a request are written.
 *
 * @param options of the request
 * @throws {RequestError} for tools where the model has no way to call them that is known here, or the
 * answer is to conform to something else
 */
export function settleDialect(
  model: Model,
  options: GenerateOptions,
  use: ToolUse | undefined,
): Dialect {
  const template = model.checkpoint.chatTemplate;
  const marks = findMarks(template, model.tokenizer);
  const constraint = constraintName(options) ?? (options.constraint && "constraint");
  if (use === undefined) {
    return {
      options: { shownTokens: controlTokens(model, marks) },
      newReader(prompt) {
        const content = new ContentReader();
        // What has to conform from its first character on has no thoughts.
        return constraint === undefined ? thinking(model, marks, prompt, content) : content;
      },
    };
  }
  if (constraint !== undefined) {
    throw new RequestError(
      `tools and ${constraint} are given; valid with ${constraint} is "tool_choice": "none"`,
      "tools",
    );
  }
  const format = template === undefined ? undefined : findCallFormat(template);
  if (format === undefined) {
    throw new RequestError(
      "the model's chat template writes no tool calls, or in a way that forge does not read; valid are " +
        "templates with <tool_call> and JSON, [TOOL_CALLS] and a list, or Llama's JSON",
      "tools",
    );
  }
  const names = new Set(use.tools.map(({ name }) => name));
  const most = use.isParallel ? Infinity : 1;
  const templateVariables = { ...options.templateVariables, tools: use.definitions };
  if (use.demanded !== undefined) {
    return {
      options: {
        templateVariables,
        answerStart: format.start,
        jsonSchema: callSchema(format, use.demanded),
      },
      newReader: () => new CallReader(format, names, 1, true),
    };
  }
  return {
    options: { templateVariables, shownTokens: controlTokens(model, marks, format) },
    newReader: (prompt) =>
      thinking(model, marks, prompt, new CallReader(format, names, most, false)),
  };
}

function thinking(
  { tokenizer }: Model,
  marks: ReasoningMarks | undefined,
  prompt: ArrayLike<number>,
  rest: PartReader,
): PartReader {
  if (marks === undefined) return rest;
  return new ReasoningReader(marks, endsInThought(marks, prompt, tokenizer), rest);
}

/** Marks that are control tokens of the model, which would not be seen in the text. */
function controlTokens(
  { tokenizer }: Model,
  marks: ReasoningMarks | undefined,
  format?: CallFormat,
): number[] {
  return [marks?.open, marks?.close, format?.open, format?.close]
    .map((mark) => mark === undefined ? undefined : tokenizer.idOf(mark))
    .filter((id) => id !== undefined);
}
