/**
 * Chooses tokens as devices do (`forge_sampling` in `csrc/forge.h`), for devices that take no masks. The
 * steps are those of `csrc/reference`: sums in double, draws by Philox4x32-10.
 */
import type { OutputRequest, SamplingParams, TokenLogprob } from "../backend.ts";
import { philoxUniform } from "./philox.ts";

interface Candidate {
  readonly token: number;
  readonly logit: number;
}

/** The larger logit first, the lower id on ties. */
function byRank(a: Candidate, b: Candidate): number {
  return b.logit - a.logit || a.token - b.token;
}

/**
 * The token of an output from all its logits, `[vocabSize]`; `undefined` when mask and bias leave none.
 */
export function chooseFromLogits(
  request: OutputRequest,
  logits: Float32Array,
): number | undefined {
  const { mask, bias } = request.sampling;
  const values = Float64Array.from(logits);
  penalize(values, request);
  for (const [token, value] of bias ?? []) values[token]! += Math.fround(value);
  const candidates: Candidate[] = [];
  for (let token = 0; token < values.length; token++) {
    if (values[token]! > -Infinity && allows(mask, token)) {
      candidates.push({ token, logit: values[token]! });
    }
  }
  return choose(request, candidates.sort(byRank));
}

/**
 * The token of an output from its most probable ones, best first, if those decide it. They do when the
 * chain looks at the best of what is allowed only, which all are among them.
 */
export function chooseFromTop(
  request: OutputRequest,
  top: readonly TokenLogprob[],
): number | undefined {
  const { sampling, history } = request;
  const penalizes = history.length > 0 && (sampling.repeatPenalty !== 1 ||
    sampling.presencePenalty !== 0 || sampling.frequencyPenalty !== 0);
  if (penalizes || sampling.bias !== undefined) return undefined;
  const needed = sampling.temperature === 0 ? 1 : sampling.topK;
  if (needed === 0) return undefined;
  const allowed = top.filter(({ token }) => allows(sampling.mask, token));
  // Log-probabilities differ from logits by one number, which cancels out.
  const candidates = allowed.slice(0, needed)
    .map(({ token, logprob }) => ({ token, logit: logprob }));
  return candidates.length < needed ? undefined : choose(request, candidates);
}

/** Whether a mask allows a token; all are where there is none. */
export function allows(mask: Uint32Array | undefined, token: number): boolean {
  return mask === undefined || (mask[token >>> 5]! >>> (token & 31) & 1) === 1;
}

function penalize(values: Float64Array, { sampling, history }: OutputRequest): void {
  const counts = new Map<number, number>();
  for (let i = 0; i < history.length; i++) {
    counts.set(history[i]!, (counts.get(history[i]!) ?? 0) + 1);
  }
  // The device's parameters are floats.
  const repeat = Math.fround(sampling.repeatPenalty);
  const presence = Math.fround(sampling.presencePenalty);
  const frequency = Math.fround(sampling.frequencyPenalty);
  for (const [token, count] of counts) {
    const value = values[token]!;
    values[token] = (value > 0 ? value / repeat : value * repeat) - (presence + count * frequency);
  }
}

/** Applies the chain behind the mask to candidates, best first. */
function choose(request: OutputRequest, candidates: readonly Candidate[]): number | undefined {
  const best = candidates[0];
  const { sampling } = request;
  if (best === undefined || sampling.temperature === 0) return best?.token;
  const kept = truncate(candidates, sampling, best.logit).sort((a, b) => a.token - b.token);
  const total = kept.reduce((sum, { weight }) => sum + weight, 0);
  const target = total * philoxUniform(sampling.seed, request.position, request.stream);
  let cumulative = 0;
  for (const { token, weight } of kept) {
    cumulative += weight;
    if (cumulative > target) return token;
  }
  return kept.at(-1)!.token;
}

function truncate(
  candidates: readonly Candidate[],
  { temperature, topK, topP, minP }: SamplingParams,
  largest: number,
): { token: number; weight: number }[] {
  const scale = Math.fround(temperature);
  const chosen = topK > 0 ? candidates.slice(0, topK) : candidates;
  // Relative to the best, which has 1.
  let weighed = chosen.map(({ token, logit }) => ({
    token,
    weight: Math.exp((logit - largest) / scale),
  }));
  if (topP < 1) {
    const share = Math.fround(topP) * weighed.reduce((sum, { weight }) => sum + weight, 0);
    let cumulative = 0;
    const end = weighed.findIndex(({ weight }) => (cumulative += weight) >= share);
    weighed = weighed.slice(0, end < 0 ? undefined : end + 1);
  }
  if (minP > 0) weighed = weighed.filter(({ weight }) => weight >= Math.fround(minP));
  return weighed;
}
