/**
 * Chooses the dialect of a request: generation options and reader, by model, tools and constraint.
 */
import { constraintName, type ConstraintScope } from "../../constrain/spec.ts";
import type { Model } from "../../engine/model.ts";
import type { GenerateOptions } from "../../engine/request/options.ts";
import { RequestError } from "../../requests/values.ts";
import { CallReader, ContentReader } from "./call_reader.ts";
import { type CallFormat, callSchema, findCallFormat } from "./call_formats.ts";
import { harmonyDialect, isHarmony } from "./harmony.ts";
import { endsInReasoning, findMarks, type ReasoningMarks, ReasoningReader } from "./reasoning.ts";
import type { ChatRequest, Dialect, PartReader } from "./dialect.ts";
import type { EnforceableTools, ToolUse } from "./tools.ts";

/** White space that models write after their marks. */
const GAPS = ["", "\n", "\n\n", " "];

/**
 * Resolves the dialect of a request.
 *
 * @throws {RequestError} for tools if the model has no supported format of calls, or the request
 * has another constraint
 */
export async function resolveDialect(
  model: Model,
  request: ChatRequest,
  enforceable: EnforceableTools,
): Promise<Dialect> {
  const { use } = request;
  if (use !== undefined) checkNoConstraint(request.options);
  const { answerStart } = request.options;
  if (
    answerStart !== undefined &&
    (use?.demanded !== undefined || isHarmony(model.checkpoint.chatTemplate))
  ) {
    throw new RequestError(
      "a begun answer cannot be continued by this model or as a demanded call; end with another message",
      "messages",
    );
  }
  if (isHarmony(model.checkpoint.chatTemplate)) return harmonyDialect(model, request);
  if (use === undefined) return await plainDialect(model, request);
  const format = callFormat(model);
  const options = {
    ...request.options,
    templateVariables: { ...request.options.templateVariables, tools: use.definitions },
  };
  const reasoning = new Reasoning(model, { ...request, options });
  const setup: CallSetup = {
    format,
    use,
    options: {
      ...options,
      shownTokens: [...reasoning.marks, ...idsOf(model, [format.open, format.close])],
    },
    reasoning,
  };
  return await (use.demanded === undefined
    ? optionalCallDialect(model, setup, enforceable)
    : requiredCallDialect(setup, use.demanded));
}

/** Format and options of answers that may have calls. */
interface CallSetup {
  readonly format: CallFormat;
  readonly use: ToolUse;
  readonly options: GenerateOptions;
  readonly reasoning: Reasoning;
}

/** Returns the schemas of arguments by tool. */
function parametersOf({ tools }: ToolUse) {
  return new Map(tools.map(({ name, parameters }) => [name, parameters]));
}

/** The answer is one call of a demanded function. */
async function requiredCallDialect(
  { format, use, options, reasoning }: CallSetup,
  demanded: NonNullable<ToolUse["demanded"]>,
): Promise<Dialect> {
  if (format.syntax !== "json") {
    throw new RequestError(
      'tool_choice requires a call, which cannot be enforced in the format of this model; valid are "auto" and "none"',
      "tool_choice",
    );
  }
  const tools = parametersOf(use);
  const jsonSchema = callSchema(format, demanded, 1);
  const constraintScope = await reasoning.scope(format);
  // If the prompt ends inside reasoning, it cannot also end with the mark of the call.
  if (constraintScope !== undefined && await reasoning.isOpen()) {
    return {
      options: { ...options, jsonSchema, constraintScope },
      newReader: (prompt) => reasoning.reader(prompt, new CallReader(format, tools, 1, false)),
    };
  }
  return {
    options: { ...options, shownTokens: undefined, jsonSchema, answerStart: format.start },
    newReader: () => new CallReader(format, tools, 1, true),
  };
}

/**
 * The model decides whether to call. After a mark that is one token, the call conforms to the
 * schemas.
 */
