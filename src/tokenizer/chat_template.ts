import { ForgeError } from "../errors.ts";
import { TemplateBudget } from "./template/budget.ts";
import { Interpreter } from "./template/interpreter.ts";
import { Cycler, Joiner, makeDict } from "./template/objects.ts";
import { lineOf, TemplateProgram } from "./template/program.ts";
import { strftime } from "./template/strftime.ts";
import {
  type Arguments,
  ContentParts,
  Dict,
  fromJson,
  isInteger,
  isText,
  Namespace,
  NativeFunction,
  plain,
  Range,
  TemplateError,
  toIndex,
  toText,
  typeName,
  type Value,
} from "./template/values.ts";

/** Message of a conversation. Its other fields (`tool_calls`, `name`) go to the template. */
export interface ChatMessage {
  /**
   * Author of the message: `system`, `user`, `assistant`, `tool`, or another role of the template.
   */
  readonly role: string;
  /** Text of the message. */
  readonly content: string;
  /** Any other field that the template reads. */
  readonly [field: string]: unknown;
}

/** Variables of a chat template other than the messages. */
export interface ChatTemplateOptions {
  /** True if the text ends where the assistant's answer starts. */
  readonly addGenerationPrompt: boolean;
  /** Text of the beginning-of-sequence token; empty if there is none. */
  readonly bosToken: string;
  /** Text of the end-of-sequence token; empty if there is none. */
  readonly eosToken: string;
  /** Time that `strftime_now` formats. @default the current time */
  readonly now?: Date;
  /** More variables of the template, for example `enable_thinking` or `tools`. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** Maximum length of a template; the longest in use have fewer than 50,000 characters. */
const MAX_TEMPLATE_CHARACTERS = 256 * 1024;
const MAX_MESSAGE_CHARACTERS = 1000;
/** Maximum number of items of a range, as in Jinja's sandbox. */
const MAX_RANGE = 100_000;

/**
 * Jinja template that converts a conversation to the text a model was trained on. It comes with
 * the model and is not trusted, so its work is limited.
 */
export class ChatTemplate {
  readonly #source: string;
  readonly #program: TemplateProgram;

  /**
   * Parses a template.
   *
   * @throws {ForgeError} `bad_model` if it is too long, or its syntax is invalid or not supported.
   */
  constructor(source: string) {
    if (source.length > MAX_TEMPLATE_CHARACTERS) {
      const limit = `at most ${MAX_TEMPLATE_CHARACTERS} are read`;
      throw new ForgeError(
        "bad_model",
        `the chat template has ${source.length} characters; ${limit}`,
      );
    }
    this.#source = source;
    try {
      this.#program = new TemplateProgram(source);
    } catch (error) {
      throw templateError(error, "cannot be parsed", source);
    }
  }

