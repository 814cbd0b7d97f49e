/**
 * The packed blocks of `forge_step_run`: `forge_step_header` and its arrays as input,
 * `forge_result` records as output. All entries are 32 bits wide, in the machine's byte order.
 */
import type {
  AttentionMask,
  OutputRequest,
  StepInputs,
  StepResult,
  TokenLogprob,
} from "../src/backend.ts";
import { ForgeError } from "../src/errors.ts";
import { MaskTable } from "./mask_table.ts";

/** Words of a `forge_step_header`, a `forge_sampling` and a `forge_result`. */
export const HEADER_WORDS = 15;
export const SAMPLING_WORDS = 18;
export const RESULT_WORDS = 4;

/** Words of a `forge_step_control`. */
export const CONTROL_STOP = 0, CONTROL_MASKS_PENDING = 1, CONTROL_WORDS = 2;

/** Kinds of attention masks. */
export const MASK_NONE = 0, MASK_BITS = 1, MASK_FLOATS = 2;

/** Flags of a `forge_result`. */
export const LOGITS_NAN = 1;
export const NOTHING_ALLOWED = 2;
export const NOT_RUN = 4;

/** A buffer of words that grows as needed and is reused between runs. */
class Words {
  i32 = new Int32Array(0);
  f32 = new Float32Array(0);

  /** Ensures room for `count` words, with undefined contents. */
  reserve(count: number): void {
    if (this.i32.length >= count) return;
    const buffer = new ArrayBuffer(4 * Math.max(count, 2 * this.i32.length));
    this.i32 = new Int32Array(buffer);
    this.f32 = new Float32Array(buffer);
  }
}

/** Packs the inputs of runs of one step. */
export class InputBlock {
  readonly #words = new Words();
  #masks: { readonly table: MaskTable; readonly start: number } | undefined;

  /**
   * Returns the packed block, valid until the next call.
   *
   * @throws {ForgeError} `bad_input` if related arrays differ in length
   */
  pack(inputs: StepInputs): Int32Array<ArrayBuffer> {
    const { tokens, positions, sequences, pageTables, slots = [], outputs } = inputs;
    const { parents = [], nSteps = 1, endTokens = [] } = inputs;
    if (positions.length !== tokens.length || sequences.length !== tokens.length) {
      throw new ForgeError(
        "bad_input",
        `a step of ${tokens.length} tokens got ${positions.length} positions and ` +
          `${sequences.length} sequences`,
      );
    }
    if (parents.length !== 0 && parents.length !== tokens.length) {
      throw new ForgeError(
        "bad_input",
        `a step of ${tokens.length} tokens got ${parents.length} parents`,
      );
    }
    if (slots.length !== 0 && slots.length !== pageTables.length) {
      throw new ForgeError(
        "bad_input",
        `a step of ${pageTables.length} sequences got ${slots.length} state slots`,
      );
    }
    const { keyLengths = lastPositions(inputs), attentionMask } = inputs;
    if (keyLengths.length !== pageTables.length) {
      throw new ForgeError(
        "bad_input",
        `a step of ${pageTables.length} sequences got ${keyLengths.length} key lengths`,
      );
    }
    const { adapterScales = [] } = inputs;
    const nAdapters = adapterScales.length / Math.max(1, pageTables.length);
    if (!Number.isInteger(nAdapters)) {
      throw new ForgeError(
        "bad_input",
        `a step of ${pageTables.length} sequences got ${adapterScales.length} adapter scales`,
      );
    }
    const maskRows = attentionMask && attentionMaskRows(attentionMask, tokens.length);
    const nPages = Math.max(1, ...pageTables.map((table) => table.length));
    const table = new MaskTable(outputs);
    const { masks, words: maskWords } = table;
    const nHistory = sum(outputs, (output) => output.history.length);
    const nBias = sum(outputs, (output) => output.sampling.bias?.size ?? 0);
    const total = HEADER_WORDS + 3 * tokens.length + parents.length +
      pageTables.length * (nPages + 2 + nAdapters) + (2 + SAMPLING_WORDS) * outputs.length +
      nHistory + 2 * nBias + endTokens.length + masks.length * maskWords + (maskRows?.length ?? 0);
    this.#words.reserve(total);
    const { i32, f32 } = this.#words;

    i32.set([
      tokens.length,
      outputs.length,
      pageTables.length,
      nPages,
      nHistory,
      nBias,
      maskWords,
      masks.length,
      nSteps,
      endTokens.length,
      maskKind(attentionMask),
      attentionMask?.nHeads ?? 0,
      attentionMask?.nPositions ?? 0,
      nAdapters,
      parents.length,
    ]);
    let at = HEADER_WORDS;
    for (const array of [tokens, positions, sequences, parents]) {
      i32.set(array, at);
      at += array.length;
    }
    for (const pages of pageTables) {
      i32.set(pages, at);
      // Shorter sequences never use these entries.
      i32.fill(0, at + pages.length, at + nPages);
      at += nPages;
    }
    // Without slots the step has no recurrent state, and these entries are unused.
    i32.fill(0, at, at + pageTables.length);
    i32.set(slots, at);
    at += pageTables.length;
    i32.set(keyLengths, at);
    at += pageTables.length;
    f32.set(adapterScales, at);
    at += adapterScales.length;
    for (const output of outputs) i32[at++] = output.row;
    at = this.#packSampling(outputs, table, at);
    i32.set(endTokens, at);
    at += endTokens.length;
    for (const { historySize = 0 } of outputs) i32[at++] = historySize;
    this.#masks = { table, start: at };
    for (const mask of masks) {
      i32.set(mask, at);
      at += maskWords;
    }
    if (maskRows !== undefined) i32.set(maskRows, at);
    return i32.subarray(0, total);
  }

