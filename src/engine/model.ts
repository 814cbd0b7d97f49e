import type { Backend, DeviceInfo, DeviceMemory, Meter, StreamedBytes } from "../backend.ts";
import type { ConstraintCost } from "../constrain/compiled_constraint.ts";
import { ForgeError } from "../errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import type { CausalLm } from "../models/causal_lm.ts";
import { loadModel } from "../models/registry.ts";
import type { WeightLoader } from "../models/weights/weight_loader.ts";
import { ChatTemplate } from "../tokenizer/chat_template.ts";
import { finish, type Tokenizer } from "../tokenizer/tokenizer.ts";
import {
  type BatchInput,
  type BatchOptions,
  type BatchResult,
  runBatch,
} from "./generation/batch.ts";
import { type Candidate, lastLogits, scoreTokens, topCandidates } from "./generation/score.ts";
import { collect, collectMany, type Completion } from "./generation/completion.ts";
import { Embedder, type Embedding, type EmbeddingInput } from "./embedding/embedder.ts";
import type { EmbedOptions } from "./embedding/options.ts";
import { Reranker, type RerankOptions, type RerankScore } from "./embedding/reranker.ts";
import { endTokens, openTokenizer } from "./load/tokenizer.ts";
import { LazyConstraints } from "./request/constraint.ts";
import { DEFAULT_CONTEXT, MAX_COMPLETIONS, MAX_COUNT } from "./limits.ts";
import { asLoaded, type LoadOptions, resolveContext, resolveParallel } from "./load/options.ts";
import type { MemoryUse } from "./cache/memory.ts";
import { openRunner } from "./load/open_runner.ts";
import {
  anySignal,
  checkArgument,
  checkOptions,
  checkWholeNumber,
  GENERATE_OPTIONS,
  type GenerateOptions,
  STRING,
  STRINGS,
  TEXTS,
  TOKENS,
} from "./request/options.ts";
import {
  checkFits,
  checkTokens,
  type EncodedPrompt,
  encodePromptInSlices,
  type Prompt,
  type PromptOptions,
  Slices,
} from "./request/prompt.ts";
import { loadPrompt, savePrompt } from "./cache/prompt_cache.ts";
import { PrefixStore } from "./cache/prefix_store.ts";
import { promptCacheKey } from "./cache/prompt_cache_key.ts";
import { Profile } from "./profile.ts";
import type { PromptCacheKey } from "./cache/prompt_cache_file.ts";
import { PAGE_TOKENS, type Runner } from "./runner.ts";
import { TokenList } from "./token_list.ts";
import {
  modelDefaults,
  type ResolvedSampling,
  resolveSampling,
  type SamplingOptions,
} from "./request/sampling.ts";
import { Scheduler } from "./schedule/scheduler.ts";
import { Generation } from "./generation/generation.ts";
import {
  checkHead,
  type GenerationRequest,
  type Generations,
  type Piece,
  resolveRequest,
} from "./generation/request.ts";
import {
  draftsTokens,
  type OpenSpeculator,
  openSpeculator,
} from "./speculation/open_speculator.ts";

/** A device that may measure its bandwidth. */
type MeasuredBackend = Backend & Partial<Meter>;

/**
 * Model that is ready to generate, opened by {@linkcode load}. Close it, or declare it with `await
 * using`. Its methods may run at the same time: they share steps, and no result depends on the
 * others.
 */
export class Model implements AsyncDisposable {
  /** Tokenizer of the model. */
  readonly tokenizer: Tokenizer;
  /** Files that the model was loaded from. */
  readonly checkpoint: Checkpoint;
  /** Tensors of the files that the model does not use. */
  readonly unusedTensors: readonly string[];
  /** Most tokens of a prompt and its answer together. */
  readonly contextLength: number;
  /** Facts about the device. */
  readonly device: DeviceInfo;
  readonly #backend: MeasuredBackend;
  readonly #runner: Runner;
  readonly #scheduler: Scheduler;
  readonly #weights: WeightLoader;
  readonly #draftMemory: MemoryUse;
  readonly #endTokens: ReadonlySet<number>;
  readonly #constraints: LazyConstraints;
  readonly #embedder: Embedder;
  readonly #reranker: Reranker;
  readonly #slices = new Slices();
  #store: PrefixStore | undefined;
  #template: ChatTemplate | undefined;
  #cacheKey: PromptCacheKey | undefined;

