/** `POST /v1/completions`: goes on with texts as they are. */
import type { GenerationEnd, Piece } from "../../engine/generation/request.ts";
import { MAX_COMPLETIONS } from "../../engine/limits.ts";
import type { JsonObject } from "../../formats/json.ts";
import { OPTION_FIELDS, readOptions } from "../../requests/options.ts";
import { readTexts } from "../../requests/texts.ts";
import { RequestError } from "../../requests/values.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import { type Choice, respond } from "../answer.ts";
import { finishReason } from "../finish_reason.ts";
import { LogprobColumns } from "./logprobs.ts";
import { readBody } from "../http/request_body.ts";
import { checkFields, readStream } from "./request_fields.ts";
import type { Service } from "../service.ts";

/** Options of conversations, which are not continued here. */
const CHAT_FIELDS = ["system", "raw", "top_logprobs", "chat_template_kwargs"];

const FIELDS = [
  "model",
  "prompt",
  "stream",
  "stream_options",
  ...OPTION_FIELDS.filter((name) => !CHAT_FIELDS.includes(name)),
];

export async function completions(service: Service, request: Request): Promise<Response> {
  const body = await readBody(request);
  checkFields(body, FIELDS);
  service.checkModel(body);
  const prompts = readTexts(body.prompt, "prompt");
  const stream = readStream(body);
  const { n = 1, ...options } = readOptions(body, service.defaults);
  const count = prompts.length * n;
  if (count > MAX_COMPLETIONS) {
    throw new RequestError(
      `prompt and n ask for ${count} answers; at most ${MAX_COMPLETIONS} are valid`,
      "prompt",
    );
  }
  const { model } = service;
  const controller = new AbortController();
  const leave = service.admission.enter(count);
  try {
    const generations = [];
    for (const prompt of prompts) {
      const settings = { ...options, raw: true, signal: controller.signal };
      generations.push((await model.generateMany(prompt, n, settings)).pieces);
    }
    const logprobs = options.logprobs !== undefined;
    return await respond(service, request, {
      kind: "text_completion",
      chunkKind: "text_completion",
      prompts: generations,
      choices: Array.from(
        { length: count },
        (_, index) => new TextChoice(index, model.tokenizer, logprobs),
      ),
      stream,
      controller,
    }, leave);
  } catch (error) {
    leave();
    throw error;
  }
}

/** One answer of this endpoint. */
class TextChoice implements Choice {
  readonly #index: number;
  readonly #logprobs: LogprobColumns | undefined;
  #text = "";
  #told = 0;
  end: GenerationEnd | undefined;

  constructor(index: number, tokenizer: Tokenizer, logprobs: boolean) {
    this.#index = index;
    this.#logprobs = logprobs ? new LogprobColumns(tokenizer) : undefined;
  }

  take(piece: Piece): void {
    this.#logprobs?.add(piece, this.#text.length);
    this.#text += piece.text;
    this.end = piece.end;
  }

  news(): JsonObject[] {
    const text = this.#text.slice(this.#told);
    const isNews = text !== "" || this.end !== undefined || this.#logprobs?.isEmpty === false;
    this.#told = this.#text.length;
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
