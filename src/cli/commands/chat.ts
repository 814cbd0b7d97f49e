/** `forge chat`: chats with a model. */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import {
  describeSampling,
  type GenerateOptions,
  type GenerationEnd,
  type Model,
} from "../../mod.ts";
import { expandHome } from "../../formats/file.ts";
import { nearestName } from "../../formats/suggest.ts";
import { Conversation } from "../chat/conversation.ts";
import { loadMessages, saveMessages } from "../chat/file.ts";
import { CHAT_ALIASES, CHAT_COMMANDS, chatHelp } from "../chat/help.ts";
import { type ChatInput, PipedInput } from "../chat/input.ts";
import { MessageBuilder } from "../chat/message.ts";
import type { Context } from "../command.ts";
import { errorText, INTERRUPTED } from "../output/error_text.ts";
import { formatRows, plural } from "../output/format.ts";
import { withModelDefaults } from "../model/config_file.ts";
import { resolveModel } from "../model/model_path.ts";
import { openModel } from "../model/open_model.ts";
import { constraintOptions } from "../options/constraint_options.ts";
import {
  CONSTRAINT_FLAGS,
  type ConstraintFlags,
  type GenerationFlags,
  type ModelFlags,
} from "../options/flags.ts";
import { fileOptions, generationOptions, loadOptions } from "../options/library_options.ts";
import { OPTIONS, type Options } from "../options/options.ts";
import { longFlag } from "../options/types.ts";
import { writeNotes, writeStderr, writeStdout } from "../output/streams.ts";
import { Progress } from "../output/progress.ts";
import { TerminalDisplay, ThoughtDisplay } from "../output/answer_display.ts";
import {
  findThoughts,
  type Thinking,
  thinkingVariables,
  thoughtOptions,
} from "../output/thoughts.ts";
import { describeDevice, describeSpeed } from "../output/run_report.ts";
import { isStdin } from "../input/text_source.ts";

type ChatOptions =
  & Options<"chatSystem" | "web" | "thinking">
  & ModelFlags
  & GenerationFlags
  & ConstraintFlags;

export async function run(
  given: ChatOptions,
  [operand]: readonly string[],
  context: Context,
): Promise<number> {
  if (given.web) return await chatInBrowser(given, operand, context);
  const isTerminal = Deno.stdin.isTerminal() && Deno.stderr.isTerminal();
  if (operand !== undefined && given.model !== undefined) {
    throw new ForgeError("usage", "give the model once: as an argument or with -m");
  }
  const name = operand ?? given.model;
  const options = withModelDefaults(given, name);
  const signal = context.interruptSignal();
  const constraint = await constraintOptions(options, signal);
  const path = await resolveModel(name, signal);
  const settings = {
    ...loadOptions(options),
    ...await fileOptions(options, signal),
    parallel: 1,
  };
  using progress = new Progress();
  await using model = await openModel(path, settings, progress);
  if (!model.hasChatTemplate) {
    throw new ForgeError(
      "unsupported",
      model.generates
        ? "the model has no chat template; forge run --raw continues a text"
        : "the model does not generate; forge embed or forge rerank use it",
    );
  }
  const request = {
    ...generationOptions(options, model.tokenizer),
    ...constraint,
    ...thinkingVariables(model, options.thinking),
  };
  if (context.verbose) {
    const sampling = describeSampling(model.resolveSampling(request), request);
    await writeNotes(
      formatRows([...describeDevice(model), ["sampling", sampling]], Deno.stderr),
    );
  }
  using input = isTerminal
    ? new (await import("../chat/terminal.ts")).TerminalInput()
    : new PipedInput(signal);
  const chat = new Chat(model, request, options.thinking, input, progress, context.verbose);
  chat.conversation.system = options.chatSystem;
  if (isTerminal) {
    await writeNotes("Ctrl-C stops an answer, Ctrl-D ends the chat, /help lists commands.\n");
  }
  await chat.run();
  return signal.aborted ? INTERRUPTED : 0;
}

