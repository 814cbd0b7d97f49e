/** Scores how well documents answer a query: cross-encoders, and Qwen3-Reranker. */
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import type { CausalLm } from "../../models/causal_lm.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import { lastLogits } from "../generation/score.ts";
import type { AdapterChoice, Adapters } from "../request/adapters.ts";
import type { SequenceAdapters } from "../token_list.ts";
import {
  BOOLEAN,
  checkOptions,
  NUMBER,
  type OptionChecks,
  SIGNAL,
  STRING,
} from "../../formats/arguments.ts";
import { ADAPTER_CHOICE } from "../request/options.ts";
import { checkFits, encodeTextInSlices, Slices } from "../request/prompt.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import { applyLayers } from "./dense.ts";
import type { Embedder } from "./embedder.ts";

/** Options of {@linkcode Model.rerank}. Every member has a default. */
export interface RerankOptions {
  /**
   * Task in words, for Qwen3-Reranker.
   * @default "Given a web search query, retrieve relevant passages that answer the query"
   */
  readonly instruction?: string | undefined;
  /** True to cut documents that exceed the context; otherwise they are an error. @default false */
  readonly truncate?: boolean | undefined;
  /** Number of tokens after which a document is cut. @default all that fit the context */
  readonly maxDocumentTokens?: number | undefined;
  /** Adapters to apply. @default those that the model was loaded with */
  readonly lora?: AdapterChoice | undefined;
  /** Stops the work. */
  readonly signal?: AbortSignal | undefined;
}

const RERANK_OPTIONS: OptionChecks<RerankOptions> = {
  instruction: STRING,
  truncate: BOOLEAN,
  maxDocumentTokens: NUMBER,
  lora: ADAPTER_CHOICE,
  signal: SIGNAL,
};

/** Score of a document. */
export interface RerankScore {
  /** Index of the document. */
  readonly index: number;
  /** Probability of relevance, from 0 to 1: the logistic function of the logit. */
  readonly score: number;
  /** Score before the logistic function. */
  readonly logit: number;
  /** Number of tokens of query and document together. */
  readonly tokens: number;
}

/** Prompt of Qwen3-Reranker: before, of and after the texts. */
const QWEN_PROMPT = [
  "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the " +
  'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n' +
  "<|im_start|>user\n",
  "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}",
  "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
] as const;
const INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query";

/** Architectures whose generators answer the prompt with "yes" or "no". */
const ANSWERERS = ["qwen3"];

/** Tokens of a query and a document. */
type EncodePair = (
  document: string,
  name: string,
) => Generator<void, Int32Array>;

/** Computes the logits of pairs, in order. */
type Score = (
  pairs: readonly Int32Array[],
  signal: AbortSignal | undefined,
  adapters: SequenceAdapters | undefined,
) => Promise<number[]>;

/** Parts of a model that reranking uses. */
interface Parts {
  readonly scheduler: Pick<Scheduler, "submit">;
  readonly embedder: Pick<Embedder, "pool">;
  readonly tokenizer: Tokenizer;
  readonly lm: CausalLm;
  readonly checkpoint: Checkpoint;
  readonly contextLength: number;
  readonly adapters?: Adapters | undefined;
}

