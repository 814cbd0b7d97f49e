import { ForgeError } from "../../errors.ts";
import { InputFile, reasonOf, Replacement } from "../../formats/file.ts";
import { quote } from "../../formats/quote.ts";
import { PublishedPrefix } from "./prefix_cache.ts";
import { type PromptCacheKey, PromptCacheReader, PromptCacheWriter } from "./prompt_cache_file.ts";
import type { Runner } from "../runner.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import { computePages } from "../generation/score.ts";
import { type SequenceAdapters, TokenList } from "../token_list.ts";

/**
 * Saves the keys and values of a prompt after computing what the cache lacks. Pages are read
 * between steps. The file appears once it is complete.
 *
 * With recurrent state, the last token is left out: the same prompt always computes its last token,
 * from the state before it.
 *
 * @throws {ForgeError} `not_found` if the file cannot be written; `cancelled` if the signal is
 * raised
 */
export async function savePrompt(
  path: string,
  tokens: Int32Array,
  key: PromptCacheKey,
  runner: Runner,
  scheduler: Scheduler,
  signal?: AbortSignal,
  adapters?: SequenceAdapters,
): Promise<void> {
  const saved = runner.slots === undefined ? tokens : tokens.subarray(0, -1);
  if (saved.length === 0) {
    throw new ForgeError("bad_input", "a prompt of 1 token leaves nothing to save of this model");
  }
  const { pages, state } = await computePages(scheduler, runner.pages, saved, signal, adapters);
  try {
    await writePrompt(path, key, { tokens: saved, pages, state }, runner, scheduler, signal);
  } finally {
    for (const page of pages) runner.pages.release(page);
  }
}

/** Tokens with the pages that hold them, and the recurrent state after them. */
interface PromptContent {
  readonly tokens: Int32Array;
  readonly pages: readonly number[];
  readonly state: readonly Uint8Array[];
}

/**
 * Writes a file of pages in use, reading them between steps. The file appears once it is complete.
 *
 * @throws {ForgeError} as {@linkcode savePrompt}
 */
export async function writePrompt(
  path: string,
  key: PromptCacheKey,
  { tokens, pages, state }: PromptContent,
  runner: Runner,
  scheduler: Scheduler,
  signal?: AbortSignal,
): Promise<void> {
  try {
    using replacement = new Replacement(path);
    const writer = new PromptCacheWriter(replacement.file);
    await writer.begin(key, tokens);
    for (const page of pages) {
      signal?.throwIfAborted();
      const layers = await scheduler.betweenSteps(() => runner.readPage(page));
      for (const data of layers) await writer.write(data);
    }
    for (const data of state) await writer.write(data);
    await writer.end();
    replacement.commit().close();
  } catch (error) {
    if (signal?.aborted) throw new ForgeError("cancelled", "stopped on request");
    if (error instanceof ForgeError) throw error;
    throw new ForgeError("not_found", `cannot write ${quote(path)}: ${reasonOf(error)}`, {
      cause: error,
    });
  }
}

/**
 * Publishes a saved prompt to the prefix cache, for prompts that begin like it.
 *
 * @returns the prompt's tokens
 * @throws {ForgeError} `not_found` for a missing file; `bad_input` for a file that is damaged, has
 * another key, or does not fit the KV cache.
 */
export async function loadPrompt(
  path: string,
  key: PromptCacheKey,
  runner: Runner,
  scheduler: Scheduler,
  adapters?: SequenceAdapters,
): Promise<Int32Array> {
  using file = InputFile.open(path);
  const reader = new PromptCacheReader(file, key);
  const { tokens } = reader;
  if (await publishPrompt(reader, key, runner, scheduler, adapters)) return tokens;
  throw new ForgeError(
    "bad_input",
    `the prompt cache ${
      quote(path)
    } holds ${tokens.length} tokens, for which the KV cache has no ` +
      "room now",
  );
}

/**
 * Publishes the rest of a file to the prefix cache.
 *
 * @returns false if the KV cache has no room
 * @throws {ForgeError} `bad_input` if the file is damaged
 */
export async function publishPrompt(
  reader: PromptCacheReader,
  key: PromptCacheKey,
  runner: Runner,
  scheduler: Scheduler,
  adapters?: SequenceAdapters,
): Promise<boolean> {
  const { tokens } = reader;
  using table = runner.newSequence();
  if (!table.reserve(tokens.length)) return false;
  for (const page of table.pages) {
    const layers = key.page_bytes.map((bytes) => reader.read(bytes));
    await scheduler.betweenSteps(() => runner.writePage(page, layers));
  }
  const state = key.state_bytes.map((bytes) => reader.read(bytes));
  const { slot } = table;
  if (slot !== undefined) await scheduler.betweenSteps(() => runner.writeSlot(slot, state));
  reader.end();
  const list = new TokenList(tokens, adapters);
  const published = new PublishedPrefix();
  scheduler.cache.publish(table, published, list, tokens.length, true);
  scheduler.cache.publishState(table, published, list, tokens.length, false);
  return true;
}