async function optionalCallDialect(
  model: Model,
  { format, use, options, reasoning }: CallSetup,
  enforceable: EnforceableTools,
): Promise<Dialect> {
  const tools = parametersOf(use);
  const most = use.isParallel ? Infinity : 1;
  const canEnforce = format.syntax === "json" && !format.mayBeBare;
  const mark = canEnforce ? idsOf(model, [format.open])[0] : undefined;
  const strict = use.tools.find(({ isStrict }) => isStrict);
  if (mark === undefined && strict !== undefined) {
    throw new RequestError(
      `the strict tool ${strict.name} cannot be enforced in the format of this model's calls; ` +
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
    newReader: (prompt) => reasoning.reader(prompt, new CallReader(format, tools, most, false)),
  };
}

/** The answer has no calls. */
async function plainDialect(model: Model, request: ChatRequest): Promise<Dialect> {
  const { options } = request;
  const reasoning = new Reasoning(model, request);
  const shownTokens = reasoning.marks;
  if (constraintName(options) === undefined && options.constraint === undefined) {
    return {
      options: { ...options, shownTokens },
      newReader: (prompt) => reasoning.reader(prompt, new ContentReader()),
    };
  }
  const constraintScope = options.constraint === undefined ? await reasoning.scope() : undefined;
  // Without tokens that mark the reasoning, the whole answer must conform.
  if (constraintScope === undefined) return { options, newReader: () => new ContentReader() };
  return {
    options: { ...options, shownTokens, constraintScope },
    newReader: (prompt) => reasoning.reader(prompt, new ContentReader()),
  };
}

/** @throws {RequestError} if the request has a constraint as well as tools */
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
    "the model's chat template has no tool calls in a supported format; supported are <tool_call> with " +
      "JSON or <function=>, [TOOL_CALLS] with a list, the JSON of Llama, and the channels of gpt-oss",
    "tools",
  );
}

/** Returns the texts that may end a call. */
function endings({ close }: CallFormat): string[] {
  return close === undefined ? [""] : [close, `\n${close}`];
}

/** Reasoning before the answers to one request. */
class Reasoning {
  readonly #model: Model;
  readonly #request: ChatRequest;
  readonly #marks: ReasoningMarks | undefined;
  #isOpen: boolean | undefined;

  constructor(model: Model, request: ChatRequest) {
    this.#model = model;
    this.#request = request;
    this.#marks = findMarks(model.checkpoint.chatTemplate, model.tokenizer);
  }

  /** Ids of the marks that are tokens. */
  get marks(): number[] {
    return idsOf(this.#model, [this.#marks?.open, this.#marks?.close]);
  }

  /** True if the prompt ends inside the reasoning. Encodes the prompt to find out. */
  async isOpen(): Promise<boolean> {
    if (this.#isOpen !== undefined) return this.#isOpen;
    if (this.#marks === undefined) return false;
    const { messages, options } = this.#request;
    const { tokens } = await this.#model.encodePromptInSlices(messages, options);
    return this.#isOpen = this.#isOpenIn(this.#marks, tokens);
  }

  /**
   * Returns the scope of a constraint on the answer: the text after the reasoning.
   *
   * @param format format of the call, if the answer must be one
   * @returns `undefined` if the closing mark is not a token
   */
  async scope(format?: CallFormat): Promise<ConstraintScope | undefined> {
    const [opener, after] = this.marks;
    if (after === undefined) return undefined;
    return {
      after,
      opener: await this.isOpen() ? undefined : opener,
      prefixes: GAPS.map((gap) => gap + (format?.start ?? "")),
      suffixes: format === undefined ? [""] : endings(format),
    };
  }

  /** Returns a reader for an answer. @param rest reads the text after the reasoning */
  reader(prompt: ArrayLike<number>, rest: PartReader): PartReader {
    if (this.#marks === undefined) return rest;
    this.#isOpen ??= this.#isOpenIn(this.#marks, prompt);
    return new ReasoningReader(this.#marks, this.#isOpen, rest);
  }

  #isOpenIn(marks: ReasoningMarks, prompt: ArrayLike<number>): boolean {
    return endsInReasoning(marks, prompt, this.#model.tokenizer);
  }
}

/** Returns the ids of the marks that are tokens. */
function idsOf({ tokenizer }: Model, marks: readonly (string | undefined)[]): number[] {
  return marks.map((mark) => mark === undefined ? undefined : tokenizer.idOf(mark))
    .filter((id) => id !== undefined);
}
