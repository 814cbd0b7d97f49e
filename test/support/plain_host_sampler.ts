/** The sampling chain of the host, step after step, as its definitions say it. */
import type { StepOutput } from "../../src/backend.ts";
import type { GenerationRequest } from "../../src/engine/generation/request.ts";
import type { Tokenizer } from "../../src/tokenizer/tokenizer.ts";
import { philox4x32 } from "../ops/plain_sampling.ts";

/** A token that can still be chosen, with its probability among the others. */
interface Choice {
  readonly token: number;
  readonly logit: number;
  readonly p: number;
}

type Sampling = GenerationRequest["sampling"];

/** Returns choices with probabilities that sum to 1, best first. */
function softmax(choices: readonly Pick<Choice, "token" | "logit">[], temperature = 1): Choice[] {
  const sorted = choices.toSorted((a, b) => b.logit - a.logit || a.token - b.token);
  const weights = sorted.map(({ logit }) => Math.exp((logit - sorted[0]!.logit) / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return sorted.map(({ token, logit }, i) => ({ token, logit, p: weights[i]! / total }));
}

function entropy(choices: readonly Choice[]): number {
  return choices.reduce((sum, { p }) => p > 0 ? sum - p * Math.log(p) : sum, 0);
}

/** Returns the first choices, until their probabilities satisfy a condition. */
function until(choices: readonly Choice[], isEnough: (reached: number) => boolean): Choice[] {
  let reached = 0;
  const last = choices.findIndex(({ p }) => isEnough(reached += p));
  return choices.slice(0, last < 0 ? choices.length : last + 1);
}

export function topNSigma(choices: readonly Choice[], n: number): Choice[] {
  const mean = choices.reduce((sum, { logit }) => sum + logit, 0) / choices.length;
  const variance = choices.reduce((sum, { logit }) => sum + (logit - mean) ** 2, 0) /
    choices.length;
  const largest = Math.max(...choices.map(({ logit }) => logit));
  return softmax(choices.filter(({ logit }) => logit >= largest - n * Math.sqrt(variance)));
}

export function typical(choices: readonly Choice[], p: number): Choice[] {
  const expected = entropy(choices);
  const distance = (choice: Choice) => Math.abs(-Math.log(choice.p) - expected);
  const nearest = choices.toSorted((a, b) => distance(a) - distance(b));
  return softmax(until(nearest, (reached) => reached > p));
}

export function xtc(choices: readonly Choice[], threshold: number): Choice[] {
  const above = choices.filter(({ p }) => p >= threshold);
  return softmax(choices.slice(Math.max(0, above.length - 1)));
}

export function dynamicTemperature(choices: readonly Choice[], s: Sampling): number {
  if (s.dynatempRange === 0 || choices.length === 1) return s.temperature;
  const low = Math.max(0, s.temperature - s.dynatempRange);
  const share = entropy(choices) / Math.log(choices.length);
  return low + (s.temperature + s.dynatempRange - low) * share ** s.dynatempExponent;
}

/** Returns DRY's penalty on each token, found by trying every earlier position. */
export function dryPenalties(
  tokens: readonly number[],
  s: Sampling,
  breakers: readonly string[],
  textOf: (token: number) => string,
): Map<number, number> {
  const penalties = new Map<number, number>();
  if (s.dryMultiplier === 0 || s.dryPenaltyLastN === 0) return penalties;
  const recent = s.dryPenaltyLastN < 0 ? tokens : tokens.slice(-s.dryPenaltyLastN);
  if (recent.length <= s.dryAllowedLength) return penalties;
  // The longest ends of the text without the beginning of a breaker, in tokens.
  let limit = 0;
  while (limit < recent.length) {
    const before = recent.slice(0, recent.length - limit - 1).map(textOf).join("");
    const rest = recent.slice(recent.length - limit - 1).map(textOf).join("");
    const begins = breakers.some((breaker) => {
      const at = (before + rest).lastIndexOf(breaker);
      return at >= before.length;
    });
    if (begins) break;
    limit++;
  }
  if (limit < recent.length) {
    // The breaker may reach over several tokens; the tokens after it count.
    const from = recent.length - limit - 1;
    const lastEnd = Math.max(...breakers.flatMap((breaker) => {
      const at = recent.slice(from).map(textOf).join("").lastIndexOf(breaker);
      return at < 0 ? [] : [at + breaker.length];
    }));
    let count = 0;
    while (recent.slice(from, from + count).map(textOf).join("").length < lastEnd) count++;
    limit = recent.length - from - count;
  }
  if (limit < s.dryAllowedLength) return penalties;
  for (let next = 1; next < recent.length; next++) {
    let length = 0;
    while (
      length < limit && length < next &&
      recent[next - 1 - length] === recent[recent.length - 1 - length]
    ) length++;
    if (length < s.dryAllowedLength) continue;
    const penalty = s.dryMultiplier * s.dryBase ** (length - s.dryAllowedLength);
    penalties.set(recent[next]!, Math.max(penalties.get(recent[next]!) ?? 0, penalty));
  }
  return penalties;
}

/** Chooses the tokens of one generation. */
export class PlainHostSampler {
  #mu: number;
  readonly #request: GenerationRequest;
  readonly #tokenizer: Pick<Tokenizer, "vocabSize" | "decode">;

  constructor(
    request: GenerationRequest,
    tokenizer: Pick<Tokenizer, "vocabSize" | "decode">,
  ) {
    this.#request = request;
    this.#tokenizer = tokenizer;
    this.#mu = 2 * request.sampling.mirostatTau;
  }

  choose(
    logits: Float32Array,
    best: StepOutput,
    tokens: readonly number[],
    mask?: Uint32Array,
  ): StepOutput {
    const token = this.#choose(this.#adjusted(logits, tokens, mask), tokens.length);
    return { ...best, token, logprob: best.logprob + logits[token]! - logits[best.token]! };
  }

  /** Returns the tokens with finite logits after penalties, DRY, bias and mask. */
  #adjusted(logits: Float32Array, tokens: readonly number[], mask?: Uint32Array): Choice[] {
    const { sampling: s, logitBias, dryBreakers } = this.#request;
    const recent = s.repeatLastN === 0 ? [] : tokens.slice(s.repeatLastN < 0 ? 0 : -s.repeatLastN);
    const textOf = (token: number) =>
      token < this.#tokenizer.vocabSize ? this.#tokenizer.decode([token]) : "";
    const dry = dryPenalties(tokens, s, dryBreakers, textOf);
    const choices = Array.from(logits, (logit, token) => {
      const count = recent.filter((other) => other === token).length;
      let value = logit;
      if (count > 0) {
        value = (value > 0 ? value / s.repeatPenalty : value * s.repeatPenalty) -
          s.presencePenalty - count * s.frequencyPenalty;
      }
      value = Math.fround(Math.fround(value) - (dry.get(token) ?? 0));
      value = Math.fround(value + (logitBias?.get(token) ?? 0));
      const isAllowed = mask === undefined || (mask[token >>> 5]! >>> (token & 31) & 1) === 1;
      return { token, logit: isAllowed ? value : -Infinity, p: 0 };
    });
    return softmax(choices.filter(({ logit }) => logit > -Infinity));
  }

  #choose(choices: readonly Choice[], position: number): number {
    const { sampling: s, stream } = this.#request;
    const [drawn, second] = philox4x32([position, stream, 0, 0], [
      s.seed % 2 ** 32,
      Math.floor(s.seed / 2 ** 32),
    ]).map((word) => (word + 0.5) / 2 ** 32);
    if (s.temperature === 0 && (s.dynatempRange === 0 || s.mirostat === 2)) {
      return choices[0]!.token;
    }
    let left = [...choices];
    if (s.mirostat === 2) {
      const surprises = softmax(left, s.temperature);
      const kept = surprises.filter(({ p }) => -Math.log2(p) <= this.#mu);
      const { token, p } = drawFrom(
        kept.length > 0 ? kept : [surprises[0]!],
        s.temperature,
        drawn!,
      );
      this.#mu -= s.mirostatEta * (-Math.log2(p) - s.mirostatTau);
      return token;
    }
    if (s.topNSigma > 0) left = topNSigma(left, s.topNSigma);
    if (s.topK > 0) left = softmax(left.slice(0, s.topK));
    if (s.typicalP < 1) left = typical(left, s.typicalP);
    if (s.topP < 1) left = softmax(until(left, (reached) => reached >= s.topP));
    left = softmax(left.filter(({ p }) => p >= s.minP * left[0]!.p));
    if (s.xtcProbability > 0 && s.xtcThreshold <= 0.5 && second! <= s.xtcProbability) {
      left = xtc(left, s.xtcThreshold);
    }
    return drawFrom(left, dynamicTemperature(left, s), drawn!).token;
  }
}

/** Draws a choice, walking from the best one. */
function drawFrom(choices: readonly Choice[], temperature: number, uniform: number): Choice {
  const shares = softmax(choices, temperature);
  let reached = 0;
  return shares.find(({ p }) => (reached += p) > uniform) ?? shares.at(-1)!;
}

/** Returns choices with their probabilities, best first. */
export function choicesOf(logits: ArrayLike<number>): Choice[] {
  return softmax(Array.from(logits, (logit, token) => ({ token, logit })));
}
