/** Adapts output requests to drafters whose tokens are not all those of the model. */
import type { OutputRequest, StepResult } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";

/** Tokens of a drafter. */
interface DraftTokens {
  readonly size: number;
  /** Returns a drafter's id of a token of the model, -1 if the drafter lacks it. */
  readonly idOf: (token: number) => number;
  /** Overwrites a mask of the drafter's tokens by one of the model's. */
  readonly copyMask: (from: Uint32Array, to: Uint32Array) => void;
}

/** Adapts a request. Tokens that the drafter lacks are left out. */
function adapted(request: OutputRequest, { size, idOf, copyMask }: DraftTokens): OutputRequest {
  const { sampling, history, fillMask } = request;
  const { bias, mask } = sampling;
  const own = bias && new Map(
    [...bias].map(([token, value]) => [idOf(token), value] as const).filter(([id]) => id >= 0),
  );
  const words = mask && new Uint32Array(Math.ceil(size / 32));
  const copy = () => {
    if (mask !== undefined) copyMask(mask, words!);
  };
  if (fillMask === undefined) copy();
  return {
    ...request,
    nTop: 0,
    history: Int32Array.from(history, idOf).filter((id) => id >= 0),
    sampling: { ...sampling, bias: own, mask: words },
    fillMask: fillMask && (() => {
      fillMask();
      copy();
    }),
  };
}

/** Adapts a request to a model whose vocabulary is padded to another size. */
export function fitRequest(request: OutputRequest, vocabSize: number): OutputRequest {
  return adapted(request, {
    size: vocabSize,
    idOf: (token) => token < vocabSize ? token : -1,
    copyMask: (from, to) => {
      to.set(from.subarray(0, to.length));
      const beyond = vocabSize % 32;
      if (beyond > 0) to[to.length - 1]! &= 2 ** beyond - 1;
    },
  });
}

/** Vocabulary of a head that drafts only some of the model's tokens. */
export class ReducedVocabulary {
  readonly #tokens: Int32Array;
  readonly #own: DraftTokens;

  /** @param tokens the model's token of each of the head's */
  constructor(tokens: Int32Array, vocabSize: number) {
    const ids = new Int32Array(vocabSize).fill(-1);
    tokens.forEach((token, id) => ids[token] = id);
    this.#tokens = tokens;
    this.#own = {
      size: tokens.length,
      idOf: (token) => ids[token] ?? -1,
      copyMask: (from, to) => {
        to.fill(0);
        for (const [id, token] of tokens.entries()) {
          if (from[token >> 5]! >> (token & 31) & 1) to[id >> 5]! |= 1 << (id & 31);
        }
      },
    };
  }

  /** Adapts a request to the head's tokens. */
  request(request: OutputRequest): OutputRequest {
    return adapted(request, this.#own);
  }

  /** Returns results with the model's tokens. */
  results(results: readonly StepResult[][]): StepResult[][] {
    return results.map((of) =>
      of.map((result) =>
        result instanceof ForgeError ? result : {
          ...result,
          token: this.#tokens[result.token]!,
          top: result.top.map(({ token, logprob }) => ({ token: this.#tokens[token]!, logprob })),
        }
      )
    );
  }
}
