/** Log-probabilities in the forms of OpenAI's API. */
import type { TokenLogprob } from "../../backend.ts";
import { textOf } from "../../engine/generation/completion.ts";
import type { Piece } from "../../engine/generation/request.ts";
import type { JsonObject } from "../../formats/json.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";

/** Stands for minus infinity, which JSON does not have. */
const LEAST = -9999;

/** A token and the likeliest in its place, as in chats; nothing where it is not known. */
export function chatLogprobs(tokenizer: Tokenizer, piece: Piece): JsonObject[] {
  const { token, logprob, top } = piece;
  if (token === undefined || logprob === undefined) return [];
  const describe = (one: TokenLogprob): JsonObject => ({
    token: textOf(tokenizer, one.token),
    logprob: finite(one.logprob),
    // One token may be a part of a character.
    bytes: one.token < tokenizer.vocabSize ? [...tokenizer.tokenBytes(one.token)] : [],
  });
  return [{ ...describe({ token, logprob }), top_logprobs: top.map(describe) }];
}

/** Log-probabilities of tokens, as the endpoint for texts has them: in columns. */
export class LogprobColumns {
  readonly #tokenizer: Tokenizer;
  #tokens: string[] = [];
  #logprobs: number[] = [];
  #tops: Record<string, number>[] = [];
  #offsets: number[] = [];

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  /** @param offset where in the text the token is, in UTF-16 units */
  add({ token, logprob, top }: Piece, offset: number): void {
    if (token === undefined || logprob === undefined) return;
    this.#tokens.push(textOf(this.#tokenizer, token));
    this.#logprobs.push(finite(logprob));
    this.#tops.push(Object.fromEntries(
      top.map((one) => [textOf(this.#tokenizer, one.token), finite(one.logprob)]),
    ));
    this.#offsets.push(offset);
  }

  get isEmpty(): boolean {
    return this.#tokens.length === 0;
  }

  /** What was added since the last time. */
  take(): JsonObject {
    const columns = {
      tokens: this.#tokens,
      token_logprobs: this.#logprobs,
      top_logprobs: this.#tops,
      text_offset: this.#offsets,
    };
    [this.#tokens, this.#logprobs, this.#tops, this.#offsets] = [[], [], [], []];
    return columns;
  }
}

function finite(logprob: number): number {
  return Math.max(LEAST, logprob);
}
