import type { StepOutput, TokenLogprob } from "../backend.ts";
import { ForgeError } from "../errors.ts";
import { StreamDecoder } from "../tokenizer/stream_decoder.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import type { PageTable } from "./kv_pages.ts";
import type { Runner } from "./runner.ts";
import { penaltyHistory, type ResolvedSampling, samplingParams } from "./sampling.ts";
import { StopMatcher } from "./stop_matcher.ts";

/** Why a generation ended. */
export type FinishReason = "stop" | "length" | "cancelled";

/** How long the parts of a generation took. */
export interface Timings {
  /** Milliseconds to compute the prompt and choose the first token. */
  readonly prefill_ms: number;
  /** Milliseconds to compute the other tokens. */
  readonly decode_ms: number;
  /** Tokens of the prompt per second. */
  readonly prefill_tokens_per_second: number;
  /** Tokens after the first per second. */
  readonly decode_tokens_per_second: number;
}

/** What is known when a generation has ended. */
export interface GenerationEnd {
  readonly finishReason: FinishReason;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly seed: number;
  readonly timings: Timings;
}

/** One step of a generation. */
export interface Piece {
  /** Text that became certain; often one token's, sometimes none or several tokens'. */
  readonly text: string;
  /** The token just chosen; `undefined` in the last piece. */
  readonly token: number | undefined;
  /** Natural log-probability of the token under the model's own distribution. */
  readonly logprob: number | undefined;
  /** The most probable tokens at this place, as many as were asked for. */
  readonly top: readonly TokenLogprob[];
  /** Set in the last piece alone. */
  readonly end: GenerationEnd | undefined;
}

/** A generation with every option settled. */
export interface GenerationRequest {
  readonly prompt: ArrayLike<number>;
  readonly sampling: ResolvedSampling;
  /** The most tokens to generate. */
  readonly maxTokens: number;
  readonly stop: readonly string[];
  readonly endTokens: ReadonlySet<number>;
  /** How many alternatives to report for each token. */
  readonly nTop: number;
  /** Whether the text begins a message, so that a word's leading space is not part of it. */
  readonly startsText: boolean;
  readonly signal: AbortSignal | undefined;
  /** Called after each chunk of the prompt but the last. */
  readonly onPrefill: ((done: number, total: number) => void) | undefined;
}

/**
 * Generates from a prompt, a token at a time. The pages are freed when the generator ends, however it
 * ends.
 *
 * @throws {ForgeError} as {@linkcode Runner.run}; being stopped is no error but a finish reason.
 */
export async function* generate(
  runner: Runner,
  tokenizer: Tokenizer,
  request: GenerationRequest,
): AsyncGenerator<Piece, void, undefined> {
  using table = runner.newSequence();
  const clock = new Clock();
  const decoder = new StreamDecoder(tokenizer, { stripLeadingSpace: request.startsText });
  const stops = new StopMatcher(request.stop);
  const tokens = Array.from(request.prompt);
  const nPrompt = tokens.length;
  const mostTokens = nPrompt + request.maxTokens;
  let finishReason: FinishReason | undefined;

  try {
    if (request.maxTokens > 0) await prefill(runner, table, tokens, request);
    while (!stops.stopped && tokens.length < mostTokens) {
      const start = tokens.length === nPrompt ? lastChunkStart(runner, nPrompt) : tokens.length - 1;
      const { token, logprob, top } = await nextToken(runner, table, tokens, start, request);
      clock.tick();
      if (request.endTokens.has(token)) {
        finishReason = "stop";
        break;
      }
      tokens.push(token);
      // The model's vocabulary may be padded beyond the tokenizer's.
      const text = token < tokenizer.vocabSize ? decoder.push(token) : "";
      yield { text: stops.push(text), token, logprob, top, end: undefined };
      clock.resume();
    }
  } catch (error) {
    if (!(error instanceof ForgeError && error.code === "cancelled")) throw error;
    finishReason = "cancelled";
  }

  const text = stops.push(decoder.flush()) + stops.flush();
  yield {
    text,
    token: undefined,
    logprob: undefined,
    top: [],
    end: {
      finishReason: finishReason ?? (stops.stopped ? "stop" : "length"),
      promptTokens: nPrompt,
      completionTokens: tokens.length - nPrompt,
      seed: request.sampling.seed,
      timings: clock.timings(nPrompt),
    },
  };
}

/** Computes all of the prompt but its last chunk, which also chooses the first token. */
async function prefill(
  runner: Runner,
  table: PageTable,
  prompt: readonly number[],
  { signal, onPrefill }: GenerationRequest,
): Promise<void> {
  const { maxTokens } = runner.limits;
  for (let start = 0; start < lastChunkStart(runner, prompt.length); start += maxTokens) {
    await runner.run(table, prompt.slice(start, start + maxTokens), start, [], signal);
    onPrefill?.(start + maxTokens, prompt.length);
  }
}

function lastChunkStart(runner: Runner, nPrompt: number): number {
  const { maxTokens } = runner.limits;
  return Math.floor((nPrompt - 1) / maxTokens) * maxTokens;
}

/** Computes the tokens from `start` on and chooses the one that follows them. */
async function nextToken(
  runner: Runner,
  table: PageTable,
  tokens: readonly number[],
  start: number,
  request: GenerationRequest,
): Promise<StepOutput> {
  const { sampling, nTop, signal } = request;
  const [output] = await runner.run(table, tokens.slice(start), start, [{
    row: tokens.length - start - 1,
    sampling: samplingParams(sampling),
    history: penaltyHistory(tokens, sampling),
    stream: 0,
    position: tokens.length,
    nTop,
  }], signal);
  return output!;
}

/** Times a generation: the first tick ends the prefill, each other is a token. */
class Clock {
  #since = performance.now();
  #prefill = 0;
  #decode = 0;
  #ticks = 0;

  tick(): void {
    const elapsed = performance.now() - this.#since;
    if (this.#ticks++ === 0) this.#prefill = elapsed;
    else this.#decode += elapsed;
    this.resume();
  }

  /** Leaves out the time since the last tick, in which others had their turn. */
  resume(): void {
    this.#since = performance.now();
  }

  timings(nPrompt: number): Timings {
    const hasPrefilled = this.#ticks > 0;
    const prefill = hasPrefilled ? this.#prefill : performance.now() - this.#since;
    return {
      prefill_ms: rounded(prefill),
      decode_ms: rounded(this.#decode),
      prefill_tokens_per_second: hasPrefilled ? rate(nPrompt, prefill) : 0,
      decode_tokens_per_second: rate(this.#ticks - 1, this.#decode),
    };
  }
}

function rate(count: number, milliseconds: number): number {
  return count > 0 && milliseconds > 0 ? rounded(count / milliseconds * 1000) : 0;
}

/** To three decimals: the clock knows no more. */
function rounded(value: number): number {
  return Math.round(value * 1000) / 1000;
}
