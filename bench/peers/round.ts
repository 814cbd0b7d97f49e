/** The task of a measured program, JSON on its stdin, and its answer. */

/** The work of one round. Prompts are prefixes of `tokens`. */
export interface RoundTask {
  readonly model: string;
  /** Bytes of weights read per decoded token. */
  readonly decodeBytes: number;
  /** The device of forge. */
  readonly device: string;
  readonly threads: number;
  /** Ids for all prompts and generated tokens. */
  readonly tokens: readonly number[];
  readonly nPrompt: number;
  /** Tokens to sample after the prompt; the first follows directly from the prompt. */
  readonly nGen: number;
  /** Sequences to decode at once, each after its own prompt; 0 to skip this test. */
  readonly nParallel: number;
  /** Tokens of each of those prompts. */
  readonly nParallelPrompt: number;
  /** Tokens in the cache before a further prefill and decode; 0 to skip this test. */
  readonly nDepth: number;
}

/** Printed by the program after it has sampled its first token, after a short prompt. */
export const FIRST_TOKEN = "first token";

/** Tokens of the first prompt. */
export const FIRST_PROMPT = 8;

/** The times of a round, in milliseconds, printed as the last line. */
export interface RoundTimes {
  /** From the prompt to the first sampled token, in a second, warm run. */
  readonly prefill_ms: number;
  /** From the first to the last sampled token. */
  readonly decode_ms: number;
  /** For `nGen` tokens of each of several sequences, together. */
  readonly parallel_ms?: number;
  /** Prefill and decode after `nDepth` tokens. */
  readonly depth_prefill_ms?: number;
  readonly depth_decode_ms?: number;
  /** Peak resident memory by the end of the first decoding, in bytes. */
  readonly peak_bytes?: number;
  /** Rate of reading weights in decoding, as a share of the bandwidth measured before and after. */
  readonly read_share?: number;
}

/**
 * The measured times of a round, and the time from start to first token if the program reports it.
 */
export interface RoundResult extends RoundTimes {
  readonly first_token_ms?: number;
}

/** @throws {SyntaxError} for anything else */
export function parseRoundTimes(text: string): RoundTimes {
  const times = JSON.parse(text) as RoundTimes;
  for (const [name, value] of Object.entries(times)) {
    if (!(value > 0)) throw new SyntaxError(`${name} is ${value}`);
  }
  const { prefill_ms, decode_ms } = times;
  if (prefill_ms === undefined || decode_ms === undefined) {
    throw new SyntaxError(`no times in ${text}`);
  }
  return times;
}