/** Scores documents with one model. */
export class Reranker {
  readonly #parts: Parts;
  readonly #slices = new Slices();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Scores documents: see `Model.rerank`. */
  async rerank(
    query: string,
    documents: readonly string[],
    options: RerankOptions,
  ): Promise<RerankScore[]> {
    checkOptions("rerank", options, RERANK_OPTIONS);
    const { maxDocumentTokens: most = 1 } = options;
    if (!Number.isInteger(most) || most < 1) {
      throw new ForgeError(
        "usage",
        `maxDocumentTokens is ${most}; valid are whole numbers from 1`,
      );
    }
    const score = this.#scoring();
    const isPrompted = ANSWERERS.includes(this.#parts.checkpoint.modelType);
    const encode = !isPrompted
      ? await this.#pairEncoder(query, options)
      : this.#promptEncoder(query, options);
    const pairs: Int32Array[] = [];
    for (const [index, document] of documents.entries()) {
      const name = `document ${index + 1}`;
      pairs.push(await this.#slices.run(encode(document, name), options.signal));
    }
    const adapters = this.#parts.adapters?.resolve(options.lora);
    const logits = await score(pairs, options.signal, adapters);
    return logits.map((logit, index) => ({
      index,
      score: 1 / (1 + Math.exp(-logit)),
      logit,
      tokens: pairs[index]!.length,
    }));
  }

  /** @throws {ForgeError} `unsupported` for a model that is no reranker */
  #scoring(): Score {
    const { lm, checkpoint, tokenizer, embedder, scheduler } = this.#parts;
    const { classifier } = lm;
    const path = quote(checkpoint.path);
    if (classifier !== undefined) {
      const labels = classifier.layers.at(-1)!.rows;
      const [yes, no] = labels === 1 ? [0] : yesAndNo(checkpoint);
      if (yes === undefined) {
        throw new ForgeError(
          "unsupported",
          `${path} classifies texts into ${labels} labels; a reranker has one`,
        );
      }
      return async (pairs, signal, adapters) => {
        const states = await embedder.pool(pairs, classifier.pooling, signal, adapters);
        return states.map((state) => {
          const scores = applyLayers(classifier.layers, state);
          return scores[yes]! - (no === undefined ? 0 : scores[no]!);
        });
      };
    }
    const [yes, no] = ["yes", "no"].map((word) => tokenizer.idOf(word));
    if (
      !lm.hasHead || !ANSWERERS.includes(checkpoint.modelType) || yes === undefined ||
      no === undefined
    ) {
      throw new ForgeError(
        "unsupported",
        `${path} ${
          lm.hasHead ? "generates text" : "embeds texts"
        } and has no classification head; ` +
          "rerankers are cross-encoders, such as bge-reranker, and Qwen3-Reranker",
      );
    }
    return (pairs, signal, adapters) =>
      Promise.all(pairs.map(async (tokens) => {
        const logits = await lastLogits(scheduler, tokens, signal, adapters);
        return logits[yes]! - logits[no]!;
      }));
  }

  /** Encodes pairs as the tokenizer joins two texts; ids of the second type follow the first's. */
  async #pairEncoder(
    query: string,
    { truncate, maxDocumentTokens, signal }: RerankOptions,
  ): Promise<EncodePair> {
    const { lm, tokenizer, contextLength } = this.#parts;
    const first = await this.#slices.run(this.#text(query, "the query"), signal);
    const added = tokenizer.pair.reduce(
      (n, { ids }) => n + (typeof ids === "string" ? 0 : ids.length),
      0,
    );
    const taken = first.length + added;
    const text = this.#text.bind(this);
    return function* (document, name) {
      const whole = (yield* text(document, name)).subarray(0, maxDocumentTokens);
      if (truncate) checkFits(taken + 1, contextLength, "the query");
      else checkFits(taken + whole.length, contextLength, `the query with ${name}`);
      const second = whole.subarray(0, contextLength - taken);
      return Int32Array.from(tokenizer.pair.flatMap(({ ids, type }) => {
        const tokens = ids === "first" ? first : ids === "second" ? second : ids;
        const offset = lm.hasTokenTypes ? type * lm.vocabSize : 0;
        return Array.from(tokens, (id) => id + offset);
      }));
    };
  }

  /** Encodes pairs as Qwen3-Reranker's prompt. */
  #promptEncoder(query: string, options: RerankOptions): EncodePair {
    const { tokenizer, contextLength } = this.#parts;
    const { instruction = INSTRUCTION, truncate, maxDocumentTokens: most = Infinity } = options;
    const [before, texts, after] = QWEN_PROMPT;
    const [start, end] = [before, after].map((part) =>
      tokenizer.encode(part, { addSpecial: false })
    );
    const taken = start!.length + end!.length;
    const text = this.#text.bind(this);
    return function* (document, name) {
      const own = most === Infinity ? [] : yield* text(document, name);
      const isLong = own.length > most;
      const cut = isLong ? tokenizer.decode(own.slice(0, most)) : document;
      const values: Record<string, string> = { instruction, query, document: cut };
      const filled = texts.replace(/\{(\w+)\}/g, (_, key: string) => values[key]!);
      const whole = yield* text(filled, name);
      if (truncate) checkFits(taken + 1, contextLength, "the prompt");
      else checkFits(taken + whole.length, contextLength, `the query with ${name}`);
      const kept = whole.subarray(0, contextLength - taken);
      return Int32Array.from([...start!, ...kept, ...end!]);
    };
  }

  /** Encodes a text in which no text becomes a control token. */
  *#text(text: string, name: string): Generator<void, Int32Array> {
    const { tokenizer, contextLength } = this.#parts;
    const options = { addSpecial: false, parseSpecial: false };
    return yield* encodeTextInSlices(text, tokenizer, contextLength, name, options);
  }
}

/** Returns the rows of "yes" and "no" in the head of a GGUF file. */
function yesAndNo({ metadata, modelType }: Checkpoint): readonly (number | undefined)[] {
  const labels: unknown = metadata?.get(`${modelType}.classifier.output_labels`);
  const list: readonly unknown[] = Array.isArray(labels) ? labels : [];
  const rows = ["yes", "no"].map((label) => list.indexOf(label));
  return rows.every((row) => row >= 0) ? rows : [];
}
