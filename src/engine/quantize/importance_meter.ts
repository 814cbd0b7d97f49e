/** Measures which columns of a model's matrices matter, while the model scores a text. */
import type { Backend, Step, Value, Weight } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { openCheckpoint } from "../../formats/checkpoint.ts";
import type { Importance, ImportanceMatrix } from "../../formats/gguf/importance.ts";
import type { QuantizedType } from "../../formats/quantized.ts";
import { quote } from "../../formats/quote.ts";
import type { GgufSink, TensorRows } from "../../models/gguf_rules.ts";
import { loadModel } from "../../models/registry.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import { fetchLibraries, openBackend } from "../load/open_backend.ts";
import { asLoaded } from "../load/options.ts";
import { openTokenizer } from "../load/tokenizer.ts";
import { PAGE_TOKENS, UNSAMPLED } from "../runner.ts";

/** Options of {@linkcode ImportanceMeter.open}. */
interface MeterOptions {
  readonly device?: string | undefined;
  readonly threads?: number | undefined;
  /** Longest text. */
  readonly contextLength: number;
  readonly quantize?: QuantizedType | undefined;
}

/** Tokens of one run. Their activations of all layers are kept until it ends. */
const CHUNK = 64;

/** A value that is multiplied with the matrices of some tensors. */
interface Product {
  readonly input: Value;
  readonly names: ReadonlySet<string>;
  readonly cols: number;
  /** Matrices that the tensors stack, and what chooses one. */
  readonly experts?: {
    readonly count: number;
    readonly route: Value;
    readonly topK: number;
    /** True if the input has a row of its own for each chosen expert. */
    readonly isRouted: boolean;
  } | undefined;
  readonly sums: Float64Array;
  readonly counts: Float64Array;
}

/** A model that scores texts, and adds up the squares of the inputs of its products. */
export class ImportanceMeter implements Disposable {
  readonly tokenizer: Tokenizer;
  readonly contextLength: number;
  readonly #backend: Backend;
  readonly #step: Step;
  readonly #products: readonly Product[];
  readonly #pages: readonly number[];
  readonly #slots: readonly number[] | undefined;

  private constructor(
    parts: Pick<ImportanceMeter, "tokenizer" | "contextLength">,
    backend: Backend,
    step: Step,
    products: readonly Product[],
    hasStates: boolean,
  ) {
    this.tokenizer = parts.tokenizer;
    this.contextLength = parts.contextLength;
    this.#backend = backend;
    this.#step = step;
    this.#products = products;
    this.#pages = Array.from({ length: nPages(parts.contextLength) }, (_, page) => page);
    this.#slots = hasStates ? [0] : undefined;
  }

  /**
   * Loads a model. @throws {ForgeError} as `load`, and `unsupported` for a model that does not
   * generate
   */
  static async open(path: string, options: MeterOptions): Promise<ImportanceMeter> {
    const checkpoint = asLoaded(openCheckpoint(path), options);
    await fetchLibraries();
    const backend = openBackend(options.device ?? "auto", options.threads);
    try {
      const names = new WeightNames();
      const { lm } = loadModel(backend, checkpoint, { sink: names });
      const { forward } = lm;
      if (forward === undefined || !lm.hasHead) {
        throw new ForgeError("unsupported", `${quote(path)} does not generate`);
      }
      const contextLength = Math.min(options.contextLength, lm.contextLength);
      const pages = {
        nPages: nPages(contextLength),
        pageTokens: PAGE_TOKENS,
        type: "F32",
      } as const;
      const kv = lm.kvLayers.map((layer) => backend.createKv({ ...layer, ...pages }));
      const states = lm.stateLayers.map((layer) => backend.createState({ ...layer, nSlots: 1 }));
      const recorder = backend.record({
        maxTokens: CHUNK,
        maxOutputs: CHUNK,
        maxSequences: 1,
        maxPages: pages.nPages,
      });
      const products: Product[] = [];
      recorder.onProduct = (weight, input, experts) => {
        const own = names.of(weight);
        if (own.size === 0) return;
        const count = experts?.nExperts ?? 1;
        recorder.keep(input);
        if (experts !== undefined) recorder.keep(experts.route);
        const isRouted = [...own].some((name) => name.includes("ffn_down_exps"));
        products.push({
          input,
          names: own,
          cols: weight.cols,
          experts: experts && { ...experts, count, isRouted },
          sums: new Float64Array(count * weight.cols),
          counts: new Float64Array(count),
        });
      };
      const logits = forward(recorder, kv, states);
      recorder.sample(logits, 0);
      const step = await recorder.finish();
      const parts = { tokenizer: openTokenizer(checkpoint), contextLength };
      return new ImportanceMeter(parts, backend, step, products, states.length > 0);
    } catch (error) {
      backend.close();
      throw error;
    }
  }