  /** Copies a mask that was filled after packing. */
  updateMask(mask: Uint32Array): void {
    const { table, start } = this.#masks!;
    this.#words.i32.set(mask, start + table.indexOf(mask) * table.words);
  }

  /** Writes the sampling records, then the history and bias arrays they refer to. */
  #packSampling(outputs: readonly OutputRequest[], masks: MaskTable, at: number): number {
    const { i32, f32 } = this.#words;
    let history = at + SAMPLING_WORDS * outputs.length;
    const historyStart = history;
    const biases: [number, number][] = [];
    for (const output of outputs) {
      const { sampling } = output;
      i32.set(output.history, history);
      const biasStart = biases.length;
      if (sampling.bias !== undefined) biases.push(...sampling.bias);
      f32[at] = sampling.temperature;
      i32[at + 1] = sampling.topK;
      f32[at + 2] = sampling.topP;
      f32[at + 3] = sampling.minP;
      f32[at + 4] = sampling.repeatPenalty;
      f32[at + 5] = sampling.presencePenalty;
      f32[at + 6] = sampling.frequencyPenalty;
      i32[at + 7] = output.forcedToken ?? -1;
      i32[at + 8] = Number(BigInt.asIntN(32, sampling.seed));
      i32[at + 9] = Number(BigInt.asIntN(32, sampling.seed >> 32n));
      i32[at + 10] = output.stream;
      i32[at + 11] = output.position;
      i32[at + 12] = history - historyStart;
      history += output.history.length;
      i32[at + 13] = history - historyStart;
      i32[at + 14] = biasStart;
      i32[at + 15] = biases.length;
      i32[at + 16] = masks.indexOf(sampling.mask);
      i32[at + 17] = output.nTop;
      at += SAMPLING_WORDS;
    }
    at = history;
    for (const [id] of biases) i32[at++] = id;
    for (const [, value] of biases) f32[at++] = value;
    return at;
  }
}

/** Receives the results of runs of one step with at most `maxTop` alternatives per output. */
export class OutputBlock {
  readonly #words = new Words();
  readonly #maxTop: number;

  constructor(maxTop: number) {
    this.#maxTop = maxTop;
  }

  /** Returns a block for `count` outputs of all steps together, valid until the next call. */
  reserve(count: number): Int32Array<ArrayBuffer> {
    const total = count * (RESULT_WORDS + 2 * this.#maxTop);
    this.#words.reserve(Math.max(total, 1));
    return this.#words.i32.subarray(0, total);
  }

  /** Reads the results of the steps that ran, at most `count` outputs. */
  unpack(count: number): StepResult[] {
    const results: StepResult[] = [];
    while (results.length < count && !this.#isMissing(results.length)) {
      results.push(this.#result(results.length));
    }
    return results;
  }

  #isMissing(output: number): boolean {
    return (this.#words.i32[this.#at(output) + 1]! & NOT_RUN) !== 0;
  }

  #at(output: number): number {
    return output * (RESULT_WORDS + 2 * this.#maxTop);
  }

  #result(output: number): StepResult {
    const { i32, f32 } = this.#words;
    const at = this.#at(output);
    const flags = i32[at + 1]!;
    if (flags & LOGITS_NAN) {
      return new ForgeError(
        "bad_model",
        "the model computed logits that are NaN or infinite: its weights hold NaN or overflow " +
          "float32",
      );
    }
    if (flags & NOTHING_ALLOWED) {
      return new ForgeError("bad_input", "the mask and the logit bias leave no token to choose");
    }
    const top: TokenLogprob[] = [];
    const ids = at + RESULT_WORDS;
    for (let i = 0; i < i32[at + 3]!; i++) {
      top.push({ token: i32[ids + i]!, logprob: f32[ids + this.#maxTop + i]! });
    }
    return { token: i32[at]!, logprob: f32[at + 2]!, top };
  }
}

/** The number of positions up to the last token of each sequence. */
function lastPositions({ positions, sequences, pageTables }: StepInputs): Int32Array {
  const lengths = new Int32Array(pageTables.length);
  for (let i = 0; i < positions.length; i++) {
    const sequence = sequences[i]!;
    lengths[sequence] = Math.max(lengths[sequence]!, positions[i]! + 1);
  }
  return lengths;
}

function maskKind(mask: AttentionMask | undefined): number {
  if (mask === undefined) return MASK_NONE;
  return mask.values instanceof Uint32Array ? MASK_BITS : MASK_FLOATS;
}

/** The words of a mask for as many tokens. */
function attentionMaskRows(mask: AttentionMask, nTokens: number): Int32Array {
  const { nHeads, nPositions, values } = mask;
  const stride = maskKind(mask) === MASK_BITS ? Math.ceil(nPositions / 32) : nPositions;
  if (values.length !== nTokens * nHeads * stride) {
    throw new ForgeError(
      "bad_input",
      `an attention mask of ${nTokens} tokens, ${nHeads} heads and ${nPositions} positions has ` +
        `${values.length} values; expected ${nTokens * nHeads * stride}`,
    );
  }
  return new Int32Array(values.buffer, values.byteOffset, values.length);
}

function sum<T>(items: readonly T[], value: (item: T) => number): number {
  return items.reduce((total, item) => total + value(item), 0);
}
