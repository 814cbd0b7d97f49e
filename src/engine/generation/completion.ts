import type { TokenLogprob } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { GenerationEnd, Piece } from "./request.ts";

/** Token with its log-probability and its text; U+FFFD stands for part of a character. */
export interface TextLogprob extends TokenLogprob {
  /** Text of the token. */
  readonly text: string;
}

/** One token of an answer and the most probable tokens at its position. */
export interface TokenLogprobs extends TextLogprob {
  /** Most probable tokens, best first, as many as were asked for. */
  readonly top: readonly TextLogprob[];
}

/** A finished generation. `forge run --json` prints it with OpenAI's keys. */
export interface Completion extends GenerationEnd {
  /** The answer. */
  readonly text: string;
  /** Tokens of the answer, without an end token. */
  readonly tokenIds: readonly number[];
  /** Each token and its alternatives, if log-probabilities were asked for. */
  readonly logprobs?: readonly TokenLogprobs[];
}

/**
 * Joins the pieces of a generation.
 *
 * @param logprobs number of alternatives asked for; without it, none are reported
 */
export async function collect(
  pieces: AsyncIterable<Piece>,
  tokenizer: Tokenizer,
  logprobs: number | undefined,
): Promise<Completion> {
  let text = "";
  const ids: number[] = [];
  const details: TokenLogprobs[] = [];
  const describe = ({ token, logprob }: TokenLogprob): TextLogprob => ({
    token,
    text: textOf(tokenizer, token),
    logprob,
  });
  for await (const { text: part, token, logprob, top, end } of pieces) {
    text += part;
    if (token !== undefined) ids.push(token);
    if (token !== undefined && logprob !== undefined && logprobs !== undefined) {
      details.push({ ...describe({ token, logprob }), top: top.map(describe) });
    }
    if (end === undefined) continue;
    return {
      text,
      tokenIds: ids,
      ...end,
      ...(logprobs === undefined ? {} : { logprobs: details }),
    };
  }
  throw new ForgeError("device", "the generation ended without a last piece");
}

/**
 * Joins the pieces of several generations.
 *
 * @param controller cancels the other generations if one fails
 */
export async function collectMany(
  generations: readonly AsyncGenerator<Piece>[],
  tokenizer: Tokenizer,
  logprobs: number | undefined,
  controller: AbortController,
): Promise<Completion[]> {
  const completions = generations.map((pieces) => collect(pieces, tokenizer, logprobs));
  try {
    return await Promise.all(completions);
  } catch (error) {
    controller.abort();
    await Promise.allSettled(completions);
    throw error;
  }
}

/** Returns the text of a single token, or the name of a control token. */
export function textOf(tokenizer: Tokenizer, token: number): string {
  // The model's vocabulary may be padded beyond the tokenizer's.
  if (token >= tokenizer.vocabSize) return "";
  if (tokenizer.isSpecial(token)) return tokenizer.tokenText(token);
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(tokenizer.tokenBytes(token));
}
