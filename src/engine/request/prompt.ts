import { ForgeError } from "../../errors.ts";
import { quote, show } from "../../formats/quote.ts";
import type { ChatMessage, ChatTemplate } from "../../tokenizer/chat_template.ts";
import { type EncodeOptions, type Tokenizer, TokenLimitError } from "../../tokenizer/tokenizer.ts";

/**
 * Prompt: a text, a conversation, or token ids used as they are. A text is one user message if the
 * model has a chat template, unless `raw` is set.
 */
export type Prompt = string | readonly ChatMessage[] | Int32Array;

/** Options of encoding a prompt. */
export interface PromptOptions {
  /** Use a text as it is, without the chat template. @default false */
  readonly raw?: boolean | undefined;
  /** A system message before a text or conversation that has none. */
  readonly system?: string | undefined;
  /**
   * Beginning of the answer. It follows the prompt, rendered or raw, and is not part of the
   * generated text.
   */
  readonly answerStart?: string | undefined;
  /** More variables for the chat template, such as `enable_thinking`. */
  readonly templateVariables?: Readonly<Record<string, unknown>> | undefined;
}

/** A prompt as tokens. */
export interface EncodedPrompt {
  /** Token ids. */
  readonly tokens: Int32Array;
  /** True if the answer begins a text, false if it continues one. */
  readonly startsText: boolean;
}

/** A prompt that does not fit the context, with the code `bad_input`. */
export class TooLongError extends ForgeError {
  constructor(message: string, options?: ErrorOptions) {
    super("bad_input", message, options);
  }
}

/** Least number of tokens after which a text too long for the context is no longer encoded. */
const COUNTED_TOKENS = 16_384;

/**
 * Encodes a text in slices, unless it is far too long.
 *
 * @param name name of the text in messages
 * @throws {ForgeError} `bad_input` if it has several times as many tokens as the context
 */
export function* encodeTextInSlices(
  text: string,
  tokenizer: Tokenizer,
  contextLength: number,
  name: string,
  options: Omit<EncodeOptions, "truncate"> = {},
): Generator<void, Int32Array> {
  const maxTokens = Math.max(2 * contextLength, COUNTED_TOKENS);
  try {
    return yield* tokenizer.encodeInSlices(text, { ...options, maxTokens });
  } catch (error) {
    if (!(error instanceof TokenLimitError)) throw error;
    throw new TooLongError(
      `${name} has more than ${maxTokens} tokens; the context holds ${contextLength}`,
      { cause: error },
    );
  }
}

/**
 * Computations that are long for one turn of the event loop. They run slice by slice, one
 * computation at a time, since each may take much memory.
 */
export class Slices {
  #last: Promise<unknown> = Promise.resolve();

  /** @throws {ForgeError} `cancelled` if the signal is raised */
  async run<T>(slices: Generator<void, T>, signal?: AbortSignal): Promise<T> {
    // A short computation is complete after its first slice.
    const { done, value } = slices.next();
    if (done) return value;
    const result = this.#last.then(() => runSlices(slices, signal));
    this.#last = result.catch(() => {});
    return await result;
  }
}

async function runSlices<T>(slices: Generator<void, T>, signal?: AbortSignal): Promise<T> {
  for (;;) {
    if (signal?.aborted) throw new ForgeError("cancelled", "the request was cancelled");
    const { done, value } = slices.next();
    if (done) return value;
    await new Promise((resolve) => setTimeout(resolve));
  }
}

/**
 * Encodes a prompt in slices.
 *
 * @param template the model's chat template, if any
 * @throws {ForgeError} `bad_input` for a conversation without a template, a prompt without tokens,
 * or one with several times as many tokens as the context
 */
export function* encodePromptInSlices(
  prompt: Prompt,
  options: PromptOptions,
  tokenizer: Tokenizer,
  template: ChatTemplate | undefined,
  contextLength = Infinity,
): Generator<void, EncodedPrompt> {
  checkPrompt(prompt, template);
  const encoded = yield* encode(prompt, options, tokenizer, template, contextLength);
  if (encoded.tokens.length === 0) {
    const why = prompt instanceof Int32Array ? "" : ", and the model has no BOS token to start";
    throw new ForgeError("bad_input", `the prompt is empty${why}`);
  }
  return encoded;
}

/** Roles that chat templates accept even if they do not name them. */
const COMMON_ROLES = ["system", "user", "assistant", "tool", "developer"];

/**
 * Checks the type of a prompt. Other values are rejected rather than rendered as an odd
 * conversation.
 *
 * @throws {ForgeError} `bad_input`, naming what is valid
 */
