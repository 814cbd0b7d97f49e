/** What a program under comparison is told, as JSON on its stdin, and what it answers. */

/** The work of one round. Prompts are taken from the front of `tokens`. */
export interface RoundTask {
  readonly model: string;
  /** Bytes of weights that a decoded token reads. */
  readonly decodeBytes: number;
  /** The device of forge. */
  readonly device: string;
  readonly threads: number;
  /** Ids for everything that is computed. */
  readonly tokens: readonly number[];
  readonly nPrompt: number;
  /** Tokens to choose after the prompt, the first being the prompt's. */
  readonly nGen: number;
  /** Sequences to decode at once, each after a prompt of its own; 0 for no such test. */
  readonly nParallel: number;
  /** Tokens of each of those prompts. */
  readonly nParallelPrompt: number;
  /** Tokens in the cache before a prompt and decoding behind them; 0 for no such test. */
  readonly nDepth: number;
}

/** What the program prints when it has chosen its first token, after a prompt of a few. */
export const FIRST_TOKEN = "first token";

/** Tokens of the first prompt. */
export const FIRST_PROMPT = 8;

/** The times of a round, in milliseconds, printed as the last line. */
export interface RoundTimes {
  /** From the prompt to the choice of the first token, after the same work was done once to warm up. */
  readonly prefill_ms: number;
  /** From there to the choice of the last token. */
  readonly decode_ms: number;
  /** Of `nGen` tokens of each of several sequences, together. */
  readonly parallel_ms?: number;
  /** The same prompt, and decoding, behind `nDepth` tokens. */
  readonly depth_prefill_ms?: number;
  readonly depth_decode_ms?: number;
  /** The most memory held resident up to the end of the first decoding, in bytes. */
  readonly peak_bytes?: number;
  /** What decoding reads of the weights, as a share of the bandwidth measured right before and after. */
  readonly read_share?: number;
}

/** A round as it was measured: its times, and the program's start to its first token if it tells. */
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
