import type { TokenLogprob } from "../backend.ts";
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
  /** Called after each chunk of the prompt. */
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
  let finishReason: FinishReason = "length";
  let tail = "";

  try {
    await prefill(runner, table, request);
    let stopped = false;
    while (!stopped && tokens.length < nPrompt + request.maxTokens) {
      const start = tokens.length === nPrompt ? lastChunkStart(runner, nPrompt) : tokens.length - 1;
      const output = await nextToken(runner, table, tokens, start, request);
      clock.tick();
      if (request.endTokens.has(output.token)) {
        finishReason = "stop";
        break;
      }
      tokens.push(output.token);
      const pushed = stops.push(decoder.push(output.token));
      stopped = pushed.stopped;
      if (stopped) finishReason = "stop";
      yield {
        text: pushed.text,
        token: output.token,
        logprob: output.logprob,
        top: output.top,
        end: undefined,
      };
    }
    // A stop string that ended the text leaves nothing to flush; the decoder's rest comes after it.
    if (!stopped) tail = finish(decoder, stops);
  } catch (error) {
    if (!(error instanceof ForgeError && error.code === "cancelled")) throw error;
    finishReason = "cancelled";
    tail = finish(decoder, stops);
  }

  yield {
    text: tail,
    token: undefined,
    logprob: undefined,
    top: [],
    end: {
      finishReason,
      promptTokens: nPrompt,
      completionTokens: tokens.length - nPrompt,
      seed: request.sampling.seed,
      timings: clock.timings(nPrompt),
    },
  };
}

/** The text that decoder and stop matcher still hold at the end. */
function finish(decoder: StreamDecoder, stops: StopMatcher): string {
  const { text, stopped } = stops.push(decoder.flush());
  return stopped ? text : text + stops.flush();
}

/** Computes all of the prompt but its last chunk, which also chooses the first token. */
async function prefill(runner: Runner, table: PageTable, request: GenerationRequest) {
  const { prompt, signal, onPrefill } = request;
  const { maxTokens } = runner.limits;
  for (let start = 0; start < lastChunkStart(runner, prompt.length); start += maxTokens) {
    const chunk = Array.prototype.slice.call(prompt, start, start + maxTokens) as number[];
    await runner.run(table, chunk, start, [], signal);
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
) {
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
  readonly #start = performance.now();
  #first: number | undefined;
  #last = 0;
  #ticks = 0;

  tick(): void {
    this.#last = performance.now();
    this.#first ??= this.#last;
    this.#ticks++;
  }

  timings(nPrompt: number): Timings {
    const first = this.#first ?? performance.now();
    const prefill = first - this.#start;
    const decode = this.#first === undefined ? 0 : this.#last - first;
    return {
      prefill_ms: prefill,
      decode_ms: decode,
      prefill_tokens_per_second: rate(nPrompt, prefill),
      decode_tokens_per_second: rate(this.#ticks - 1, decode),
    };
  }
}

function rate(count: number, milliseconds: number): number {
  return count > 0 && milliseconds > 0 ? count / milliseconds * 1000 : 0;
}