function checkPrompt(prompt: unknown, template: ChatTemplate | undefined): void {
  if (typeof prompt === "string" || prompt instanceof Int32Array) return;
  const isList = Array.isArray(prompt) || ArrayBuffer.isView(prompt);
  if (isList && typeof (prompt as ArrayLike<unknown>)[0] === "number") {
    throw new ForgeError(
      "bad_input",
      "the prompt is a list of numbers; token ids are given as an Int32Array: Int32Array.from(ids)",
    );
  }
  if (!Array.isArray(prompt)) {
    const valid = "valid is a string, an array of messages, or an Int32Array of token ids";
    throw new ForgeError("bad_input", `the prompt is ${show(prompt)}; ${valid}`);
  }
  if (prompt.length === 0) {
    throw new ForgeError("bad_input", "the conversation is empty; valid is at least one message");
  }
  prompt.forEach((message, i) => checkMessage(message, `messages[${i}]`, template));
}

function checkMessage(message: unknown, name: string, template: ChatTemplate | undefined): void {
  if (typeof message !== "object" || message === null || Array.isArray(message)) {
    const valid = "valid is an object with role and content";
    throw new ForgeError("bad_input", `${name} is ${show(message)}; ${valid}`);
  }
  const { role, content } = message as Partial<Record<keyof ChatMessage, unknown>>;
  const isRole = typeof role === "string" &&
    (COMMON_ROLES.includes(role) || template?.names(role) === true);
  if (!isRole) {
    const valid = `${COMMON_ROLES.map(quote).join(", ")} and what the model's template names`;
    throw new ForgeError("bad_input", `${name}.role is ${show(role)}; valid are ${valid}`);
  }
  if (typeof content !== "string") {
    const valid = 'valid is a string ("" for a message that only calls tools)';
    throw new ForgeError("bad_input", `${name}.content is ${show(content)}; ${valid}`);
  }
}

function* encode(
  prompt: Prompt,
  options: PromptOptions,
  tokenizer: Tokenizer,
  template: ChatTemplate | undefined,
  contextLength: number,
): Generator<void, EncodedPrompt> {
  const toTokens = (text: string, how?: Omit<EncodeOptions, "truncate">) =>
    encodeTextInSlices(text, tokenizer, contextLength, "the prompt", how);
  const { raw = false, system, templateVariables, answerStart = "" } = options;
  if (prompt instanceof Int32Array) {
    if (answerStart === "") return { tokens: prompt, startsText: false };
    throw new ForgeError("usage", "answerStart is for texts and conversations, not for token ids");
  }
  if (typeof prompt === "string") {
    if (raw || template === undefined) {
      if (system !== undefined) {
        const why = raw ? "a raw prompt has no messages" : "the model has no chat template";
        throw new ForgeError("bad_input", `a system message cannot be used: ${why}`);
      }
      const text = prompt + answerStart;
      return { tokens: yield* toTokens(text), startsText: text === "" };
    }
    prompt = [{ role: "user", content: prompt }];
  }
  if (template === undefined) {
    throw new ForgeError("bad_input", "the model has no chat template; give the prompt as a text");
  }
  // Every message takes at least one token, and rendering takes time.
  if (prompt.length > contextLength) {
    throw new ForgeError(
      "bad_input",
      `the conversation has ${prompt.length} messages; the context holds ${contextLength} tokens`,
    );
  }
  const hasSystem = prompt.some((message) => message.role === "system");
  const messages = system === undefined || hasSystem
    ? prompt
    : [{ role: "system", content: system }, ...prompt];
  const text = template.render(messages, {
    addGenerationPrompt: true,
    bosToken: specialText(tokenizer, tokenizer.bosId),
    eosToken: specialText(tokenizer, tokenizer.eosIds[0]),
    ...(templateVariables === undefined ? {} : { extra: templateVariables }),
  });
  // The template writes BOS itself.
  return {
    tokens: yield* toTokens(text + answerStart, { addSpecial: false }),
    startsText: answerStart === "",
  };
}

function specialText(tokenizer: Tokenizer, id: number | undefined): string {
  return id === undefined ? "" : tokenizer.tokenText(id);
}

/**
 * Checks the range of token ids. @param name name of the tokens in messages
 * @throws {ForgeError} `bad_input` for an id outside of the model's vocabulary
 */
export function checkTokens(
  tokens: ArrayLike<number>,
  vocabSize: number,
  name = "the prompt",
): void {
  for (let i = 0; i < tokens.length; i++) {
    const id = tokens[i]!;
    if (!Number.isInteger(id) || id < 0 || id >= vocabSize) {
      throw new ForgeError(
        "bad_input",
        `token ${i} of ${name} is ${id}; valid ids are 0 to ${vocabSize - 1}`,
      );
    }
  }
}

/** Checks that tokens fit a context. @throws {ForgeError} `bad_input` if they do not */
export function checkFits(nTokens: number, contextLength: number, name = "the prompt"): void {
  if (nTokens <= contextLength) return;
  throw new ForgeError(
    "bad_input",
    `${name} has ${nTokens} tokens; the context holds ${contextLength}`,
  );
}
