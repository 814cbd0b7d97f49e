import type {
  OutputRequest,
  SamplingParams,
  StepOutput,
  StepResult,
  TokenLogprob,
} from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { StreamDecoder } from "../../tokenizer/stream_decoder.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { FinishReason, GenerationRequest, Piece } from "./request.ts";
import {
  historySize,
  isSampledOnHost,
  penaltyHistories,
  samplingParams,
} from "../request/sampling.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { Lookahead } from "../schedule/ahead.ts";
import { type Progress, SAMPLING, type Task } from "../schedule/sequence.ts";
import { Draft, type DraftPath } from "../speculation/draft.ts";
import { HostSampler } from "./host_sampler.ts";
import { StopMatcher } from "./stop_matcher.ts";
import { Clock } from "./timings.ts";
import { TokenList } from "../token_list.ts";
import { TokenMask } from "./token_mask.ts";

/** Most pieces that wait for a slow reader before the generation pauses. */
const RUN_AHEAD = 32;

/** One generation: the scheduler computes it, a reader takes its pieces. */
export class Generation implements Task<StepResult>, Lookahead {
  readonly tokens: TokenList;
  readonly kind = SAMPLING;
  readonly scoresAll = false;
  readonly mayReuse = true;
  readonly draft: Draft;
  onChange: () => void = () => {};
  readonly #request: GenerationRequest;
  readonly #tokenizer: Tokenizer;
  readonly #sampling: SamplingParams;
  readonly #hostSampler: HostSampler | undefined;
  readonly #decoder: StreamDecoder;
  readonly #stops: StopMatcher;
  readonly #clock = new Clock();
  /** Tokens of reasoning that may follow; `undefined` if it has ended or has no limit. */
  #reasoningLeft: number | undefined;
  #cached: number | undefined;
  #finishReason: FinishReason | undefined;
  #failure: { readonly error: unknown } | undefined;
  /** Pieces not taken yet. */
  #pieces: Piece[] = [];
  #reader: PromiseWithResolvers<void> | undefined;
  /** Characters and tokens that the reader has taken. */
  #taken = { text: 0, tokens: 0, all: false };

  constructor(tokenizer: Tokenizer, request: GenerationRequest) {
    this.#request = request;
    this.#tokenizer = tokenizer;
    this.tokens = new TokenList(request.prompt, request.adapters);
    this.#sampling = samplingParams(request.sampling, request.logitBias);
    this.#hostSampler = isSampledOnHost(request.sampling)
      ? new HostSampler(request, tokenizer)
      : undefined;
    this.#decoder = this.#newDecoder();
    this.#stops = new StopMatcher(request.stop);
    const { constraint, vocabSize, endTokens } = request;
    this.#reasoningLeft = request.reasoningLimit?.most;
    this.draft = new Draft(constraint && new TokenMask(constraint.start(), vocabSize), endTokens);
    if (request.maxTokens === 0) this.#finish("length");
    else this.#guarded(() => this.#prepareNext());
  }

