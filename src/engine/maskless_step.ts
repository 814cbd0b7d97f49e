import type { OutputRequest, Step, StepInputs, StepOutput, StepResult, Value } from "../backend.ts";
import { ForgeError } from "../errors.ts";
import { chooseFromLogits, chooseFromTop } from "./host_sampler.ts";

/**
 * Makes a step whose device takes no masks behave as if it did: the most probable tokens come back, and
 * the mask is applied here. Where they do not decide, the logits are fetched.
 */
export class MasklessStep implements Step {
  readonly #step: Step;
  readonly #logits: Value;
  readonly #vocabSize: number;
  readonly #maxTop: number;

  /** @param logits what the step samples from, kept; @param maxTop the most tokens it reports */
  constructor(step: Step, logits: Value, vocabSize: number, maxTop: number) {
    this.#step = step;
    this.#logits = logits;
    this.#vocabSize = vocabSize;
    this.#maxTop = maxTop;
  }

  get scratchBytes(): number {
    return this.#step.scratchBytes;
  }

  async run(inputs: StepInputs): Promise<StepResult[]> {
    const { outputs } = inputs;
    const run = this.#step.run({ ...inputs, outputs: outputs.map((o) => this.#unmasked(o)) });
    const failures = fillMasks(outputs);
    const results = await run;
    return results.map((result, output) => {
      const request = outputs[output % outputs.length]!;
      const isChosenHere = request.sampling.mask !== undefined && !(result instanceof ForgeError) &&
        request.forcedToken === undefined;
      return failures.get(output) ??
        (isChosenHere ? this.#choose(request, result, output) : result);
    });
  }

  read(value: Value, cols: number, firstRow: number, nRows: number): Float32Array {
    return this.#step.read(value, cols, firstRow, nRows);
  }

  nativeTime(): number {
    return this.#step.nativeTime();
  }

  cancel(): void {
    this.#step.cancel();
  }

  release(): void {
    this.#step.release();
  }

  /** What the device is asked instead: the best tokens, whichever it would choose itself. */
  #unmasked(request: OutputRequest): OutputRequest {
    const { sampling, forcedToken } = request;
    if (sampling.mask === undefined) return request;
    if (forcedToken !== undefined) {
      return { ...request, sampling: { ...sampling, mask: undefined }, fillMask: undefined };
    }
    return {
      ...request,
      sampling: { ...sampling, mask: undefined, bias: undefined, temperature: 0 },
      history: [],
      nTop: this.#maxTop,
      fillMask: undefined,
    };
  }

  #choose(request: OutputRequest, { top }: StepOutput, output: number): StepResult {
    const reported = top.slice(0, request.nTop);
    const fromTop = chooseFromTop(request, top);
    const known = top.find(({ token }) => token === fromTop);
    if (known !== undefined) return { ...known, top: reported };
    const logits = this.#step.read(this.#logits, this.#vocabSize, output, 1);
    const token = chooseFromLogits(request, logits);
    if (token === undefined) {
      return new ForgeError("bad_input", "the mask and the logit bias leave no token to choose");
    }
    return { token, logprob: Math.fround(logits[token]! - logSumExp(logits)), top: reported };
  }
}

/** Fills the masks that are yet to be filled; returns what failed. */
function fillMasks(outputs: readonly OutputRequest[]): ReadonlyMap<number, ForgeError> {
  const failures = new Map<number, ForgeError>();
  for (const [i, { fillMask }] of outputs.entries()) {
    try {
      fillMask?.();
    } catch (error) {
      failures.set(
        i,
        error instanceof ForgeError ? error : new ForgeError("device", String(error)),
      );
    }
  }
  return failures;
}

/** The logarithm of the sum of `exp(logit)`. */
export function logSumExp(logits: Float32Array): number {
  let largest = -Infinity;
  for (const logit of logits) if (logit > largest) largest = logit;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - largest);
  return largest + Math.log(sum);
}
