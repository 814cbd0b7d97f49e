/**
 * The most that can be asked of a model, whoever asks: the library, the command line and requests. And
 * what holds where nothing is asked.
 */

/** The largest number of tokens, or of anything that is counted, that the native library can be told. */
export const MAX_COUNT = 2 ** 31 - 1;

/** Threads that compute. */
export const MAX_THREADS = 1024;

/** The context a model is opened with, at most, when none is asked for. */
export const DEFAULT_CONTEXT = 32768;

/** Sequences that are computed at a time, at most, when no number is asked for. */
export const DEFAULT_PARALLEL = 32;

/** The most sequences that are computed at a time. */
export const MAX_PARALLEL = 256;

/** The most completions of one prompt; OpenAI's limit. */
export const MAX_COMPLETIONS = 128;

/** The most alternatives that are reported for a token; OpenAI's limit. */
export const MAX_LOGPROBS = 20;

/** The most tokens that are guessed ahead of one sequence. */
export const MAX_DRAFTED = 32;
