import { Environment } from "jinja";
import { ForgeError } from "../errors.ts";
import { strftime } from "./template/strftime.ts";
import { PRICES, TemplateBudget } from "./template/budget.ts";
import { BudgetedInterpreter } from "./template/interpreter.ts";
import { TemplateProgram } from "./template/program.ts";

/** One message of a conversation. Fields beside these (`tool_calls`, `name`) go to the template. */
export interface ChatMessage {
  /** Who says it: `system`, `user`, `assistant`, `tool`, or what else the template knows. */
  readonly role: string;
  /** What is said. */
  readonly content: string;
  /** What else the template reads. */
  readonly [field: string]: unknown;
}

/** What a chat template is rendered with, beside the messages. */
export interface ChatTemplateOptions {
  /** Whether the text ends where the assistant's answer starts. */
  readonly addGenerationPrompt: boolean;
  /** Text of the beginning-of-sequence token; empty where there is none. */
  readonly bosToken: string;
  /** Text of the end-of-sequence token; empty where there is none. */
  readonly eosToken: string;
  /** The time that `strftime_now` formats. @default the present */
  readonly now?: Date;
  /** More variables of the template, for example `enable_thinking` or `tools`. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** The longest in use have less than 50,000 characters. */
const MAX_TEMPLATE_CHARACTERS = 256 * 1024;
/** The package's lexer takes time with the square of a run of whitespace. */
const MAX_WHITESPACE_RUN = 1000;
const MAX_MESSAGE_CHARACTERS = 1000;

/**
 * The Jinja template that turns a conversation into the text a model was trained on. It comes with
 * the model and is not trusted: what it does is bounded.
 */
export class ChatTemplate {
  readonly #program: TemplateProgram;

  /**
   * Parses a template.
   *
   * @throws {ForgeError} `bad_model` when it is too long, or its syntax is wrong or not supported.
   */
  constructor(source: string) {
    if (source.length > MAX_TEMPLATE_CHARACTERS) {
      const limit = `at most ${MAX_TEMPLATE_CHARACTERS} are read`;
      throw new ForgeError(
        "bad_model",
        `the chat template has ${source.length} characters; ${limit}`,
      );
    }
    for (const [run] of source.matchAll(/\s+/g)) {
      if (run.length <= MAX_WHITESPACE_RUN) continue;
      const limit = `at most ${MAX_WHITESPACE_RUN} are read`;
      throw new ForgeError(
        "bad_model",
        `the chat template has ${run.length} characters of whitespace in a row; ${limit}`,
      );
    }
    try {
      this.#program = new TemplateProgram(source);
    } catch (error) {
      throw templateError(error, "cannot be parsed");
    }
  }

  /**
   * Renders a conversation as transformers' `apply_chat_template` does. Templates of multimodal models may
   * want a message's content as a list of parts, of which one is its text: where the text is lost otherwise,
   * they get that.
   *
   * @throws {ForgeError} `bad_input` when the template itself refuses the messages
   * (`raise_exception`), with its reason; `bad_model` when it cannot be rendered or does more work
   * than its messages can need.
   */
  render(messages: readonly ChatMessage[], options: ChatTemplateOptions): string {
    const last = messages.at(-1)?.content;
    const wanted = typeof last === "string" ? last.trim() : "";
    const text = rendered(() => this.#render(messages, options));
    if (typeof text === "string" && text.includes(wanted)) return text;
    const inParts = messages.map((message) => {
      return { ...message, content: [{ type: "text", text: message.content }] };
    });
    const other = rendered(() => this.#render(inParts, options));
    if (typeof other === "string" && other.includes(wanted)) return other;
    if (typeof text === "string") return text;
    throw text;
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
      const environment = new Environment();
      const globals = globalsOf(options.now ?? new Date(), budget);
      for (const [name, value] of Object.entries({ ...variables, ...globals })) {
        environment.set(name, value);
      }
      return new BudgetedInterpreter(this.#program, environment, budget).render();
    } catch (error) {
      throw templateError(error, "cannot be rendered");
    }
  }
}

/** What was rendered, or the error of a template that does not take what it got. */
function rendered(render: () => string): string | ForgeError {
  try {
    return render();
  } catch (error) {
    if (error instanceof ForgeError && error.code === "bad_model") return error;
    throw error;
  }
}

/** Characters of the variables as JSON, which is what a template can see of them. */
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

/** The functions and constants that every template can use. */
function globalsOf(now: Date, budget: TemplateBudget): Record<string, unknown> {
  return {
    true: true,
    True: true,
    false: false,
    False: false,
    none: null,
    None: null,
    range: (...bounds: unknown[]) => range(bounds, budget),
    raise_exception: (reason: unknown) => {
      const text = String(reason).slice(0, MAX_MESSAGE_CHARACTERS);
      throw new ForgeError("bad_input", `the chat template refuses the messages: ${text}`);
    },
    strftime_now: (format: unknown) => {
      if (typeof format !== "string") throw new Error("strftime_now() needs a format");
      // A directive of two characters can become a date of thirty.
      budget.payText(16 * format.length);
      return strftime(now, format);
    },
  };
}

/** Python's `range`. */
function range(bounds: readonly unknown[], budget: TemplateBudget): number[] {
  const numbers = bounds.filter((bound) => Number.isSafeInteger(bound)) as number[];
  if (numbers.length !== bounds.length || numbers.length < 1 || numbers.length > 3) {
    throw new Error("range() needs one to three whole numbers");
  }
  const [first = 0, second, step = 1] = numbers;
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  if (step === 0) throw new Error("the step of range() must not be 0");
  const count = Math.max(0, Math.ceil((stop - start) / step));
  budget.pay(count * PRICES.value);
  return Array.from({ length: count }, (_, index) => start + index * step);
}

function templateError(error: unknown, what: string): ForgeError {
  if (error instanceof ForgeError) return error;
  return new ForgeError("bad_model", `the chat template ${what}: ${reasonOf(error)}`, {
    cause: error,
  });
}

function reasonOf(error: unknown): string {
  // The package has no errors of its own for these three.
  if (error instanceof RangeError) return "it is nested too deeply or its text grows too long";
  if (error instanceof TypeError) return "it ends early or uses a value of the wrong kind";
  if (error instanceof Error && error.message === "") return "a break or continue outside a loop";
  const text = error instanceof Error ? error.message : String(error);
  return text.replace(/\p{Cc}+/gu, " ").slice(0, MAX_MESSAGE_CHARACTERS);
}
