import type { TokenLogprob } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { GenerationEnd, Piece } from "./request.ts";

/** A token with its log-probability and its text, U+FFFD where that is part of a character. */
export interface TextLogprob extends TokenLogprob {
  /** What it adds to the text. */
  readonly text: string;
}

/** One token of an answer and the most probable ones in its place. */
export interface TokenLogprobs extends TextLogprob {
  /** As many as were asked for, best first. */
  readonly top: readonly TextLogprob[];
}

/** A finished generation. `forge run --json` prints it, by OpenAI's names of its members. */
export interface Completion extends GenerationEnd {
  /** The answer. */
  readonly text: string;
  /** Its tokens, without one that ended it. */
  readonly tokenIds: readonly number[];
  /** Each token and its alternatives, where log-probabilities were asked for. */
  readonly logprobs?: readonly TokenLogprobs[];
}

/**
 * Joins the pieces of a generation.
 *
 * @param logprobs how many alternatives were asked for; without it none are reported
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
  throw new ForgeError("device", "the generation ended without saying why");
}

/**
 * What several generations come to.
 *
 * @param controller ends them, where one fails: the others are not waited for in vain
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

/** A token by itself: its text, or its name if it is a control token. */
export function textOf(tokenizer: Tokenizer, token: number): string {
  // The model's vocabulary may be padded beyond the tokenizer's.
  if (token >= tokenizer.vocabSize) return "";
  if (tokenizer.isSpecial(token)) return tokenizer.tokenText(token);
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(tokenizer.tokenBytes(token));
}