  /** True if a text occurs in quotes in the template, as the roles that it handles do. */
  names(text: string): boolean {
    return [`'${text}'`, `"${text}"`].some((quoted) => this.#source.includes(quoted));
  }

  /**
   * Renders a conversation as transformers' `apply_chat_template` does. Some templates of
   * multimodal models read a message's content only as a list of parts. If such a template fails
   * for text, or drops it, the content is passed as a list with one text part.
   *
   * @throws {ForgeError} `bad_input` if the template rejects the messages (`raise_exception`), with
   * its reason; `bad_model` if it cannot be rendered or exceeds the work allowed for the size of
   * its messages.
   */
  render(messages: readonly ChatMessage[], options: ChatTemplateOptions): string {
    const wanted = lastText(messages);
    const text = rendered(() => this.#render(messages, options));
    if (!(text instanceof ForgeError) && text.includes(wanted)) return text;
    if (this.#program.readsParts) {
      const inParts = messages.map(withParts);
      const other = rendered(() => this.#render(inParts, options));
      if (!(other instanceof ForgeError) && other.includes(wanted)) return other;
    }
    if (text instanceof ForgeError) throw text;
    return text;
  }

  #render(messages: readonly unknown[], options: ChatTemplateOptions): string {
    const variables = {
      tools: null,
      documents: null,
      ...options.extra,
      messages,
      add_generation_prompt: options.addGenerationPrompt,
      bos_token: options.bosToken,
      eos_token: options.eosToken,
    };
    const budget = new TemplateBudget(sizeOf(variables));
    try {
      const values: [string, Value][] = globalsOf(options.now ?? new Date(), budget);
      for (const [name, value] of Object.entries(variables)) {
        if (value !== undefined) values.push([name, fromJson(value, budget)]);
      }
      return new Interpreter(this.#program.body, values, budget).render();
    } catch (error) {
      throw templateError(error, "cannot be rendered", this.#source);
    }
  }
}

/** Text of the last message with any text; a template must not drop it. */
function lastText(messages: readonly ChatMessage[]): string {
  for (const { content } of messages.toReversed()) {
    const text = typeof content === "string" ? content.trim() : "";
    if (text !== "") return text;
  }
  return "";
}

/** Returns the message with its text as the only part of its content. */
function withParts(message: ChatMessage): unknown {
  if (typeof message.content !== "string") return message;
  const part = new Dict([["type", "text"], ["text", message.content]]);
  return { ...message, content: ContentParts.of(part) };
}

/** Returns the rendered text, or the error if the template cannot render its input. */
function rendered(render: () => string): string | ForgeError {
  try {
    return render();
  } catch (error) {
    if (error instanceof ForgeError && error.code === "bad_model") return error;
    throw error;
  }
}

/** Number of characters of the variables as JSON. Templates see only JSON values. */
function sizeOf(variables: Readonly<Record<string, unknown>>): number {
  try {
    return JSON.stringify(variables).length;
  } catch (error) {
    const reason = error instanceof Error ? error.message.split("\n", 1)[0] : String(error);
    throw new ForgeError(
      "bad_input",
      `the messages or variables of the chat template are not JSON: ${reason}`,
      { cause: error },
    );
  }
}

/** Returns the functions that every template can call. */
function globalsOf(now: Date, budget: TemplateBudget): [string, Value][] {
  return [
    ["range", new NativeFunction((args) => range(args))],
    ["dict", new NativeFunction((args) => makeDict(args, budget), "<class 'dict'>")],
    [
      "namespace",
      new NativeFunction(
        (args) => new Namespace(makeDict(args, budget)),
        "<class 'jinja2.utils.Namespace'>",
      ),
    ],
    [
      "cycler",
      new NativeFunction((args) => new Cycler(args.positional), "<class 'jinja2.utils.Cycler'>"),
    ],
    [
      "joiner",
      new NativeFunction(
        (args) => new Joiner(args.bind("joiner", "sep?")[0] ?? ", "),
        "<class 'jinja2.utils.Joiner'>",
      ),
    ],
    [
      "raise_exception",
      new NativeFunction((args) => {
        const [message] = args.bind("raise_exception", "message");
        const reason = oneLine(toText(message!, budget));
        throw new ForgeError("bad_input", `the chat template rejects the messages: ${reason}`);
      }),
    ],
    [
      "strftime_now",
      new NativeFunction((args) => {
        const [format] = args.bind("strftime_now", "format");
        if (!isText(format)) throw new TemplateError("strftime_now() got no format");
        // A directive of two characters can become a date of thirty.
        budget.payText(16 * plain(format).length);
        return strftime(now, plain(format));
      }),
    ],
  ];
}

/** Python's `range`. */
function range(args: Arguments): Range {
  const bounds = args.bindPositional("range", "start", "stop?", "step?").flatMap((bound) => {
    if (bound === undefined) return [];
    if (!isInteger(bound)) throw new TemplateError(`range() needs ints, not ${typeName(bound)}`);
    return [toIndex(bound)];
  });
  const [first = 0, second, step = 1] = bounds;
  if (step === 0) throw new TemplateError("the step of range() cannot be 0");
  const made = second === undefined ? new Range(0, first, step) : new Range(first, second, step);
  if (made.length > MAX_RANGE) {
    throw new TemplateError(`range() makes ${made.length} items; at most ${MAX_RANGE} are allowed`);
  }
  return made;
}

function templateError(error: unknown, what: string, source: string): ForgeError {
  if (error instanceof ForgeError) return error;
  const line = error instanceof TemplateError && error.at !== undefined
    ? ` in line ${lineOf(source, error.at)}`
    : "";
  return new ForgeError("bad_model", `the chat template ${what}${line}: ${reasonOf(error)}`, {
    cause: error,
  });
}

function reasonOf(error: unknown): string {
  if (error instanceof RangeError) return "it nests too deeply or its text grows too long";
  return oneLine(error instanceof Error ? error.message : String(error));
}

/** Returns the beginning of a text, without line ends and other control characters. */
function oneLine(text: string): string {
  return text.slice(0, MAX_MESSAGE_CHARACTERS).replace(/\p{Cc}+/gu, " ");
}
