/**
 * Sampling on the host, with options that no device implements. The order is llama.cpp's:
 * penalties, DRY, logit bias, constraint, top-n-sigma, top-k, typical, top-p, min-p, XTC,
 * temperature, draw. With Mirostat, temperature and Mirostat replace what follows the constraint.
 */
import type { StepOutput } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import { hasDry, hasXtc, historySize, isGreedy } from "../request/sampling.ts";
import type { GenerationRequest } from "./request.ts";
import { RepetitionPenalty } from "./repetition.ts";

/** Place of one output in its text. */
interface DrawPlace {
  /** All tokens before the output. */
  readonly tokens: Int32Array;
  /** One bit per token that the constraint allows; `undefined` if it allows all. */
  readonly mask: Uint32Array | undefined;
}

/** Tokens in descending order of their logits, the lower id first on ties. */
interface Ranked {
  readonly ids: Int32Array;
  readonly logits: Float64Array;
}

/** Interval of ranks that are still candidates. */
interface Span {
  readonly begin: number;
  readonly end: number;
}

/** Chooses the tokens of one generation. */
export class HostSampler {
  readonly #request: GenerationRequest;
  readonly #dry: RepetitionPenalty | undefined;
  /** Most surprise that Mirostat admits, in bits. */
  #surpriseLimit: number;

  constructor(request: GenerationRequest, tokenizer: Tokenizer) {
    const { sampling, dryBreakers } = request;
    this.#request = request;
    this.#dry = hasDry(sampling)
      ? new RepetitionPenalty(sampling, dryBreakers, tokenizer)
      : undefined;
    this.#surpriseLimit = 2 * sampling.mirostatTau;
  }

  /**
   * Chooses a token. The calls of a generation must come in the order of its tokens.
   *
   * @param logits logits of the model
   * @param best a token with its log-probability, from which that of the chosen one follows
   * @throws {ForgeError} `bad_input` if constraint and logit bias leave no token
   */
  choose(logits: Float32Array, best: StepOutput, place: DrawPlace): StepOutput {
    const token = this.#chooseToken(this.#adjust(logits, place), place.tokens.length);
    return { ...best, token, logprob: best.logprob + logits[token]! - logits[best.token]! };
  }

  /** Returns the logits after penalties, DRY, bias and constraint. */
  #adjust(logits: Float32Array, { tokens, mask }: DrawPlace): Float32Array {
    const { sampling, logitBias } = this.#request;
    const adjusted = logits.slice();
    const most = historySize(sampling);
    const counts = new Map<number, number>();
    for (const token of most === 0 ? [] : tokens.subarray(Math.max(0, tokens.length - most))) {
      counts.set(token, (counts.get(token) ?? 0) + 1);
    }
    for (const [token, count] of counts) {
      const { repeatPenalty, presencePenalty, frequencyPenalty } = sampling;
      const logit = logits[token]!;
      adjusted[token] = (logit > 0 ? logit / repeatPenalty : logit * repeatPenalty) -
        presencePenalty - count * frequencyPenalty;
    }
    this.#dry?.apply(adjusted, tokens);
    for (const [token, bias] of logitBias ?? []) adjusted[token]! += bias;
    if (mask !== undefined) forbid(adjusted, mask);
    return adjusted;
  }

  #chooseToken(logits: Float32Array, position: number): number {
    const { sampling } = this.#request;
    const top = indexOfLargest(logits);
    if (top === undefined) {
      throw new ForgeError("bad_input", "the mask and the logit bias leave no token to choose");
    }
    if (isGreedy(sampling)) return top;
    const [drawn, xtc] = this.#randomNumbers(position);
    if (sampling.mirostat !== 0) return this.#mirostat(logits, logits[top]!, drawn);
    const { topNSigma, topK, typicalP, topP, minP, temperature, dynatempRange } = sampling;
    const ranked = rank(
      logits,
      Math.max(
        topNSigma > 0 ? logits[top]! - topNSigma * deviation(logits) : -Infinity,
        topK > 0 ? boundOfLargest(logits, topK) : -Infinity,
      ),
    );
    const weights = weightsOf(ranked.logits, 1);
    let span: Span = { begin: 0, end: weights.length };
    if (topK > 0) span = { begin: 0, end: Math.min(topK, span.end) };
    if (typicalP < 1) span = typicalSpan(weights, span, typicalP);
    if (topP < 1) span = topPSpan(weights, span, topP);
    span = minPSpan(weights, span, minP);
    if (hasXtc(sampling) && xtc <= sampling.xtcProbability) {
      span = xtcSpan(weights, span, sampling.xtcThreshold);
    }
    const dynamic = dynatempRange > 0 ? dynamicTemperature(weights, span, sampling) : temperature;
    return draw(ranked, span, dynamic, drawn).token;
  }

  /**
   * Mirostat 2: S. Basu et al., "Mirostat: a neural text decoding algorithm that directly controls
   * perplexity", 2021, algorithm 2.
   */
  #mirostat(logits: Float32Array, largest: number, uniform: number): number {
    const { temperature, mirostatTau, mirostatEta } = this.#request.sampling;
    let total = 0;
    for (const logit of logits) total += Math.exp((logit - largest) / temperature);
    const floor = largest +
      temperature * (Math.log(total) - this.#surpriseLimit * Math.LN2);
    // The best token is kept even if it surprises more.
    const ranked = rank(logits, Math.min(floor, largest));
    const span = { begin: 0, end: floor > largest ? 1 : ranked.ids.length };
    const { token, probability } = draw(ranked, span, temperature, uniform);
    this.#surpriseLimit -= mirostatEta * (-Math.log2(probability) - mirostatTau);
    return token;
  }

  /** Returns numbers in (0, 1) for a position: that of a device's draw, then others. */
  #randomNumbers(position: number): readonly [drawn: number, xtc: number] {
    const { sampling: { seed }, stream } = this.#request;
    const [first, second] = philox4x32(
      [position, stream, 0, 0],
      [seed % 2 ** 32, Math.floor(seed / 2 ** 32)],
    );
    return [(first + 0.5) / 2 ** 32, (second + 0.5) / 2 ** 32];
  }
}