/** Serves the model on a free port, and opens its page in the browser. */
async function chatInBrowser(
  options: ChatOptions,
  operand: string | undefined,
  context: Context,
): Promise<number> {
  const unused = (["chatSystem", ...CONSTRAINT_FLAGS] as const).find((name) =>
    options[name] !== undefined && options[name] !== false
  );
  if (unused !== undefined) {
    throw new ForgeError(
      "usage",
      `${longFlag(OPTIONS[unused])} cannot be used with --web; set it under Options in the page`,
    );
  }
  const { serveModel } = await import("./serve.ts");
  const server = {
    serveModel: options.model === undefined ? undefined : [options.model],
    modelsDir: undefined,
    maxModels: undefined,
    keepAlive: undefined,
    host: undefined,
    port: 0,
    serveParallel: undefined,
    maxQueue: undefined,
    alias: undefined,
    apiKey: undefined,
    cors: undefined,
    dataParallel: undefined,
  };
  return await serveModel({ ...options, ...server }, operand, context, openBrowser);
}

/** Opens an address in the browser. Without one, the address on the terminal is enough. */
function openBrowser(url: string): void {
  const programs: Record<string, string> = { darwin: "open", windows: "explorer" };
  const program = programs[Deno.build.os] ?? "xdg-open";
  try {
    new Deno.Command(program, { args: [url], stdout: "null", stderr: "null" }).spawn().unref();
  } catch {
    // No such program, or no permission to run it.
  }
}

class Chat {
  readonly conversation = new Conversation(undefined);
  readonly #model: Model;
  readonly #request: GenerateOptions;
  readonly #thinking: Thinking;
  readonly #input: ChatInput;
  readonly #progress: Progress;
  readonly #verbose: boolean;
  #isOver = false;
  /** Number of retries. Each adds 1 to a fixed seed, so that answers differ. */
  #retries = 0;

  constructor(
    model: Model,
    request: GenerateOptions,
    thinking: Thinking,
    input: ChatInput,
    progress: Progress,
    verbose: boolean,
  ) {
    this.#model = model;
    this.#request = request;
    this.#thinking = thinking;
    this.#input = input;
    this.#progress = progress;
    this.#verbose = verbose;
  }