  /** Returns the log-probability of each token but the first, and measures their activations. */
  async score(tokens: Int32Array, signal?: AbortSignal): Promise<Float32Array> {
    const scores = new Float32Array(tokens.length - 1);
    for (let start = 0; start < tokens.length; start += CHUNK) {
      if (signal?.aborted) throw new ForgeError("cancelled", "stopped on request");
      const chunk = tokens.subarray(start, start + CHUNK);
      const positions = Int32Array.from(chunk, (_, i) => start + i);
      const scored = Math.min(chunk.length, scores.length - start);
      const results = await this.#step.run({
        tokens: chunk,
        positions,
        sequences: new Int32Array(chunk.length),
        pageTables: [this.#pages],
        ...(this.#slots === undefined ? {} : { slots: this.#slots }),
        outputs: Array.from(
          { length: scored },
          (_, row) => ({ ...UNSAMPLED, row, forcedToken: tokens[start + row + 1]! }),
        ),
      });
      results.forEach((result, i) => {
        if (result instanceof ForgeError) throw result;
        scores[start + i] = result.logprob;
      });
      for (const product of this.#products) this.#add(product, chunk.length);
    }
    return scores;
  }

  /** Returns what was measured so far. */
  importance(): ImportanceMatrix {
    const matrix = new Map<string, Importance>();
    for (const { names, sums, counts } of this.#products) {
      const importance = { sums: Float32Array.from(sums), counts: Float32Array.from(counts) };
      for (const name of names) matrix.set(name, importance);
    }
    return matrix;
  }

  [Symbol.dispose](): void {
    this.#backend.close();
  }

  #add({ input, cols, experts, sums, counts }: Product, nTokens: number): void {
    if (experts === undefined) {
      const values = this.#step.read(input, cols, 0, nTokens);
      for (let row = 0; row < nTokens; row++) addSquares(sums, 0, values, row * cols, cols);
      counts[0]! += nTokens;
      return;
    }
    const { route, topK, isRouted } = experts;
    const width = isRouted ? topK * cols : cols;
    const values = this.#step.read(input, width, 0, nTokens);
    const chosen = this.#step.read(route, 2 * topK, 0, nTokens);
    for (let row = 0; row < nTokens; row++) {
      for (let k = 0; k < topK; k++) {
        const expert = chosen[2 * topK * row + k]!;
        addSquares(sums, expert * cols, values, row * width + (isRouted ? k * cols : 0), cols);
        counts[expert]!++;
      }
    }
  }
}

const nPages = (contextLength: number) => Math.ceil(contextLength / PAGE_TOKENS);

function addSquares(
  sums: Float64Array,
  to: number,
  values: Float32Array,
  from: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) sums[to + i]! += values[from + i]! ** 2;
}

/** The names of tensors in GGUF files, by the weights that hold their rows. */
class WeightNames implements GgufSink {
  readonly #names = new Map<number, Set<string>>();

  /** Returns the matrices of a weight but those that llama.cpp does not measure either. */
  of({ handle }: Weight): ReadonlySet<string> {
    return this.#names.get(handle) ?? new Set();
  }

  tensor(name: string, { weight, shape }: TensorRows): void {
    if (shape.length < 2 || /^(token_embd|output)\.weight$/.test(name)) return;
    const names = this.#names.get(weight.handle) ?? new Set();
    this.#names.set(weight.handle, names.add(name));
  }

  setting(): void {}

  numbers(): void {}
}