/** Sets the logits of tokens outside of a mask to -Infinity. */
function forbid(logits: Float32Array, mask: Uint32Array): void {
  for (const [at, word] of mask.entries()) {
    if (word === 0xffffffff) continue;
    const end = Math.min(logits.length, 32 * at + 32);
    for (let id = 32 * at; id < end; id++) {
      if ((word >>> (id & 31) & 1) === 0) logits[id] = -Infinity;
    }
  }
}

function indexOfLargest(logits: Float32Array): number | undefined {
  let best: number | undefined;
  let largest = -Infinity;
  for (let id = 0; id < logits.length; id++) {
    if (logits[id]! > largest) [best, largest] = [id, logits[id]!];
  }
  return best;
}

/** Returns the standard deviation of the logits of allowed tokens. */
function deviation(logits: Float32Array): number {
  let count = 0, sum = 0, squares = 0;
  for (const logit of logits) {
    if (logit === -Infinity) continue;
    count++;
    sum += logit;
  }
  for (const logit of logits) if (logit !== -Infinity) squares += (logit - sum / count) ** 2;
  return Math.sqrt(squares / count);
}

const CHUNK = 256;

/**
 * Returns a lower bound of the k-th largest logit: the k-th largest of the maxima of chunks. It
 * leaves few logits to sort.
 */
function boundOfLargest(logits: Float32Array, k: number): number {
  const maxima = new Float64Array(Math.ceil(logits.length / CHUNK)).fill(-Infinity);
  for (let id = 0; id < logits.length; id++) {
    const chunk = Math.floor(id / CHUNK);
    if (logits[id]! > maxima[chunk]!) maxima[chunk] = logits[id]!;
  }
  return k > maxima.length ? -Infinity : maxima.sort()[maxima.length - k]!;
}

/** Ranks the allowed tokens whose logits are at least `floor`. */
function rank(logits: Float32Array, floor: number): Ranked {
  const bits = new Uint32Array(logits.buffer, logits.byteOffset, logits.length);
  let keys = new Uint32Array(logits.length), ids = new Int32Array(logits.length);
  let count = 0;
  for (let id = 0; id < logits.length; id++) {
    if (!(logits[id]! >= floor) || logits[id] === -Infinity) continue;
    // As whole numbers, the keys are in the descending order of the floats.
    const word = bits[id]!;
    keys[count] = word >>> 31 === 1 ? word : ~(word | 0x80000000);
    ids[count++] = id;
  }
  keys = keys.subarray(0, count);
  ids = ids.subarray(0, count);
  for (const shift of [0, 11, 22]) [keys, ids] = sortByDigit(keys, ids, shift);
  const sorted = new Float64Array(count);
  for (let i = 0; i < count; i++) sorted[i] = logits[ids[i]!]!;
  return { ids, logits: sorted };
}

/** Sorts by 11 bits of the keys and keeps the order of equal ones: a pass of a radix sort. */
function sortByDigit(
  keys: Uint32Array<ArrayBuffer>,
  ids: Int32Array<ArrayBuffer>,
  shift: number,
): [Uint32Array<ArrayBuffer>, Int32Array<ArrayBuffer>] {
  const starts = new Uint32Array(2049);
  for (const key of keys) starts[(key >>> shift & 2047) + 1]!++;
  for (let digit = 0; digit < 2048; digit++) starts[digit + 1]! += starts[digit]!;
  const sortedKeys = new Uint32Array(keys.length), sortedIds = new Int32Array(ids.length);
  for (let i = 0; i < keys.length; i++) {
    const at = starts[keys[i]! >>> shift & 2047]!++;
    sortedKeys[at] = keys[i]!;
    sortedIds[at] = ids[i]!;
  }
  return [sortedKeys, sortedIds];
}