  private constructor(
    checkpoint: Checkpoint,
    backend: MeasuredBackend,
    tokenizer: Tokenizer,
    runner: Runner,
    lm: CausalLm,
    weights: WeightLoader,
    speculation: OpenSpeculator,
  ) {
    this.checkpoint = checkpoint;
    this.tokenizer = tokenizer;
    this.unusedTensors = weights.unusedTensors();
    this.contextLength = runner.contextLength;
    this.device = backend.info;
    this.#backend = backend;
    this.#runner = runner;
    this.#scheduler = new Scheduler(runner, speculation.speculator);
    this.#draftMemory = speculation.memory;
    this.#weights = weights;
    this.#endTokens = endTokens(checkpoint, tokenizer);
    this.#constraints = new LazyConstraints(tokenizer, runner.vocabSize, this.#endTokens);
    this.#embedder = new Embedder(this.#scheduler, tokenizer, checkpoint, runner, lm);
    const parts = {
      scheduler: this.#scheduler,
      embedder: this.#embedder,
      tokenizer,
      lm,
      checkpoint,
    };
    this.#reranker = new Reranker({ ...parts, contextLength: runner.contextLength });
  }

  /** Loads a checkpoint onto an open device; {@linkcode load} does both. */
  static async open(
    stored: Checkpoint,
    backend: MeasuredBackend,
    options: LoadOptions = {},
  ): Promise<Model> {
    const checkpoint = asLoaded(stored, options);
    const asked = options.contextLength;
    const { lm, weights } = loadModel(backend, checkpoint, asked ?? DEFAULT_CONTEXT);
    const contextLength = resolveContext(asked, lm.contextLength);
    const maxSequences = resolveParallel(options.parallel);
    const kvType = options.kvType ?? (backend.kind === "reference" ? "F32" : "F16");
    const savesStates = draftsTokens(options, backend);
    const shape = { contextLength, maxSequences, kvType, savesStates };
    const weightBytes = weights.mappedBytes;
    const sharers = checkWholeNumber("modelsInMemory", options.modelsInMemory ?? 1, 1, MAX_COUNT);
    // The tokenizer is read while the device prepares the step.
    const opening = openRunner(
      backend,
      lm,
      shape,
      weightBytes,
      options.kvMemory,
      sharers,
    );
    const reading = Promise.try(openTokenizer, checkpoint);
    const [tokenizer, runner] = await Promise.all([reading, opening]);
    const target = { ...shape, backend, lm, weightBytes, tokenizer };
    const speculation = await openSpeculator(options, target);
    const model = new Model(checkpoint, backend, tokenizer, runner, lm, weights, speculation);
    if (options.kvDir !== undefined) model.#openStore(options.kvDir, options);
    return model;
  }

