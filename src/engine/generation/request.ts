import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import type { GenerationRequest } from "./generate.ts";
import { checkWholeNumber, type GenerateOptions } from "../request/options.ts";
import type { EncodedPrompt } from "../request/prompt.ts";
import { MAX_LOGPROBS } from "../limits.ts";
import type { Runner } from "../runner.ts";
import { type ResolvedSampling, resolveLogitBias } from "../request/sampling.ts";

/**
 * Settles every option of a generation.
 *
 * @throws {ForgeError} `usage` for an option out of range; `bad_input` for a prompt that leaves no room
 * for an answer
 */
export function settleRequest(
  { tokens, startsText }: EncodedPrompt,
  sampling: ResolvedSampling,
  options: GenerateOptions,
  { contextLength, limits, vocabSize }: Pick<Runner, "contextLength" | "limits" | "vocabSize">,
  endTokens: ReadonlySet<number>,
): GenerationRequest {
  const { stop = [], logprobs } = options;
  return {
    prompt: tokens,
    startsText,
    shownTokens: new Set(options.shownTokens),
    sampling,
    logitBias: resolveLogitBias(options.logitBias, vocabSize),
    stream: 0,
    maxTokens: maxTokens(tokens.length, options.maxTokens, contextLength),
    stop: typeof stop === "string" ? [stop] : stop,
    endTokens,
    logprobs: logprobs === undefined
      ? undefined
      : Math.min(checkWholeNumber("logprobs", logprobs, 0, MAX_LOGPROBS), limits.maxTop),
    constraint: options.constraint,
    vocabSize,
    signal: options.signal,
    onPrefill: options.onPrefill,
  };
}

function maxTokens(nPrompt: number, asked: number | undefined, contextLength: number): number {
  const room = contextLength - nPrompt;
  if (room < 1) {
    throw new ForgeError(
      "bad_input",
      `the prompt has ${nPrompt} tokens; the context of ${contextLength} has room for ` +
        `${contextLength - 1} and an answer`,
    );
  }
  if (asked === undefined) return room;
  return Math.min(room, checkWholeNumber("maxTokens", asked, 0, Number.MAX_SAFE_INTEGER));
}

/** @throws {ForgeError} `unsupported` for a model without an output matrix, whose logits mean nothing */
export function checkHead({ path }: Checkpoint, { hasHead }: Pick<Runner, "hasHead">): void {
  if (hasHead) return;
  throw new ForgeError(
    "unsupported",
    `${quote(path)} has no output matrix: it embeds texts and does not generate`,
  );
}
