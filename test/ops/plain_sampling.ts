/** The sampling chain of `forge_sampling` in float64, one step after another. */
import type { OutputRequest } from "../../src/backend.ts";

type Words4 = readonly [number, number, number, number];

/** The upper and the lower word of the product of two words. */
function multiply(a: number, b: number): [high: number, low: number] {
  const product = BigInt(a) * BigInt(b);
  return [Number(product >> 32n), Number(product & 0xffffffffn)];
}

/**
 * Philox4x32-10: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers:
 * as easy as 1, 2, 3", SC'11.
 */
export function philox4x32(counter: Words4, key: readonly [number, number]): Words4 {
  let [a, b, c, d] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < 10; round++) {
    const [aHigh, aLow] = multiply(a, 0xD2511F53);
    const [cHigh, cLow] = multiply(c, 0xCD9E8D57);
    [a, b, c, d] = [(cHigh ^ b ^ k0) >>> 0, cLow, (aHigh ^ d ^ k1) >>> 0, aLow];
    k0 = (k0 + 0x9E3779B9) >>> 0;
    k1 = (k1 + 0xBB67AE85) >>> 0;
  }
  return [a, b, c, d];
}

/** The random number in (0, 1) that draws the token of an output. */
export function uniformOf({ sampling, stream, position }: OutputRequest): number {
  const low = Number(BigInt.asUintN(32, sampling.seed));
  const high = Number(BigInt.asUintN(32, sampling.seed >> 32n));
  return (philox4x32([position, stream, 0, 0], [low, high])[0] + 0.5) / 2 ** 32;
}

/** A token that can be drawn, and its weight; weights need not sum to 1. */
export interface Share {
  readonly token: number;
  readonly share: number;
}

/** Logits after penalties, bias and mask. */
function adjusted(logits: ArrayLike<number>, { sampling, history }: OutputRequest): Float64Array {
  const values = Float64Array.from(logits);
  const counts = new Map<number, number>();
  for (const token of Array.from(history)) counts.set(token, (counts.get(token) ?? 0) + 1);
  const repeat = Math.fround(sampling.repeatPenalty);
  const presence = Math.fround(sampling.presencePenalty);
  const frequency = Math.fround(sampling.frequencyPenalty);
  for (const [token, count] of counts) {
    const value = values[token]!;
    values[token] = (value > 0 ? value / repeat : value * repeat) - presence - count * frequency;
  }
  for (const [token, bias] of sampling.bias ?? []) values[token]! += Math.fround(bias);
  const { mask } = sampling;
  if (mask !== undefined) {
    for (let token = 0; token < values.length; token++) {
      if ((mask[token >>> 5]! >>> (token & 31) & 1) === 0) values[token] = -Infinity;
    }
  }
  return values;
}

/** The tokens that can be drawn, in the order of ids; empty if none is allowed. */
export function candidates(logits: ArrayLike<number>, request: OutputRequest): Share[] {
  const { temperature, topK, topP, minP } = request.sampling;
  const values = adjusted(logits, request);
  let largest = -Infinity, best = -1;
  values.forEach((value, token) => {
    if (value > largest) [largest, best] = [value, token];
  });
  if (best < 0) return [];
  if (temperature === 0) return [{ token: best, share: 1 }];

  let kept = Array.from(values, (value, token) => ({
    token,
    share: Math.exp((value - largest) / Math.fround(temperature)),
    value,
  })).filter(({ value }) => value > -Infinity);
  if (topK > 0 || topP < 1) kept.sort((a, b) => b.value - a.value || a.token - b.token);
  if (topK > 0) kept = kept.slice(0, topK);
  if (topP < 1) {
    const total = kept.reduce((sum, { share }) => sum + share, 0);
    let cumulative = 0, count = 0;
    while (count < kept.length && (count === 0 || cumulative < Math.fround(topP) * total)) {
      cumulative += kept[count++]!.share;
    }
    kept = kept.slice(0, count);
  }
  return kept.filter(({ share }) => share >= Math.fround(minP)).sort((a, b) => a.token - b.token);
}

/** The token whose interval of the cumulative weights contains `uniform` times their sum. */
export function draw(shares: readonly Share[], uniform: number): number {
  const target = uniform * shares.reduce((sum, { share }) => sum + share, 0);
  let cumulative = 0;
  for (const { token, share } of shares) {
    cumulative += share;
    if (cumulative > target) return token;
  }
  return shares.at(-1)!.token;
}

/** True if `token` can be chosen within the error of float32 sums. */
export function isNearlyChosen(
  logits: ArrayLike<number>,
  request: OutputRequest,
  token: number,
): boolean {
  const uniform = uniformOf(request);
  const { sampling } = request;
  return [-1e-6, 0, 1e-6].some((byTopP) =>
    [-1e-6, 0, 1e-6].some((byMinP) => {
      const nudged = {
        ...sampling,
        topP: sampling.topP < 1 ? sampling.topP + byTopP : 1,
        minP: sampling.minP * (1 + byMinP),
      };
      const shares = candidates(logits, { ...request, sampling: nudged });
      return [-2e-6, 0, 2e-6].some((by) => draw(shares, uniform + by) === token);
    })
  );
}

/** Natural log-probabilities of all tokens. */
export function logSoftmax(logits: ArrayLike<number>): Float64Array {
  const values = Float64Array.from(logits);
  const largest = values.reduce((most, value) => Math.max(most, value), -Infinity);
  const sum = values.reduce((total, value) => total + Math.exp(value - largest), 0);
  return values.map((value) => value - largest - Math.log(sum));
}