  #openStore(folder: string, { kvDirSize, onWarning = console.error }: LoadOptions): void {
    if (kvDirSize !== undefined) {
      checkWholeNumber("kvDirSize", kvDirSize, 1, Number.MAX_SAFE_INTEGER);
    }
    const stored = {
      key: this.#promptCacheKey(),
      runner: this.#runner,
      scheduler: this.#scheduler,
    };
    this.#store = new PrefixStore(folder, stored, { maxBytes: kvDirSize, onWarning });
  }

  /** Cost of constraints so far; `undefined` before the first. */
  get constraintCost(): ConstraintCost | undefined {
    return this.#constraints.cost;
  }

  /** True if the model has a chat template, through which prompts are rendered. */
  get hasChatTemplate(): boolean {
    return this.checkpoint.chatTemplate !== undefined;
  }

  /** True if the model has an output matrix; a model without one only embeds texts. */
  get generates(): boolean {
    return this.#runner.hasHead;
  }

  /** Size of the vectors of {@linkcode embed}. */
  get embeddingSize(): number {
    return this.#embedder.size;
  }

  /**
   * Measures all later steps by operation, which slows them on a GPU: one kernel runs at a time.
   *
   * @throws {ForgeError} `unsupported` on a device that cannot measure its operations
   */
  startProfile(): Profile {
    const profile = new Profile();
    this.#runner.setProfile(profile);
    return profile;
  }

  /** Measures the most bytes per second that the device reads from its memory; 0 if unknown. */
  readBandwidth(): number {
    return this.#backend.readBandwidth?.() ?? 0;
  }

  /** Most sequences computed at a time. */
  get parallel(): number {
    return this.#runner.limits.maxSequences;
  }

  /** Positions of the KV cache, and those that are free. */
  get kvTokens(): { readonly total: number; readonly free: number } {
    const { nPages, freePages } = this.#runner.pages;
    return { total: nPages * PAGE_TOKENS, free: freePages * PAGE_TOKENS };
  }

  /** Memory of the device as it is now. */
  get deviceMemory(): DeviceMemory {
    return this.#backend.memory();
  }

  /** True if a GPU runs the model. */
  get usesGpu(): boolean {
    return this.#backend.kind === "cuda" || this.#backend.kind === "metal";
  }

  /** Bytes of the keys and values of each token. */
  get kvBytesPerToken(): number {
    return this.#runner.kvBytesPerToken;
  }

  /** Weights that stay in the model's files because they do not fit the memory. */
  get streamedBytes(): StreamedBytes {
    return this.#backend.streamedBytes?.() ?? { all: 0, perToken: 0 };
  }

  /** Memory that the model takes. */
  get memory(): MemoryUse {
    const { weights, kvCache, activations } = this.#draftMemory;
    return {
      weights: weights + this.#weights.mappedBytes,
      kvCache: kvCache + this.#runner.kvBytes,
      states: this.#runner.stateBytes,
      activations: activations + this.#runner.scratchBytes,
    };
  }

  /**
   * Generates from a prompt and yields text as it becomes certain. The last piece says how the
   * generation ended. Nothing runs or is checked before the first piece is read.
   *
   * @example
   * ```ts
   * for await (const { text, end } of model.generate("Once upon a time", { maxTokens: 64 })) {
   *   await Deno.stdout.write(new TextEncoder().encode(text));
   *   if (end !== undefined) console.error(end.finishReason);
   * }
   * ```
   *
   * @throws {ForgeError} `bad_input` for a prompt that is empty, has an unknown token id, or does
   * not fit the context; `usage` for an option out of range; `usage` or `unsupported` for a
   * constraint that cannot be enforced; `bad_model` if the model computes NaN.
   */
  async *generate(prompt: Prompt, options: GenerateOptions = {}): AsyncGenerator<Piece> {
    yield* this.#generate(await this.#request(prompt, options));
  }

  async *#generate(request: GenerationRequest): AsyncGenerator<Piece> {
    const tokens = new TokenList(request.prompt);
    try {
      for await (const piece of new Generation(this.tokenizer, request).run(this.#scheduler)) {
        if (piece.token !== undefined) tokens.push(piece.token);
        yield piece;
      }
    } catch (error) {
      throw this.#explain(error);
    } finally {
      this.#store?.offer(tokens.view(0), request.prompt.length);
    }
  }

  /**
   * Generates a whole answer: {@linkcode generate} as a promise.
   *
   * @example An answer that conforms to a schema
   * ```ts
   * const { text } = await model.complete([{ role: "user", content: "Invent a person." }], {
   *   jsonSchema: { properties: { name: { type: "string" }, age: { type: "integer" } } },
   * });
   * const { name, age } = JSON.parse(text);
   * ```
   */
  async complete(prompt: Prompt, options: GenerateOptions = {}): Promise<Completion> {
    checkOptions("a generation", options, GENERATE_OPTIONS);
    return await collect(this.generate(prompt, options), this.tokenizer, options.logprobs);
  }

  /**
   * Starts several generations of one prompt, which is computed once; they differ as those of
   * {@linkcode completeMany}. Everything is checked before this returns, and nothing runs before
   * the pieces of a generation are read.
   *
   * @param n number of generations
   * @throws {ForgeError} as {@linkcode generate}
   */
  async generateMany(
    prompt: Prompt,
    n: number,
    options: GenerateOptions = {},
  ): Promise<Generations> {
    checkWholeNumber("n", n, 1, MAX_COMPLETIONS);
    const request = await this.#request(prompt, options);
    return {
      promptTokens: request.prompt,
      pieces: Array.from({ length: n }, (_, stream) => this.#generate({ ...request, stream })),
    };
  }

  /**
   * Generates several completions of one prompt, which is computed once. They share the seed but
   * not the random numbers, whose stream is the index of the completion.
   *
   * @param n number of generations
   * @throws {ForgeError} as {@linkcode generate}
   */
  async completeMany(
    prompt: Prompt,
    n: number,
    options: GenerateOptions = {},
  ): Promise<Completion[]> {
    checkOptions("a generation", options, GENERATE_OPTIONS);
    const controller = new AbortController();
    const signal = anySignal(controller.signal, options.signal);
    const { pieces } = await this.generateMany(prompt, n, { ...options, signal });
    return await collectMany(pieces, this.tokenizer, options.logprobs, controller);
  }

  /**
   * Answers many requests, several at a time, and yields each result as it arrives.
   *
   * @example
   * ```ts
   * const requests = prompts.map((prompt, id) => ({ id, prompt, maxTokens: 64 }));
   * for await (const { id, completion, error } of model.batch(requests)) {
   *   console.log(id, error === undefined ? completion.text : error.message);
   * }
   * ```
   *
   * The input is read as requests are answered, so that it may be endless. A request that cannot be
   * answered becomes a result with an error; the others continue.
   *
   * @throws {ForgeError} `cancelled` if the signal is raised; `device` if the device fails. Errors
   * of the input are thrown, too.
   */
  batch(requests: BatchInput, options: BatchOptions = {}): AsyncGenerator<BatchResult> {
    // Large enough that steps stay full while results wait to be taken.
    const window = 2 * this.#runner.limits.maxSequences;
    return runBatch(
      requests,
      options,
      window,
      ({ id: _, prompt, n = 1, ...rest }, signal) =>
        this.completeMany(prompt, n, { ...rest, signal }),
    );
  }

  /**
   * Saves the keys and values of a prompt for {@linkcode loadPrompt} in another process. What the
   * cache lacks is computed first.
   *
   * @throws {ForgeError} as {@linkcode generate}; `not_found` if the file cannot be written
   */
  async savePrompt(
    path: string,
    prompt: Prompt,
    options: PromptOptions & { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<void> {
    checkArgument("the path", path, STRING);
    const { tokens } = await this.encodePromptInSlices(prompt, options);
    checkFits(tokens.length, this.contextLength);
    const key = this.#promptCacheKey();
    await savePrompt(path, tokens, key, this.#runner, this.#scheduler, options.signal);
  }

  /**
   * Loads a prompt that {@linkcode savePrompt} saved into the cache. Prompts that begin with the
   * same tokens reuse it until its pages are evicted.
   *
   * @returns the prompt's tokens
   * @throws {ForgeError} `not_found` for a missing file; `bad_input` for one that is damaged or was
   * made with another model, KV type, device or page size.
   */
  async loadPrompt(path: string): Promise<Int32Array> {
    checkArgument("the path", path, STRING);
    return await loadPrompt(path, this.#promptCacheKey(), this.#runner, this.#scheduler);
  }

  /**
   * Computes the logits after the last token of a prompt, `[vocab_size]`. A text is encoded raw.
   *
   * @throws {ForgeError} as {@linkcode generate}
   */
  async logits(prompt: string | Int32Array): Promise<Float32Array> {
    checkHead(this.checkpoint, this.#runner);
    const { tokens } = await this.encodePromptInSlices(prompt, { raw: true });
    checkFits(tokens.length, this.contextLength);
    return await this.#explained(lastLogits(this.#scheduler, tokens));
  }

  /**
   * Computes the `k` most probable tokens after a prompt with their probabilities, best first. A
   * text is encoded raw.
   *
   * @throws {ForgeError} `usage` for a `k` out of range; as {@linkcode generate}
   */
  async topKCandidates(prompt: string | Int32Array, k: number): Promise<Candidate[]> {
    return topCandidates(await this.logits(prompt), k);
  }

  /**
   * Computes the natural log-probability of each token but the first, given those before it.
   *
   * @throws {ForgeError} as {@linkcode generate}
   */
  async score(tokens: Int32Array, signal?: AbortSignal): Promise<Float32Array> {
    checkHead(this.checkpoint, this.#runner);
    checkArgument("tokens", tokens, TOKENS);
    checkTokens(tokens, this.#runner.vocabSize);
    checkFits(tokens.length, this.contextLength);
    return await this.#explained(scoreTokens(this.#scheduler, tokens, signal));
  }

  /**
   * Computes the vectors of texts, in order: the pooled hidden states after the model's last norm.
   * A vector does not depend on the other texts. Texts are encoded with the tokenizer's special
   * tokens and nothing else: an instruction before a query is part of the text.
   *
   * @throws {ForgeError} `bad_input` for a text without tokens, an unknown token id, or more tokens
   * than the context holds; `usage` for an invalid option; `unsupported` for embedding settings
   * that forge does not compute; `cancelled` if the signal is raised.
   */
  async embed(
    texts: readonly EmbeddingInput[],
    options: EmbedOptions = {},
  ): Promise<Embedding[]> {
    checkArgument("texts", texts, TEXTS);
    return await this.#explained(this.#embedder.embed(texts, options));
  }

  /**
   * Scores how well documents answer a query, in the order of the documents. A score does not depend
   * on the other documents.
   *
   * @example
   * ```ts
   * const scores = await model.rerank("How do plants eat?", ["Photosynthesis…", "Pizza dough…"]);
   * scores.sort((a, b) => b.score - a.score);
   * ```
   *
   * @throws {ForgeError} `unsupported` for a model that is no reranker; `bad_input` for a pair that
   * exceeds the context; `usage` for an invalid option; `cancelled` if the signal is raised.
   */
  async rerank(
    query: string,
    documents: readonly string[],
    options: RerankOptions = {},
  ): Promise<RerankScore[]> {
    checkArgument("the query", query, STRING);
    checkArgument("documents", documents, STRINGS);
    return await this.#explained(this.#reranker.rerank(query, documents, options));
  }

  /**
   * Resolves sampling options: fills in the model's defaults, and a random seed if none is given.
   *
   * @throws {ForgeError} `usage` for a value out of range
   */
  resolveSampling(options: SamplingOptions): ResolvedSampling {
    return resolveSampling(options, modelDefaults(this.checkpoint));
  }

  /** Encodes a prompt. @throws {ForgeError} `bad_input` */
  encodePrompt(prompt: Prompt, options: PromptOptions = {}): EncodedPrompt {
    return finish(this.#encode(prompt, options));
  }

  /**
   * Encodes a prompt like {@linkcode encodePrompt}. Other work of the program goes on between slices
   * of a long text.
   *
   * @throws {ForgeError} `bad_input`; `cancelled` if the signal is raised
   */
  encodePromptInSlices(
    prompt: Prompt,
    options: PromptOptions & { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<EncodedPrompt> {
    return this.#slices.run(this.#encode(prompt, options), options.signal);
  }

  *#encode(prompt: Prompt, options: PromptOptions): Generator<void, EncodedPrompt> {
    // Options of a generation are accepted, so that its prompt can be counted before it runs.
    checkOptions("a prompt", options, GENERATE_OPTIONS);
    const { chatTemplate } = this.checkpoint;
    const isRaw = prompt instanceof Int32Array || (typeof prompt === "string" && options.raw);
    if (!isRaw && chatTemplate !== undefined) this.#template ??= new ChatTemplate(chatTemplate);
    const encoded = yield* encodePromptInSlices(
      prompt,
      options,
      this.tokenizer,
      this.#template,
      this.contextLength,
    );
    checkTokens(encoded.tokens, this.#runner.vocabSize);
    return encoded;
  }

  /** Releases the device and everything on it. */
  close(): void {
    this.#scheduler.close(new ForgeError("device", "the model is closed"));
    this.#constraints.dispose();
    this.#backend.close();
  }

  /** Closes the model after the step in progress has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#store?.flush();
    this.close();
    await this.#scheduler.idle();
  }

  async #request(prompt: Prompt, options: GenerateOptions): Promise<GenerationRequest> {
    checkOptions("a generation", options, GENERATE_OPTIONS);
    checkHead(this.checkpoint, this.#runner);
    const sampling = this.resolveSampling(options);
    const encoded = await this.encodePromptInSlices(prompt, options);
    const request = resolveRequest(encoded, sampling, options, this.#runner, this.#endTokens);
    const constraint = await this.#constraints.compile(options, encoded.startsText);
    await this.#store?.fetch(encoded.tokens);
    return { ...request, constraint };
  }

  #promptCacheKey(): PromptCacheKey {
    const { kind, info } = this.#backend;
    return this.#cacheKey ??= promptCacheKey(
      this.checkpoint,
      this.#runner,
      `${kind}:${info.kernels}`,
    );
  }

  /** Awaits a result; an error names the weight to blame. */
  async #explained<T>(result: Promise<T>): Promise<T> {
    try {
      return await result;
    } catch (error) {
      throw this.#explain(error);
    }
  }

  /** Names the weight to blame if the model computed NaN. */
  #explain(error: unknown): unknown {
    if (!(error instanceof ForgeError && error.code === "bad_model")) return error;
    const culprit = this.#weights.findNonFinite();
    return culprit === undefined ? error : new ForgeError("bad_model", culprit, { cause: error });
  }
}