  /**
   * Runs together with the scheduler's other tasks and yields a token at a time. It goes on while
   * the reader is busy, up to a bound, and ends when the reader leaves.
   *
   * @throws {ForgeError} for failures of the device; a cancelled generation has a finish reason
   * instead
   */
  async *run(scheduler: Pick<Scheduler, "submit">): AsyncGenerator<Piece, void, undefined> {
    const { signal } = this.#request;
    const cancel = () => this.cancel();
    if (signal?.aborted) this.cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      if (!this.isEnded) scheduler.submit(this, this);
      for (;;) {
        const piece = await this.#next();
        yield piece;
        if (piece.end !== undefined) return;
      }
    } finally {
      signal?.removeEventListener("abort", cancel);
      this.cancel();
    }
  }

  get isEnded(): boolean {
    return this.#finishReason !== undefined || this.#failure !== undefined;
  }

  get isPaused(): boolean {
    return this.#pieces.length >= RUN_AHEAD;
  }

  /**
   * The mask of a constraint depends on the previous token, limited reasoning may end after any,
   * and the host samples after each step: one step at a time.
   */
  get stride(): number {
    const isFree = this.draft.mask() === undefined && this.#reasoningLeft === undefined &&
      this.#hostSampler === undefined;
    return isFree ? this.#request.maxTokens - this.#nTokens : 1;
  }

  get endTokens(): ReadonlySet<number> {
    return this.#request.endTokens;
  }

  begin(cached: number): void {
    this.#clock.begin();
    this.#cached ??= Math.min(cached, this.#request.prompt.length);
  }

  outputs(start: number, end: number): readonly OutputRequest[] {
    if (end < this.tokens.length) return [];
    return this.#requests(this.draft, end - start - 1);
  }

  draftOutputs(path: DraftPath): readonly OutputRequest[] {
    return this.#requests(path, -path.from - 1).slice(path.from + 1);
  }

  /** Returns the outputs after the last token, of row `row`, and after each of a draft. */
  #requests(path: DraftPath, row: number): readonly OutputRequest[] {
    const { tokens } = this;
    const { sampling, stream, logprobs = 0 } = this.#request;
    return penaltyHistories(tokens, path.tokens, sampling).map((history, i) => {
      const mask = path.mask(i);
      return {
        row: row + i,
        sampling: mask?.words === undefined
          ? this.#sampling
          : { ...this.#sampling, mask: mask.words },
        history,
        historySize: historySize(sampling),
        stream,
        position: tokens.length + i,
        nTop: logprobs,
        fillMask: mask?.fillLater,
      };
    });
  }

  accept(progress: Progress<StepResult>): void {
    const { computed, results, drafted, began, ended } = progress;
    const { prompt, onPrefill } = this.#request;
    // Before the results: one of them may end the text, and its timings include this step.
    this.#clock.tick(began, ended, drafted > 0 ? 1 : results.length);
    this.#clock.addDraft(drafted, 0);
    this.#takeResults(progress);
    if (computed < prompt.length) onPrefill?.(computed, prompt.length);
  }

  /** Takes the output after the tokens, and those after tokens computed ahead while they match. */
  #takeResults({ results, ahead, drafted, readLogits }: Progress<StepResult>): void {
    const first = this.tokens.length;
    const countDraft = (i: number, token: number | undefined) => {
      if (drafted > 0 && token === ahead[i]) this.#clock.addDraft(0, 1);
    };
    for (const [i, result] of results.entries()) {
      // Forced tokens are appended before their outputs arrive.
      if (this.tokens.length === first + i) {
        if (result instanceof ForgeError) throw result;
        const chosen = this.#hostSampler?.choose(readLogits(i), result, {
          tokens: this.tokens.view(0),
          mask: this.draft.mask()?.words,
        }) ?? result;
        // Before the choice, which may end the text.
        countDraft(i, chosen.token);
        this.#choose(chosen);
      } else {
        countDraft(i, this.tokens.at(first + i));
      }
      if (this.tokens.length === first + i || this.tokens.at(first + i) !== ahead[i]) break;
      if (this.isEnded) break;
    }
    this.draft.clear();
    this.draft.limit = this.isEnded ? 0 : this.#request.maxTokens - this.#nTokens - 1;
  }

  /** Fails the generation. The reader gets the error instead of the pieces not taken yet. */
  fail(error: unknown): void {
    if (this.#failure !== undefined || this.#taken.all) return;
    this.#failure = { error };
    this.#end();
  }

  /** Ends the generation at the reader's position. No effect once the reader has all of it. */
  cancel(): void {
    if (this.#failure !== undefined || this.#taken.all || this.#finishReason === "cancelled") {
      return;
    }
    this.#finishReason = "cancelled";
    this.#end();
    this.#pieces = [this.#lastPiece(this.#heldBack(), this.#taken.tokens)];
    this.onChange();
  }

  async #next(): Promise<Piece> {
    while (this.#pieces.length === 0 && this.#failure === undefined) {
      this.#reader = Promise.withResolvers();
      await this.#reader.promise;
    }
    if (this.#failure !== undefined) throw this.#failure.error;
    const wasPaused = this.isPaused;
    const piece = this.#pieces.shift()!;
    this.#taken.text += piece.text.length;
    if (piece.token !== undefined) this.#taken.tokens++;
    if (piece.end !== undefined) this.#taken.all = true;
    if (wasPaused) this.onChange();
    return piece;
  }

  /** Number of tokens generated. */
  get #nTokens(): number {
    return this.tokens.length - this.#request.prompt.length;
  }

  /** Takes a sampled token, then the tokens that a constraint forces after it. */
  #choose({ token, logprob, top }: StepOutput): void {
    // A mask filled during the step may have forced the token, too.
    const isForced = this.draft.mask()?.only === token && this.#mayForce(token);
    if (this.#request.endTokens.has(token)) {
      return this.#finish(isForced ? "constraint_complete" : "stop");
    }
    this.draft.advance(token);
    if (isForced) this.#add(token, undefined, []);
    else this.#add(token, logprob, top);
    this.#limitReasoning(token);
    this.#prepareNext();
  }

  /** Appends the closing mark once the reasoning has as many tokens as it may. */
  #limitReasoning(token: number): void {
    const limit = this.#request.reasoningLimit;
    if (limit === undefined || this.#reasoningLeft === undefined || this.isEnded) return;
    if (this.#nTokens === 1 && limit.open !== undefined) {
      // The answer begins without reasoning, or with its mark, which does not count.
      if (token !== limit.open) this.#reasoningLeft = undefined;
    } else {
      this.#reasoningLeft = token === limit.close ? undefined : this.#reasoningLeft - 1;
    }
    if (this.#reasoningLeft === undefined || this.#reasoningLeft > 0) return;
    this.#reasoningLeft = undefined;
    this.draft.advance(limit.close);
    this.#add(limit.close, undefined, []);
  }

  /** Updates the mask, and appends tokens while it allows only one. */
  #prepareNext(): void {
    while (!this.isEnded) {
      const mask = this.draft.mask();
      if (mask === undefined) return;
      if (mask.isTerminated) return this.#finish("constraint_complete");
      mask.update();
      const forced = mask.only;
      if (forced === undefined || !this.#mayForce(forced)) return;
      if (this.#request.endTokens.has(forced)) return this.#finish("constraint_complete");
      this.draft.advance(forced);
      this.#add(forced, undefined, []);
    }
  }

  /**
   * True if a forced token may be appended without sampling. With log-probabilities, the model
   * computes every token. A banned token is sampled, which reports the contradiction.
   */
  #mayForce(token: number): boolean {
    const { logprobs, logitBias } = this.#request;
    return logprobs === undefined && logitBias?.get(token) !== -Infinity;
  }

  #add(token: number, logprob: number | undefined, top: readonly TokenLogprob[]): void {
    this.tokens.push(token);
    const text = this.#stops.push(this.#decode(this.#decoder, token));
    this.#push({ text, token, logprob, top, end: undefined });
    if (this.#stops.stopped) this.#finish("stop");
    else if (this.#nTokens === this.#request.maxTokens) this.#finish("length");
  }

  #finish(reason: FinishReason): void {
    const text = this.#stops.push(this.#decoder.flush()) + this.#stops.flush();
    this.#finishReason = this.#stops.stopped ? "stop" : reason;
    this.#end();
    this.#push(this.#lastPiece(text, this.#nTokens));
  }

  #end(): void {
    this.draft[Symbol.dispose]();
    this.#wakeReader();
  }

  #push(piece: Piece): void {
    this.#pieces.push(piece);
    this.#wakeReader();
  }

  #wakeReader(): void {
    this.#reader?.resolve();
    this.#reader = undefined;
  }

  #lastPiece(text: string, completionTokens: number): Piece {
    const { prompt, sampling } = this.#request;
    const cached = this.#cached ?? 0;
    return {
      text,
      token: undefined,
      logprob: undefined,
      top: [],
      end: {
        finishReason: this.#finishReason!,
        promptTokens: prompt.length,
        cachedPromptTokens: cached,
        completionTokens,
        seed: sampling.seed,
        timings: this.#clock.timings(prompt.length - cached, this.#nTokens),
      },
    };
  }

  /** Returns the text of the taken tokens that was held back from the reader. */
  #heldBack(): string {
    const decoder = this.#newDecoder();
    const stops = new StopMatcher(this.#request.stop);
    const start = this.#request.prompt.length;
    let text = "";
    for (const token of this.tokens.view(start, start + this.#taken.tokens)) {
      text += stops.push(this.#decode(decoder, token));
    }
    text += stops.push(decoder.flush()) + stops.flush();
    return text.slice(this.#taken.text);
  }

  #newDecoder(): StreamDecoder {
    const { startsText, shownTokens } = this.#request;
    return new StreamDecoder(this.#tokenizer, { startsText, shownTokens });
  }

  #decode(decoder: StreamDecoder, token: number): string {
    // The model's vocabulary may be padded beyond the tokenizer's.
    return token < this.#tokenizer.vocabSize ? decoder.push(token) : "";
  }

  #guarded(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.fail(error);
    }
  }
}
