/** Limits and defaults of what the library, the command line and requests may ask of a model. */

/** Largest count of tokens or of anything else in the native library. */
export const MAX_COUNT = 2 ** 31 - 1;

/** Most threads that compute. */
export const MAX_THREADS = 1024;

/** Most NUMA nodes of a processor. */
export const MAX_NODES = 64;

/** Most devices of a model. */
export const MAX_DEVICES = 64;

/** Longest default context. */
export const DEFAULT_CONTEXT = 32768;

/** Default number of sequences computed at a time. */
export const DEFAULT_PARALLEL = 32;

/** Most sequences computed at a time. */
export const MAX_PARALLEL = 256;

/** Most completions of one prompt; OpenAI's limit. */
export const MAX_COMPLETIONS = 128;

/** Most alternatives reported for a token; OpenAI's limit. */
export const MAX_LOGPROBS = 20;

/** Most draft tokens of one sequence. */
export const MAX_DRAFTED = 32;

/** Most draft tokens of one sequence at the same position. */
export const MAX_TREE_WIDTH = 8;

/** Most branches of the draft trees of one step. */
export const MAX_BRANCHES = 16;
