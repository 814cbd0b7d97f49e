import { type DeviceInfo, type DeviceMemory, devicesOf, type StreamedBytes } from "../backend.ts";
import type { ConstraintCost } from "../constrain/compiled_constraint.ts";
import { ForgeError } from "../errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
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
import { type AdapterInfo, Adapters } from "./request/adapters.ts";
import { LazyConstraints } from "./request/constraint.ts";
import { MAX_COMPLETIONS } from "./limits.ts";
import { asLoaded, type LoadOptions } from "./load/options.ts";
import type { MemoryUse } from "./cache/memory.ts";
import {
  checkArgument,
  checkOptions,
  checkWholeNumber,
  SIGNAL,
  STRING,
  STRINGS,
  TEXTS,
  TOKENS,
} from "../formats/arguments.ts";
import {
  ADAPTER_CHOICE,
  anySignal,
  GENERATE_OPTIONS,
  type GenerateOptions,
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
import { Profile } from "./profile.ts";
import { type ModelDevice, nameReplica, openReplicas, type Replica } from "./replica.ts";
import { PAGE_TOKENS, type Runner } from "./runner.ts";
import { type SequenceAdapters, TokenList } from "./token_list.ts";
import {
  modelDefaults,
  type ResolvedSampling,
  resolveSampling,
  type SamplingOptions,
} from "./request/sampling.ts";
import { Dispatcher } from "./schedule/dispatcher.ts";
import { Generation } from "./generation/generation.ts";
import {
  checkHead,
  type GenerationRequest,
  type Generations,
  type Piece,
  resolveRequest,
} from "./generation/request.ts";

/** Check of the options of calls that only choose adapters. */
const CHOICE = { lora: ADAPTER_CHOICE };

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
  readonly #replicas: readonly Replica[];
  /** Runner of the first replica; the others have its shape. */
  readonly #runner: Runner;
  readonly #dispatcher: Dispatcher;
  readonly #endTokens: ReadonlySet<number>;
  readonly #constraints: LazyConstraints;
  readonly #embedder: Embedder;
  readonly #reranker: Reranker;
  readonly #adapters: Adapters;
  readonly #slices = new Slices();
  #template: ChatTemplate | undefined;

  private constructor(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    replicas: readonly Replica[],
    onWarning: (line: string) => void,
    adapters: Adapters,
  ) {
    const { lm, weights, runner, backend } = replicas[0]!;
    this.checkpoint = checkpoint;
    this.tokenizer = tokenizer;
    this.unusedTensors = weights[0]!.unusedTensors(weights);
    this.contextLength = runner.contextLength;
    this.device = backend.info;
    this.#replicas = replicas;
    this.#runner = runner;
    this.#dispatcher = new Dispatcher(replicas.map(({ scheduler }) => scheduler), {
      isWorking: (index) => replicas[index]!.isWorking,
      onLost: (index, { message }) => {
        const name = nameReplica(index, replicas[index]!.backend);
        onWarning(`${name} failed, others continue: ${message}`);
      },
    });
    this.#endTokens = endTokens(checkpoint, tokenizer);
    this.#constraints = new LazyConstraints(tokenizer, runner.vocabSize, this.#endTokens);
    const shape = {
      vocabSize: runner.vocabSize,
      hiddenSize: runner.hiddenSize,
      contextLength: runner.contextLength,
      limits: runner.limits,
      replicas: replicas.length,
    };
    const scheduler = this.#dispatcher;
    this.#adapters = adapters;
    this.#embedder = new Embedder(scheduler, tokenizer, checkpoint, shape, lm, adapters);
    const parts = { scheduler, embedder: this.#embedder, tokenizer, lm, checkpoint, adapters };
    this.#reranker = new Reranker({ ...parts, contextLength: runner.contextLength });
  }

  /**
   * Loads a checkpoint onto open devices, one replica each; {@linkcode load} opens them as well.
   *
   * @throws {ForgeError} as {@linkcode load}
   */
  static async open(
    stored: Checkpoint,
    backends: readonly ModelDevice[],
    options: LoadOptions = {},
  ): Promise<Model> {
    const checkpoint = asLoaded(stored, options);
    let reading: Promise<Tokenizer> | undefined;
    const readTokenizer = () => reading ??= Promise.try(openTokenizer, checkpoint);
    const adapters = new Adapters(options.lora);
    const replicas = await openReplicas(checkpoint, backends, options, readTokenizer, adapters);
    const { onWarning = console.error } = options;
    return new Model(checkpoint, await readTokenizer(), replicas, onWarning, adapters);
  }

  /** The adapters that requests choose from. */
  get adapters(): readonly AdapterInfo[] {
    return this.#adapters.infos;
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
    for (const { runner } of this.#replicas) runner.setProfile(profile);
    return profile;
  }

  /** Measures the most bytes per second that the device reads from its memory; 0 if unknown. */
  readBandwidth(): number {
    return this.#replicas[0]!.backend.readBandwidth?.() ?? 0;
  }

  /** Most sequences computed at a time, by all replicas together. */
  get parallel(): number {
    return this.#replicas.length * this.#runner.limits.maxSequences;
  }

  /** Facts about the device of each replica. */
  get devices(): readonly DeviceInfo[] {
    return this.#replicas.map(({ backend }) => backend.info);
  }

  /** Number of replicas whose devices have not failed. */
  get workingReplicas(): number {
    return this.#replicas.filter(({ scheduler }) => !scheduler.isClosed).length;
  }

  /** Positions of the KV caches of all replicas, and those that are free. */
  get kvTokens(): { readonly total: number; readonly free: number } {
    const pages = this.#working.map(({ runner }) => runner.pages);
    const total = sumOf(pages, ({ nPages }) => nPages);
    return {
      total: total * PAGE_TOKENS,
      free: sumOf(pages, ({ freePages }) => freePages) * PAGE_TOKENS,
    };
  }

  /** Memory of the devices as it is now. */
  get deviceMemory(): DeviceMemory {
    // Replicas on a processor share its memory.
    const devices = this.usesGpu ? this.#working : this.#replicas.slice(0, 1);
    const memories = devices.flatMap(({ backend }) => devicesOf(backend))
      .map((device) => device.memory());
    return {
      total: sumOf(memories, ({ total }) => total),
      free: sumOf(memories, ({ free }) => free),
    };
  }

  /** True if GPUs run the model. */
  get usesGpu(): boolean {
    const { kind } = this.#replicas[0]!.backend;
    return kind === "cuda" || kind === "metal";
  }

  /** Bytes of the keys and values of each token. */
  get kvBytesPerToken(): number {
    return this.#runner.kvBytesPerToken;
  }

  /** Weights of a replica that stay in the model's files because they do not fit the memory. */
  get streamedBytes(): StreamedBytes {
    return this.#replicas[0]!.backend.streamedBytes?.() ?? { all: 0, perToken: 0 };
  }

  /** Memory that all replicas take. */
  get memory(): MemoryUse {
    const uses = this.#replicas.map(({ memory }) => memory);
    return {
      weights: sumOf(uses, ({ weights }) => weights),
      kvCache: sumOf(uses, ({ kvCache }) => kvCache),
      states: sumOf(uses, ({ states }) => states),
      activations: sumOf(uses, ({ activations }) => activations),
    };
  }

  /** Replicas whose devices have not failed. */
  get #working(): readonly Replica[] {
    const working = this.#replicas.filter(({ scheduler }) => !scheduler.isClosed);
    return working.length > 0 ? working : this.#replicas;
  }

  /** Returns the replica that has most of some tokens cached. */
  #holder(tokens: Int32Array, adapters: SequenceAdapters | undefined): Replica {
    if (this.#replicas.length === 1) return this.#replicas[0]!;
    const list = new TokenList(tokens, adapters);
    const held = this.#working.map(({ scheduler }) =>
      scheduler.cache.match(list, tokens.length).length
    );
    return this.#working[held.indexOf(Math.max(...held))]!;
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
      for await (const piece of new Generation(this.tokenizer, request).run(this.#dispatcher)) {
        if (piece.token !== undefined) tokens.push(piece.token);
        yield piece;
      }
    } catch (error) {
      throw this.#explain(error);
    } finally {
      const { prompt, adapters } = request;
      const holder = this.#holder(tokens.view(0), adapters);
      holder.store(adapters)?.offer(tokens.view(0), prompt.length);
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
    const window = 2 * this.parallel;
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
    options: PromptOptions & Pick<GenerateOptions, "signal" | "lora"> = {},
  ): Promise<void> {
    checkArgument("the path", path, STRING);
    const { tokens } = await this.encodePromptInSlices(prompt, options);
    checkFits(tokens.length, this.contextLength);
    const adapters = this.#adapters.resolve(options.lora);
    const holder = this.#holder(tokens, adapters);
    const { runner, scheduler } = holder;
    const key = holder.cacheKey(adapters);
    await savePrompt(path, tokens, key, runner, scheduler, options.signal, adapters);
  }

  /**
   * Loads a prompt that {@linkcode savePrompt} saved into the cache of every replica. Prompts that
   * begin with the same tokens reuse it until its pages are evicted.
   *
   * @returns the prompt's tokens
   * @throws {ForgeError} `not_found` for a missing file; `bad_input` for one that is damaged or was
   * made with another model, KV type, device, page size or other adapters.
   */
  async loadPrompt(
    path: string,
    options: Pick<GenerateOptions, "lora"> = {},
  ): Promise<Int32Array> {
    checkArgument("the path", path, STRING);
    checkOptions("loadPrompt", options, CHOICE);
    const adapters = this.#adapters.resolve(options.lora);
    let tokens: Int32Array = new Int32Array();
    for (const replica of this.#working) {
      const { runner, scheduler } = replica;
      tokens = await loadPrompt(path, replica.cacheKey(adapters), runner, scheduler, adapters);
    }
    return tokens;
  }

  /**
   * Computes the logits after the last token of a prompt, `[vocab_size]`. A text is encoded raw.
   *
   * @throws {ForgeError} as {@linkcode generate}
   */
  async logits(
    prompt: string | Int32Array,
    options: Pick<GenerateOptions, "lora"> = {},
  ): Promise<Float32Array> {
    checkOptions("logits", options, CHOICE);
    checkHead(this.checkpoint, this.#runner);
    const adapters = this.#adapters.resolve(options.lora);
    const { tokens } = await this.encodePromptInSlices(prompt, { raw: true });
    checkFits(tokens.length, this.contextLength);
    return await this.#explained(lastLogits(this.#dispatcher, tokens, undefined, adapters));
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
    if (signal !== undefined) checkArgument("signal", signal, SIGNAL);
    checkTokens(tokens, this.#runner.vocabSize);
    checkFits(tokens.length, this.contextLength);
    const adapters = this.#adapters.resolve(undefined);
    return await this.#explained(scoreTokens(this.#dispatcher, tokens, signal, adapters));
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
   * Scores how well documents answer a query, in the order of the documents. A score does not
   * depend on the other documents.
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
    checkOptions("sampling", options, GENERATE_OPTIONS);
    return resolveSampling(options, modelDefaults(this.checkpoint));
  }

  /** Encodes a prompt. @throws {ForgeError} `bad_input` */
  encodePrompt(prompt: Prompt, options: PromptOptions = {}): EncodedPrompt {
    // Options of a generation are accepted, so that its prompt can be counted before it runs.
    checkOptions("a prompt", options, GENERATE_OPTIONS);
    return finish(this.#encode(prompt, options));
  }

  /**
   * Encodes a prompt like {@linkcode encodePrompt}. Other work of the program goes on between
   * slices of a long text.
   *
   * @throws {ForgeError} `bad_input`; `cancelled` if the signal is raised
   */
  async encodePromptInSlices(
    prompt: Prompt,
    options: PromptOptions & { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<EncodedPrompt> {
    checkOptions("a prompt", options, GENERATE_OPTIONS);
    return await this.#slices.run(this.#encode(prompt, options), options.signal);
  }

  *#encode(prompt: Prompt, options: PromptOptions): Generator<void, EncodedPrompt> {
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

  /** Releases the devices and everything on them. */
  close(): void {
    this.#stop();
    void this.#release();
  }

  /** Closes the model after the step in progress has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const replica of this.#working) await replica.flushStores();
    this.#stop();
    for (const { scheduler } of this.#replicas) await scheduler.idle();
    await this.#release();
  }

  #stop(): void {
    this.#dispatcher.close(new ForgeError("device", "the model is closed"));
    for (const replica of this.#replicas) replica.stop();
  }

  async #release(): Promise<void> {
    this.#constraints.dispose();
    await Promise.all(this.#replicas.map((replica) => replica.close()));
  }

  async #request(prompt: Prompt, options: GenerateOptions): Promise<GenerationRequest> {
    checkOptions("a generation", options, GENERATE_OPTIONS);
    checkHead(this.checkpoint, this.#runner);
    const sampling = this.resolveSampling(options);
    const encoded = await this.encodePromptInSlices(prompt, options);
    const adapters = this.#adapters.resolve(options.lora);
    const request = resolveRequest(
      encoded,
      sampling,
      options,
      this.#runner,
      this.#endTokens,
      adapters,
    );
    const constraint = await this.#constraints.compile(options, encoded.startsText);
    await this.#holder(encoded.tokens, adapters).store(adapters)?.fetch(encoded.tokens);
    return { ...request, constraint };
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
    const culprit = firstOf(this.#replicas[0]!.weights, (weights) => weights.findNonFinite());
    return culprit === undefined ? error : new ForgeError("bad_model", culprit, { cause: error });
  }
}

/** Returns the first result that is not `undefined`. */
function firstOf<T, U>(values: readonly T[], find: (value: T) => U | undefined): U | undefined {
  for (const value of values) {
    const found = find(value);
    if (found !== undefined) return found;
  }
  return undefined;
}

function sumOf<T>(values: readonly T[], number: (value: T) => number): number {
  return values.reduce((sum, value) => sum + number(value), 0);
}
