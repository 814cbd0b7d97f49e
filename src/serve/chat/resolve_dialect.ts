import { constraintName } from "../../constrain/spec.ts";
import type { ConstraintScope } from "../../constrain/spec.ts";
import type { Model } from "../../engine/model.ts";
import type { GenerateOptions } from "../../engine/request/options.ts";
import { RequestError } from "../../requests/values.ts";
import type { ChatMessage } from "../../tokenizer/chat_template.ts";
import { CallReader, ContentReader } from "./call_reader.ts";
import { type CallFormat, callSchema, findCallFormat } from "./call_formats.ts";
import type { EnforceableTools } from "./enforceable.ts";
import { harmonyDialect, isHarmony } from "./harmony.ts";
import { endsInThought, findMarks, type ReasoningMarks, ReasoningReader } from "./reasoning.ts";
import type { PartReader } from "./part_reader.ts";
import type { ToolUse } from "./tools.ts";

/** How the answers to one request are written by the model, and read. */
export interface Dialect {
  /** What generating them takes in place of the request's own options. */
  readonly options: GenerateOptions;
  /** A reader for one answer. @param prompt the tokens before it */
  newReader(prompt: ArrayLike<number>): PartReader;
}

/** What a dialect is settled for. */
export interface ChatRequest {
  readonly messages: readonly ChatMessage[];
  readonly options: GenerateOptions;
  readonly use: ToolUse | undefined;
}

/** White space that models put behind their marks. */
const GAPS = ["", "\n", "\n\n", " "];

/**
 * Settles how answers are written.
 *
 * @throws {RequestError} for tools where the model has no way to call them that is known here, or the
 * answer is to conform to something else
 */
export async function settleDialect(
  model: Model,
  request: ChatRequest,
  enforceable: EnforceableTools,
): Promise<Dialect> {
  const { use } = request;
  if (use !== undefined) checkNoConstraint(request.options);
  if (isHarmony(model.checkpoint.chatTemplate)) return harmonyDialect(model, request);
  if (use === undefined) return plainDialect(model, request);
  const format = callFormat(model);
  const options = {
    ...request.options,
    templateVariables: { ...request.options.templateVariables, tools: use.definitions },
  };
  const thoughts = new Thoughts(model, { ...request, options });
  const calling: Calling = {
    format,
    use,
    options: {
      ...options,
      shownTokens: [...thoughts.marks, ...idsOf(model, [format.open, format.close])],
    },
    thoughts,
  };
  return use.demanded === undefined
    ? await freeDialect(model, calling, enforceable)
    : demandedDialect(calling, use.demanded);
}

/** What answers that may be calls are written by. */
interface Calling {
  readonly format: CallFormat;
  readonly use: ToolUse;
  readonly options: GenerateOptions;
  readonly thoughts: Thoughts;
}

/** The parameters of each tool. */
function parametersOf({ tools }: ToolUse) {
  return new Map(tools.map(({ name, parameters }) => [name, parameters]));
}

/** The answer is one call of a function among those demanded. */
function demandedDialect(
  { format, use, options, thoughts }: Calling,
  demanded: NonNullable<ToolUse["demanded"]>,
): Dialect {
  if (format.syntax !== "json") {
    throw new RequestError(
      'tool_choice demands a call, which cannot be enforced in the way this model writes them; valid are "auto" and "none"',
      "tool_choice",
    );
  }
  const tools = parametersOf(use);
  const jsonSchema = callSchema(format, demanded, 1);
  const constraintScope = thoughts.scope(format);
  // Where thoughts are open, the mark of the call cannot stand behind the prompt.
  if (constraintScope !== undefined && thoughts.isOpen) {
    return {
      options: { ...options, jsonSchema, constraintScope },
      newReader: (prompt) => thoughts.reader(prompt, new CallReader(format, tools, 1, false)),
    };
  }
  return {
    options: { ...options, shownTokens: undefined, jsonSchema, answerStart: format.start },
    newReader: () => new CallReader(format, tools, 1, true),
  };
}

/** The model calls where it likes; from a mark on that is one token, the call conforms. */
async function freeDialect(
  model: Model,
  { format, use, options, thoughts }: Calling,
  enforceable: EnforceableTools,
): Promise<Dialect> {
  const tools = parametersOf(use);
  const most = use.isParallel ? Infinity : 1;
  const canHold = format.syntax === "json" && !format.mayBeBare;
  const mark = canHold ? idsOf(model, [format.open])[0] : undefined;
  const strict = use.tools.find(({ isStrict }) => isStrict);
  if (mark === undefined && strict !== undefined) {
    throw new RequestError(
      `the strict tool ${strict.name} cannot be enforced in the way this model writes calls by itself; ` +
        'valid is "strict": false',
      "tools",
    );
  }
  const constraint = mark === undefined ? {} : {
    jsonSchema: callSchema(format, await enforceable.of(format, use.tools), most),
    constraintScope: {
      after: mark,
      prefixes: GAPS,
      suffixes: endings(format),
      isOptional: true,
      repeats: !format.isList,
    },
  };
  return {
    options: { ...options, ...constraint },
    newReader: (prompt) => thoughts.reader(prompt, new CallReader(format, tools, most, false)),
  };
}