/** Returns the probabilities of sorted logits relative to the first. */
function weightsOf(logits: Float64Array, temperature: number): Float64Array {
  const weights = new Float64Array(logits.length);
  for (let i = 0; i < logits.length; i++) {
    const below = logits[i]! - logits[0]!;
    // A dynamic temperature of 0 leaves the best tokens.
    weights[i] = below === 0 ? 1 : Math.exp(below / temperature);
  }
  return weights;
}

function sum(weights: Float64Array, { begin, end }: Span): number {
  let total = 0;
  for (let i = begin; i < end; i++) total += weights[i]!;
  return total;
}

/** Returns the entropy of a span, in nats. */
function entropyOf(weights: Float64Array, span: Span): number {
  const total = sum(weights, span);
  let entropy = 0;
  for (let i = span.begin; i < span.end; i++) {
    const probability = weights[i]! / total;
    if (probability > 0) entropy -= probability * Math.log(probability);
  }
  return entropy;
}

/**
 * Locally typical sampling: C. Meister et al., "Locally typical sampling", 2022. Surprise grows
 * with the rank, so that the most typical tokens are neighbours.
 */
function typicalSpan(weights: Float64Array, span: Span, typicalP: number): Span {
  const total = sum(weights, span);
  const entropy = entropyOf(weights, span);
  const distance = (i: number) =>
    i < span.begin || i >= span.end ? Infinity : Math.abs(-Math.log(weights[i]! / total) - entropy);
  let begin = span.begin;
  while (distance(begin + 1) <= distance(begin)) begin++;
  let end = begin + 1;
  let reached = weights[begin]!;
  while (reached <= typicalP * total && end - begin < span.end - span.begin) {
    const isLeftNearer = begin > span.begin && !(distance(end) < distance(begin - 1));
    reached += isLeftNearer ? weights[--begin]! : weights[end++]!;
  }
  return { begin, end };
}

function topPSpan(weights: Float64Array, span: Span, topP: number): Span {
  const target = topP * sum(weights, span);
  let end = span.begin;
  for (let reached = 0; end < span.end && (end === span.begin || reached < target);) {
    reached += weights[end++]!;
  }
  return { begin: span.begin, end };
}

function minPSpan(weights: Float64Array, { begin, end }: Span, minP: number): Span {
  const least = minP * weights[begin]!;
  while (weights[end - 1]! < least) end--;
  return { begin, end };
}

/**
 * XTC ("exclude top choices"): P. E. Weidmann, 2024. Of the tokens that reach a threshold, keeps
 * the least probable.
 */
function xtcSpan(weights: Float64Array, span: Span, threshold: number): Span {
  const least = threshold * sum(weights, span);
  let begin = span.begin;
  while (begin + 1 < span.end && weights[begin + 1]! >= least) begin++;
  return { begin, end: span.end };
}

/** Returns the temperature for the entropy of a span, as a share of the largest possible one. */
function dynamicTemperature(
  weights: Float64Array,
  span: Span,
  { temperature, dynatempRange, dynatempExponent }: GenerationRequest["sampling"],
): number {
  const count = span.end - span.begin;
  if (count === 1) return temperature;
  const least = Math.max(0, temperature - dynatempRange);
  const most = temperature + dynatempRange;
  const share = Math.min(1, entropyOf(weights, span) / Math.log(count));
  return least + (most - least) * share ** dynatempExponent;
}

/** Draws a token of a span with a number from 0 to 1. */
function draw({ ids, logits }: Ranked, { begin, end }: Span, temperature: number, uniform: number) {
  const weights = weightsOf(logits.subarray(begin, end), temperature);
  const total = sum(weights, { begin: 0, end: weights.length });
  let i = 0;
  for (let reached = weights[0]!; reached <= uniform * total && i + 1 < weights.length;) {
    reached += weights[++i]!;
  }
  return { token: ids[begin + i]!, probability: weights[i]! / total };
}

type Words4 = readonly [number, number, number, number];

/**
 * Returns four random words for a counter and a key: Philox4x32-10. J. K. Salmon, M. A. Moraes,
 * R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
 */
function philox4x32(counter: Words4, key: readonly [number, number]): Words4 {
  let [a, b, c, d] = counter;
  let [low, high] = key;
  for (let round = 0; round < 10; round++) {
    [a, b, c, d] = [
      (highWord(0xCD9E8D57, c) ^ b ^ low) >>> 0,
      Math.imul(0xCD9E8D57, c) >>> 0,
      (highWord(0xD2511F53, a) ^ d ^ high) >>> 0,
      Math.imul(0xD2511F53, a) >>> 0,
    ];
    low = (low + 0x9E3779B9) >>> 0;
    high = (high + 0xBB67AE85) >>> 0;
  }
  return [a, b, c, d];
}

/** Returns the upper word of the product of two words. */
function highWord(x: number, y: number): number {
  return Number(BigInt(x) * BigInt(y) >> 32n);
}
