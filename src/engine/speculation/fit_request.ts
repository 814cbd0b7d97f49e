import type { OutputRequest } from "../../backend.ts";

/**
 * What is asked of a model about its next token, asked of another one whose vocabulary is padded to
 * another size. Tokens that it does not have are left out.
 */
export function fitRequest(request: OutputRequest, vocabSize: number): OutputRequest {
  const { sampling, history, fillMask } = request;
  const { bias, mask } = sampling;
  const has = (token: number) => token < vocabSize;
  const fitting = {
    ...request,
    nTop: 0,
    history: Int32Array.from(history).filter(has),
    sampling: { ...sampling, bias: bias && new Map([...bias].filter(([token]) => has(token))) },
  };
  if (mask === undefined) return fitting;
  const words = new Uint32Array(Math.ceil(vocabSize / 32));
  const copy = () => {
    words.set(mask.subarray(0, words.length));
    const beyond = vocabSize % 32;
    if (beyond > 0) words[words.length - 1]! &= 2 ** beyond - 1;
  };
  if (fillMask === undefined) copy();
  return {
    ...fitting,
    sampling: { ...fitting.sampling, mask: words },
    fillMask: fillMask && (() => {
      fillMask();
      copy();
    }),
  };
}