  /**
   * Answers until the input ends. @throws {ForgeError} for an error, unless the input is a terminal
   */
  async run(): Promise<void> {
    while (!this.#isOver) {
      const message = await this.#nextMessage();
      if (message === undefined) return;
      try {
        await this.#take(message);
      } catch (error) {
        if (!(error instanceof ForgeError) || !this.#input.isTerminal) throw error;
        await writeStderr(errorText(error, this.#verbose));
      }
    }
  }

  /** Returns the next message, or `undefined` at the end. */
  async #nextMessage(): Promise<string | undefined> {
    const builder = new MessageBuilder();
    let interrupts = 0;
    for (;;) {
      const event = await this.#input.next(builder.isOpen);
      if (event.kind === "end") return this.#input.isTerminal ? undefined : builder.finish();
      if (event.kind === "line") {
        const message = builder.push(event.text);
        if (message !== undefined && message.trim() !== "") return message;
        interrupts = 0;
      } else if (builder.isOpen) {
        builder.clear();
      } else if (++interrupts === 2) {
        return undefined;
      } else {
        await this.#say("press Ctrl-C again, Ctrl-D or type /exit to end the chat");
      }
    }
  }

  async #take(message: string): Promise<void> {
    if (message.startsWith("/") && !message.startsWith("//")) {
      const [, name = "", argument = ""] = /^(\S+)\s*([^]*?)\s*$/.exec(message) ?? [];
      await this.#command(name, argument);
    } else {
      await this.#ask(message.startsWith("//") ? message.slice(1) : message);
    }
  }

  async #command(name: string, argument: string): Promise<void> {
    const { conversation } = this;
    switch (name) {
      case "/help":
        return await writeStderr(chatHelp());
      case "/exit":
      case "/quit":
        this.#isOver = true;
        return;
      case "/reset":
        conversation.reset();
        return await this.#say("the conversation is empty");
      case "/system":
        conversation.system = argument === "" ? undefined : argument;
        return await this.#say(`the system message is ${argument === "" ? "removed" : "set"}`);
      case "/undo":
        conversation.undo();
        return await this.#say(
          `removed the last answer; ${plural(conversation.length, "answer")} left`,
        );
      case "/retry":
        this.#retries++;
        return await this.#ask(conversation.undo());
      case "/drop":
        return await this.#drop();
      case "/save":
        if (conversation.length === 0) {
          throw new ForgeError("usage", "the conversation is empty; there is nothing to save");
        }
        await saveMessages(fileName(name, argument), conversation.messages);
        return await this.#say(`saved ${plural(conversation.messages.length, "message")}`);
      case "/load":
        conversation.replace(await loadMessages(fileName(name, argument)));
        return await this.#say(`loaded ${plural(conversation.messages.length, "message")}`);
      default: {
        const nearest = nearestName(name, CHAT_COMMANDS.split(", "), CHAT_ALIASES);
        const advice = nearest === undefined
          ? `valid are ${CHAT_COMMANDS}`
          : `did you mean ${nearest}?`;
        throw new ForgeError("usage", `unknown command ${quote(name)}; ${advice}`);
      }
    }
  }

  /** Asks a question and streams the answer. A question without an answer is removed. */
  async #ask(question: string): Promise<void> {
    this.conversation.ask(question);
    try {
      this.#checkRoom();
      const answer = await this.#stream();
      if (answer !== undefined) this.conversation.answer(answer);
    } finally {
      this.conversation.dropUnanswered();
    }
  }

  /** @throws {ForgeError} `bad_input` if the context has no room for an answer */
  #checkRoom(): void {
    const { contextLength } = this.#model;
    const count = this.#countTokens();
    if (count < contextLength) return;
    throw new ForgeError(
      "bad_input",
      `with this message the conversation has ${count} tokens; the context holds ${contextLength}; ` +
        `/drop removes the oldest messages, /reset all of them`,
    );
  }

  #countTokens(): number {
    return this.#model.encodePrompt(this.conversation.messages).tokens.length;
  }

  /** @returns the answer; `undefined` if it was stopped before it began */
  async #stream(): Promise<string | undefined> {
    const seed = this.#request.seed === undefined ? undefined : this.#request.seed + this.#retries;
    const signal = this.#input.answering();
    let answer = "";
    let end: GenerationEnd | undefined;
    this.#progress.update("reading the conversation");
    const { messages } = this.conversation;
    const thoughts = findThoughts(this.#model, messages, this.#request);
    const display = Deno.stdout.isTerminal()
      ? new TerminalDisplay(new ThoughtDisplay(thoughts, !Deno.noColor))
      : undefined;
    const request: GenerateOptions = {
      ...this.#request,
      ...thoughtOptions(this.#model, thoughts, this.#thinking),
      seed,
      signal,
      onPrefill: (done, total) => this.#progress.update("reading the conversation", done, total),
    };
    for await (const piece of this.#model.generate(messages, request)) {
      this.#progress.clear();
      const text = display === undefined ? piece.text : display.show(piece);
      if (text !== "") await writeStdout(text);
      answer += piece.text;
      end = piece.end;
    }
    if (!answer.endsWith("\n")) await writeStdout("\n");
    if (this.#verbose && end !== undefined) {
      await writeNotes(describeSpeed(end, this.#model.constraintCost));
    }
    const used = (end?.promptTokens ?? 0) + (end?.completionTokens ?? 0);
    if (end?.finishReason === "length" && used >= this.#model.contextLength) {
      await this.#say(
        `the answer ended because the context of ${used} tokens is full; /drop makes room`,
      );
    }
    return answer === "" && end?.finishReason === "cancelled" ? undefined : answer;
  }

  /** Removes the oldest turns until at most half of the context is used. */
  async #drop(): Promise<void> {
    const { conversation } = this;
    const before = conversation.length;
    do {
      conversation.forgetOldest();
    } while (conversation.length > 0 && this.#countTokens() > this.#model.contextLength / 2);
    const dropped = before - conversation.length;
    await this.#say(`removed ${plural(dropped, "answer")}; ${conversation.length} left`);
  }

  /** Prints a note on a terminal. */
  async #say(text: string): Promise<void> {
    if (this.#input.isTerminal) await writeNotes(`(${text})\n`);
  }
}

function fileName(command: string, argument: string): string {
  if (isStdin(argument)) {
    throw new ForgeError(
      "usage",
      `${command} ${argument}: stdin is used for messages; name a file`,
    );
  }
  if (argument !== "") return expandHome(argument);
  throw new ForgeError("usage", `${command} needs a file: ${command} FILE`);
}
