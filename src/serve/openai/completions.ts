/** `POST /v1/completions`: continues texts as they are. */
import type { GenerationEnd, Piece } from "../../engine/generation/request.ts";
import { MAX_COMPLETIONS } from "../../engine/limits.ts";
import type { JsonObject } from "../../formats/json.ts";
import { OPTION_FIELDS, readOptions } from "../../requests/options.ts";
import { isGiven, readString, readTexts, RequestError } from "../../requests/values.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import { Answer } from "../answer.ts";
import { infillPrompt } from "../infill.ts";
import type { Service } from "../service.ts";
import { LogprobColumns } from "./logprobs.ts";
import { checkFields, readStream } from "./request_fields.ts";
import { type Choice, CompletionFormat, finishReason } from "./response.ts";

/** Options that only conversations have. */
const CHAT_FIELDS = ["system", "raw", "top_logprobs", "chat_template_kwargs"];

const FIELDS = [
  "model",
  "prompt",
  "suffix",
  "stream",
  "stream_options",
  ...OPTION_FIELDS.filter((name) => !CHAT_FIELDS.includes(name)),
];

export async function completions(
  service: Service,
  request: Request,
  body: JsonObject,
): Promise<Response> {
  checkFields(body, FIELDS);
  const { model } = service;
  const prompts = await readPrompts(service, body, request.signal);
  const stream = readStream(body);
  const { n = 1, ...options } = readOptions(body, service.defaults);
  const count = prompts.length * n;
  if (count > MAX_COMPLETIONS) {
    throw new RequestError(
      `prompt and n ask for ${count} answers; at most ${MAX_COMPLETIONS} are valid`,
      "prompt",
    );
  }

  using answer = new Answer(service, count);
  const generations: AsyncGenerator<Piece>[] = [];
  for (const prompt of prompts) {
    const settings = { ...options, raw: true, signal: answer.signal };
    generations.push(...(await model.generateMany(prompt, n, settings)).pieces);
  }
  const hasLogprobs = options.logprobs !== undefined;
  const choices = generations.map((_, index) =>
    new TextChoice(index, hasLogprobs ? model.tokenizer : undefined)
  );
  const head = { kind: "text_completion", model: service.name } as const;
  const format = new CompletionFormat(head, choices, n, stream);
  return await answer.respond(request, generations, format, stream !== undefined);
}

/** Reads the prompts; with a suffix, those for the text between both. */
async function readPrompts(
  service: Service,
  { prompt, suffix }: JsonObject,
  signal: AbortSignal,
): Promise<(string | Int32Array)[]> {
  const prompts = readTexts(prompt, "prompt");
  if (!isGiven(suffix) || suffix === "") return prompts;
  const after = readString(suffix, "suffix");
  const infills: Int32Array[] = [];
  for (const before of prompts) {
    if (typeof before !== "string") {
      throw new RequestError("suffix needs a prompt of text; the prompt has token ids", "suffix");
    }
    infills.push(await infillPrompt(service, before, after, signal));
  }
  return infills;
}

/** A choice of this endpoint. */
class TextChoice implements Choice {
  readonly #index: number;
  readonly #logprobs: LogprobColumns | undefined;
  #text = "";
  /** Number of characters that the stream has. */
  #sent = 0;
  end: GenerationEnd | undefined;

  /** @param tokenizer given if log-probabilities are requested */
  constructor(index: number, tokenizer: Tokenizer | undefined) {
    this.#index = index;
    this.#logprobs = tokenizer && new LogprobColumns(tokenizer);
  }

  take(piece: Piece): void {
    this.#logprobs?.add(piece, this.#text.length);
    this.#text += piece.text;
    this.end = piece.end;
  }

  deltas(): JsonObject[] {
    const text = this.#text.slice(this.#sent);
    const isNews = text !== "" || this.end !== undefined || this.#logprobs?.isEmpty === false;
    this.#sent = this.#text.length;
    return isNews ? [this.#choice(text)] : [];
  }

  whole(): JsonObject {
    return this.#choice(this.#text);
  }

  #choice(text: string): JsonObject {
    return {
      index: this.#index,
      text,
      logprobs: this.#logprobs?.take() ?? null,
      finish_reason: this.end === undefined ? null : finishReason(this.end.finishReason),
    };
  }
}
