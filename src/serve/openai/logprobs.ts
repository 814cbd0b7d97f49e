/** Log-probabilities in the two forms of OpenAI's API. */
import type { TokenLogprob } from "../../backend.ts";
import { textOf } from "../../engine/generation/completion.ts";
import type { Piece } from "../../engine/generation/request.ts";
import type { JsonObject } from "../../formats/json.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";

/** Replaces minus infinity, which JSON cannot express. */
const LOWEST = -9999;

/** Returns a piece's token and its likeliest alternatives as chats have them; empty if unknown. */
export function chatLogprobs(tokenizer: Tokenizer, piece: Piece): JsonObject[] {
  const { token, logprob, top } = piece;
  if (token === undefined || logprob === undefined) return [];
  const describe = (one: TokenLogprob): JsonObject => ({
    token: textOf(tokenizer, one.token),
    logprob: finite(one.logprob),
    // A token may be a part of a character.
    bytes: one.token < tokenizer.vocabSize ? [...tokenizer.tokenBytes(one.token)] : [],
  });
  return [{ ...describe({ token, logprob }), top_logprobs: top.map(describe) }];
}

/** Log-probabilities in columns, as the endpoint for texts has them. */
export class LogprobColumns {
  readonly #tokenizer: Tokenizer;
  #tokens: string[] = [];
  #logprobs: number[] = [];
  #tops: Record<string, number>[] = [];
  #offsets: number[] = [];

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  /** @param offset of the token in the text, in UTF-16 units */
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

  /** Returns and removes the columns added since the last call. */
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
  return Math.max(LOWEST, logprob);
}
