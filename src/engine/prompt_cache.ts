import { ForgeError } from "../errors.ts";
import { InputFile } from "../formats/file.ts";
import { quote } from "../formats/quote.ts";
import { PublishedPrefix } from "./prefix_cache.ts";
import { type PromptCacheKey, PromptCacheReader, PromptCacheWriter } from "./prompt_cache_file.ts";
import type { Runner } from "./runner.ts";
import type { Scheduler } from "./scheduler.ts";
import { computePages } from "./score.ts";
import { TokenList } from "./token_list.ts";

/**
 * Saves the keys and values of a prompt, which is computed as far as it is not known. Pages are read
 * between the steps of whatever else runs. The file appears when it is complete.
 *
 * @throws {ForgeError} `not_found` when it cannot be written; `cancelled` when the signal is raised
 */
export async function savePrompt(
  path: string,
  tokens: Int32Array,
  key: PromptCacheKey,
  runner: Runner,
  scheduler: Scheduler,
  signal?: AbortSignal,
): Promise<void> {
  const pages = await computePages(scheduler, runner.pages, tokens, signal);
  const part = `${path}.${crypto.randomUUID()}.part`;
  try {
    using file = await Deno.open(part, { write: true, createNew: true });
    const writer = new PromptCacheWriter(file);
    await writer.begin(key, tokens);
    for (const page of pages) {
      signal?.throwIfAborted();
      const layers = await scheduler.betweenSteps(() => runner.readPage(page));
      for (const data of layers) await writer.write(data);
    }
    await writer.end();
    await Deno.rename(part, path);
  } catch (error) {
    await Deno.remove(part).catch(() => {});
    if (signal?.aborted) throw new ForgeError("cancelled", "stopped on request");
    if (error instanceof ForgeError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new ForgeError("not_found", `cannot write ${quote(path)}: ${reason}`, { cause: error });
  } finally {
    for (const page of pages) runner.pages.release(page);
  }
}

/**
 * Makes a saved prompt known to the prefix cache, so that prompts that begin like it find it there.
 *
 * @returns its tokens
 * @throws {ForgeError} `not_found` when there is no such file; `bad_input` when it is damaged, was made
 * with something else than `key` says, or does not fit the KV cache.
 */
export async function loadPrompt(
  path: string,
  key: PromptCacheKey,
  runner: Runner,
  scheduler: Scheduler,
): Promise<Int32Array> {
  using file = InputFile.open(path);
  const reader = new PromptCacheReader(file, key);
  const { tokens } = reader;
  using table = runner.newSequence();
  if (!table.reserve(tokens.length)) {
    throw new ForgeError(
      "bad_input",
      `the prompt cache ${
        quote(path)
      } holds ${tokens.length} tokens, for which the KV cache has no ` +
        "room now",
    );
  }
  for (const page of table.pages) {
    const layers = key.page_bytes.map((bytes) => reader.read(bytes));
    await scheduler.betweenSteps(() => runner.writePage(page, layers));
  }
  reader.end();
  const list = new TokenList(tokens);
  scheduler.cache.publish(table, new PublishedPrefix(), list, tokens.length, true);
  return tokens;
}