/** Answers without calls. */
function plainDialect(model: Model, request: ChatRequest): Dialect {
  const { options } = request;
  const thoughts = new Thoughts(model, request);
  const shownTokens = thoughts.marks;
  if (constraintName(options) === undefined && options.constraint === undefined) {
    return {
      options: { ...options, shownTokens },
      newReader: (prompt) => thoughts.reader(prompt, new ContentReader()),
    };
  }
  const constraintScope = options.constraint === undefined ? thoughts.scope() : undefined;
  // Where thoughts cannot be told from the answer by a token, all of it conforms.
  if (constraintScope === undefined) return { options, newReader: () => new ContentReader() };
  return {
    options: { ...options, shownTokens, constraintScope },
    newReader: (prompt) => thoughts.reader(prompt, new ContentReader()),
  };
}

/** @throws {RequestError} where an answer would have to be a call and something else */
function checkNoConstraint(options: GenerateOptions): void {
  const constraint = constraintName(options) ?? (options.constraint && "constraint");
  if (constraint === undefined) return;
  throw new RequestError(
    `tools and ${constraint} are given; valid with ${constraint} is "tool_choice": "none"`,
    "tools",
  );
}

/** @throws {RequestError} */
function callFormat(model: Model): CallFormat {
  const template = model.checkpoint.chatTemplate;
  const format = template === undefined ? undefined : findCallFormat(template);
  if (format !== undefined) return format;
  throw new RequestError(
    "the model's chat template writes no tool calls, or in a way that forge does not read; valid are " +
      "templates with <tool_call> and JSON or <function=>, [TOOL_CALLS] and a list, Llama's JSON, or channels",
    "tools",
  );
}

/** What a call may end with. */
function endings({ close }: CallFormat): string[] {
  return close === undefined ? [""] : [close, `\n${close}`];
}

/** The thoughts before the answers to one request. */
class Thoughts {
  readonly #model: Model;
  readonly #request: ChatRequest;
  readonly #marks: ReasoningMarks | undefined;
  #isOpen: boolean | undefined;

  constructor(model: Model, request: ChatRequest) {
    this.#model = model;
    this.#request = request;
    this.#marks = findMarks(model.checkpoint.chatTemplate, model.tokenizer);
  }

  /** The marks that are tokens. */
  get marks(): number[] {
    return idsOf(this.#model, [this.#marks?.open, this.#marks?.close]);
  }

  /** Whether the prompt, which is not encoded yet, ends where the model is to go on with them. */
  get isOpen(): boolean {
    const { messages, options } = this.#request;
    this.#isOpen ??= this.#marks !== undefined &&
      this.#isOpenIn(this.#marks, this.#model.encodePrompt(messages, options).tokens);
    return this.#isOpen;
  }

  /**
   * Where a constraint on the answer holds: behind the thoughts.
   *
   * @param format of the call that the answer is to be
   * @returns `undefined` where their marks are no tokens
   */
  scope(format?: CallFormat): ConstraintScope | undefined {
    const [opener, after] = this.marks;
    if (after === undefined) return undefined;
    return {
      after,
      opener: this.isOpen ? undefined : opener,
      prefixes: GAPS.map((gap) => gap + (format?.start ?? "")),
      suffixes: format === undefined ? [""] : endings(format),
    };
  }

  /** A reader for an answer. @param rest reads what is no thought */
  reader(prompt: ArrayLike<number>, rest: PartReader): PartReader {
    if (this.#marks === undefined) return rest;
    this.#isOpen ??= this.#isOpenIn(this.#marks, prompt);
    return new ReasoningReader(this.#marks, this.#isOpen, rest);
  }

  #isOpenIn(marks: ReasoningMarks, prompt: ArrayLike<number>): boolean {
    return endsInThought(marks, prompt, this.#model.tokenizer);
  }
}

/** The tokens that marks are, as far as they are tokens. */
function idsOf({ tokenizer }: Model, marks: readonly (string | undefined)[]): number[] {
  return marks.map((mark) => mark === undefined ? undefined : tokenizer.idOf(mark))
    .filter((id) => id !== undefined);
}
