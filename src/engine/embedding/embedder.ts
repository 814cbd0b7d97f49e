import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { Adapters } from "../request/adapters.ts";
import { anySignal } from "../request/options.ts";
import { checkFits, checkTokens, encodeTextInSlices, Slices } from "../request/prompt.ts";
import type { Runner } from "../runner.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { SequenceAdapters } from "../token_list.ts";
import type { CausalLm, DenseLayer } from "../../models/causal_lm.ts";
import { readDenseModule } from "./dense.ts";
import { EmbeddingTask } from "./embedding_task.ts";
import { type EmbedOptions, finishVector, resolveEmbedding } from "./options.ts";
import { type EmbeddingRecipe, embeddingRecipe, type Pooling } from "./pooling.ts";

/** Text to embed, or token ids used as they are. */
export type EmbeddingInput = string | Int32Array;

/** Vector of a text. */
export interface Embedding {
  /** Elements of the vector. */
  readonly vector: Float32Array;
  /** Number of tokens of the text. */
  readonly tokens: number;
}

/** Part of a runner that embedding uses. */
type EmbeddingShape = Pick<Runner, "vocabSize" | "hiddenSize" | "contextLength" | "limits"> & {
  /** Number of replicas. @default 1 */
  readonly replicas?: number;
};

/** Part of a loaded model that embedding uses. */
type EmbeddingModel = Pick<CausalLm, "isBidirectional" | "classifier" | "projection">;

/** Embeds texts with one model. */
export class Embedder {
  readonly #scheduler: Pick<Scheduler, "submit">;
  readonly #tokenizer: Tokenizer;
  readonly #checkpoint: Checkpoint;
  readonly #shape: EmbeddingShape;
  readonly #model: EmbeddingModel;
  readonly #adapters: Adapters | undefined;
  #recipe: EmbeddingRecipe | undefined;
  #layers: readonly DenseLayer[] | undefined;
  readonly #slices = new Slices();

  constructor(
    scheduler: Pick<Scheduler, "submit">,
    tokenizer: Tokenizer,
    checkpoint: Checkpoint,
    shape: EmbeddingShape,
    model: EmbeddingModel = {},
    adapters?: Adapters,
  ) {
    this.#scheduler = scheduler;
    this.#tokenizer = tokenizer;
    this.#checkpoint = checkpoint;
    this.#shape = shape;
    this.#model = model;
    this.#adapters = adapters;
  }

  /** Size of a vector. */
  get size(): number {
    return this.#denseLayers().at(-1)?.rows ?? this.#shape.hiddenSize;
  }

  #readRecipe(): EmbeddingRecipe {
    return this.#recipe ??= embeddingRecipe(this.#checkpoint);
  }

  #denseLayers(): readonly DenseLayer[] {
    const { path } = this.#checkpoint;
    return this.#layers ??= this.#model.projection ??
      this.#readRecipe().dense?.map((module) => readDenseModule(path, module)) ?? [];
  }

  /** Embeds texts: see `Model.embed`. */
  async embed(inputs: readonly EmbeddingInput[], options: EmbedOptions): Promise<Embedding[]> {
    const { path } = this.#checkpoint;
    if (this.#model.classifier !== undefined && options.pooling === undefined) {
      throw new ForgeError(
        "unsupported",
        `${
          quote(path)
        } scores texts with its classification head (forge rerank); to embed with the ` +
          "hidden states before it, choose the pooling",
      );
    }
    const how = resolveEmbedding(options, {
      recipe: () => this.#readRecipe(),
      layers: () => this.#denseLayers(),
      pooling: this.#model.isBidirectional ? "mean" : "last",
      hiddenSize: this.#shape.hiddenSize,
    });
    const texts: Int32Array[] = [];
    for (const [index, input] of inputs.entries()) {
      const name = inputs.length === 1 ? "the text" : `text ${index + 1}`;
      const slices = this.#encode(input, name, options.truncate ?? false);
      texts.push(await this.#slices.run(slices, options.signal));
    }
    const adapters = this.#adapters?.resolve(options.lora);
    const pooled = await this.pool(texts, how.pooling, options.signal, adapters);
    return pooled.map((state, i) => {
      return { vector: finishVector(state, how), tokens: texts[i]!.length };
    });
  }

  /**
   * Returns the pooled hidden states of texts.
   *
   * Keeps as many texts in progress as fill two steps of each replica, the one that runs and the
   * next. Other requests wait for those texts, not for all.
   */
  async pool(
    texts: readonly Int32Array[],
    pooling: Pooling,
    asked: AbortSignal | undefined,
    adapters: SequenceAdapters | undefined,
  ): Promise<Float32Array[]> {
    const { isBidirectional } = this.#model;
    const { limits: { maxTokens, maxSequences }, replicas = 1 } = this.#shape;
    const steps = 2 * replicas;
    const controller = new AbortController();
    const signal = anySignal(controller.signal, asked);
    const states: Float32Array[] = [];
    const underway = new Set<Promise<void>>();
    let tokens = 0;
    const failures: unknown[] = [];
    const embed = async (text: Int32Array, index: number) => {
      const task = new EmbeddingTask(text, pooling, isBidirectional, adapters);
      states[index] = await task.run(this.#scheduler, signal);
    };
    const start = (text: Int32Array, index: number) => {
      tokens += text.length;
      const work = embed(text, index).catch((error) => {
        failures.push(error);
        // If one text fails, the others are cancelled.
        controller.abort();
      }).finally(() => {
        tokens -= text.length;
        underway.delete(work);
      });
      underway.add(work);
    };
    for (const [index, text] of texts.entries()) {
      while (tokens >= steps * maxTokens || underway.size >= steps * maxSequences) {
        await Promise.race(underway);
      }
      if (failures.length > 0) break;
      start(text, index);
    }
    await Promise.all(underway);
    if (failures.length > 0) throw failures[0];
    return states;
  }

  *#encode(
    input: EmbeddingInput,
    name: string,
    mayCut: boolean,
  ): Generator<void, Int32Array> {
    const { vocabSize, contextLength } = this.#shape;
    const whole = typeof input !== "string"
      ? input
      : mayCut
      ? this.#tokenizer.encode(input, { maxTokens: contextLength + 1, truncate: true })
      : yield* encodeTextInSlices(input, this.#tokenizer, contextLength, name);
    const tokens = mayCut ? this.#cut(whole, typeof input === "string") : whole;
    if (tokens.length === 0) throw new ForgeError("bad_input", `${name} has no tokens`);
    checkFits(tokens.length, contextLength, name);
    checkTokens(tokens, vocabSize, name);
    return tokens;
  }

  #cut(tokens: Int32Array, isText: boolean): Int32Array {
    const { contextLength } = this.#shape;
    if (tokens.length <= contextLength) return tokens;
    const cut = tokens.slice(0, contextLength);
    if (!isText) return cut;
    // The tokens that the tokenizer adds at the end of a text.
    const end = this.#tokenizer.encode("").subarray(this.#tokenizer.addBos ? 1 : 0);
    if (end.length < contextLength) cut.set(end, contextLength - end.length);
    return cut;
  }
}
