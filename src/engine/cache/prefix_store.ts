import { createHash } from "node:crypto";
import { join } from "node:path";
import { ForgeError } from "../../errors.ts";
import { InputFile, reasonOf } from "../../formats/file.ts";
import { quote } from "../../formats/quote.ts";
import type { Runner } from "../runner.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import { commonLength, type SequenceAdapters, TokenList } from "../token_list.ts";
import { publishPrompt, writePrompt } from "./prompt_cache.ts";
import { type PromptCacheKey, PromptCacheReader } from "./prompt_cache_file.ts";

/** Options of a {@linkcode PrefixStore}. */
interface PrefixStoreOptions {
  /** The most bytes of its files; the least recently used are removed. @default 8 GiB */
  readonly maxBytes?: number | undefined;
  /**
   * Time after an answer in which the next turn may replace what would be written. @default 10000
   */
  readonly delayMs?: number | undefined;
  /** Receives a line about each file that is removed because it cannot be used. */
  readonly onWarning: (line: string) => void;
}

/** Default of `maxBytes`. */
const DEFAULT_STORE_BYTES = 8 * 2 ** 30;
const DEFAULT_DELAY_MS = 10_000;

/**
 * Names of files: digests of the key and of the tokens. Other files of the folder are not touched.
 */
const NAME = /^([0-9a-f]{16})-[0-9a-f]{16}\.forge-kv$/;
const UNFINISHED = /^[0-9a-f]{16}-[0-9a-f]{16}\.forge-kv\.[0-9a-f]{8}\.part$/;

/** Age at which an unfinished file is one of a process that ended. */
const ABANDONED_MS = 3_600_000;

/** A file is loaded if at least this share of its tokens is of use. */
const MIN_USE = 1 / 4;

/** A model whose prefixes are kept. */
interface StoredModel {
  readonly key: PromptCacheKey;
  readonly runner: Runner;
  readonly scheduler: Scheduler;
  /** Adapters that its tokens are computed with, which are part of the key. */
  readonly adapters?: SequenceAdapters | undefined;
}

/**
 * Keeps cached prefixes in a folder, as files of prompt caches, and loads those that a new prompt
 * begins with. Several processes may share the folder: files appear whole, are checked when they
 * are read, and may disappear at any time.
 *
 * A prefix is written a while after its last use, or when the model closes, so that a conversation
 * is written once and not after each turn. A file replaces those of its own beginnings.
 */
export class PrefixStore {
  readonly #folder: string;
  readonly #model: StoredModel;
  readonly #options: PrefixStoreOptions;
  readonly #keyDigest: string;
  readonly #maxBytes: number;
  /** Tokens of this model's files, by name. */
  readonly #known = new Map<string, Int32Array>();
  /** Prefixes to write, oldest first. */
  #pending: Int32Array[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The files being loaded, by name. */
  readonly #loading = new Map<string, Promise<void>>();
  /** Settles when nothing is being written. */
  #writing: Promise<void> = Promise.resolve();
  #canWrite = true;

  /** @throws {ForgeError} `usage` if the folder cannot be made */
  constructor(folder: string, model: StoredModel, options: PrefixStoreOptions) {
    this.#folder = folder;
    this.#model = model;
    this.#options = options;
    this.#maxBytes = options.maxBytes ?? DEFAULT_STORE_BYTES;
    this.#keyDigest = digest(JSON.stringify(model.key));
    try {
      Deno.mkdirSync(folder, { recursive: true });
    } catch (error) {
      throw new ForgeError("usage", `cannot use the folder ${quote(folder)}: ${reasonOf(error)}`);
    }
  }

  /** Loads the file that most of a prompt's tokens begin with, if it has more than the cache. */
  async fetch(tokens: Int32Array): Promise<void> {
    const { scheduler, runner, adapters } = this.#model;
    if (tokens.length <= runner.pages.pageTokens) return;
    this.#refresh();
    const most = tokens.length - 1;
    const cached = scheduler.cache.match(new TokenList(tokens, adapters), most).length;
    const least = cached + runner.pages.pageTokens;
    let best: { readonly name: string; readonly length: number } | undefined;
    for (const [name, stored] of this.#known) {
      const length = Math.min(most, commonLength(stored, tokens));
      // A recurrent state cannot be cut.
      const isUsable = scheduler.cache.hasStates
        ? length === stored.length
        : length >= MIN_USE * stored.length;
      if (isUsable && length >= Math.max(least, (best?.length ?? 0) + 1)) best = { name, length };
    }
    if (best === undefined) return;
    const { name } = best;
    const loading = this.#loading.get(name) ??
      this.#load(name).finally(() => this.#loading.delete(name));
    this.#loading.set(name, loading);
    await loading;
  }

  /**
   * Takes the tokens of an ended sequence, of which the cache has the beginning.
   *
   * @param promptLength number of them that are the prompt, which may come again without the answer
   */
  offer(tokens: Int32Array, promptLength: number): void {
    this.#add(tokens);
    // The state after the answer does not serve the prompt.
    if (this.#model.scheduler.cache.hasStates) this.#add(tokens.subarray(0, promptLength - 1));
  }

  #add(tokens: Int32Array): void {
    if (!this.#canWrite || tokens.length <= this.#model.runner.pages.pageTokens) return;
    const isPart = (part: Int32Array) => commonLength(part, tokens) === part.length;
    const { hasStates } = this.#model.scheduler.cache;
    this.#pending = this.#pending.filter((one) => hasStates ? !isSame(one, tokens) : !isPart(one));
    this.#pending.push(tokens);
    this.#timer ??= setTimeout(
      () => void this.flush(),
      this.#options.delayMs ?? DEFAULT_DELAY_MS,
    );
    Deno.unrefTimer(this.#timer);
  }

  /** Writes what is pending. Never rejects. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    return this.#writing = this.#writing.then(async () => {
      for (let next = this.#pending.shift(); next !== undefined; next = this.#pending.shift()) {
        try {
          await this.#write(next);
        } catch (error) {
          // The model was closed, or the folder does not take files.
          this.#canWrite = false;
          this.#pending = [];
          if (error instanceof ForgeError && error.code === "not_found") {
            this.#options.onWarning(`prompts are no longer kept on disk: ${error.message}`);
          }
        }
      }
    });
  }

  async #load(name: string): Promise<void> {
    const { key, runner, scheduler, adapters } = this.#model;
    const path = join(this.#folder, name);
    try {
      using file = InputFile.open(path);
      await publishPrompt(new PromptCacheReader(file, key), key, runner, scheduler, adapters);
    } catch (error) {
      return this.#drop(name, error);
    }
    try {
      const now = new Date();
      Deno.utimeSync(path, now, now);
    } catch {
      // Another process removed it, or owns it.
    }
  }

  async #write(tokens: Int32Array): Promise<void> {
    const { key, runner, scheduler, adapters } = this.#model;
    const pageBytes = key.page_bytes.reduce((sum, bytes) => sum + bytes, 0);
    // One page's bytes are left for the header, the tokens and the checksum.
    const maxPages = Math.max(0, Math.floor(this.#maxBytes / Math.max(1, pageBytes)) - 1);
    const most = Math.min(tokens.length, maxPages * key.page_tokens);
    using table = runner.newSequence();
    const list = new TokenList(tokens, adapters);
    const length = await scheduler.betweenSteps(() => scheduler.cache.borrow(list, most, table));
    if (length < key.page_tokens) return;
    const prefix = tokens.slice(0, length);
    const name = `${this.#keyDigest}-${digest(new Uint8Array(prefix.buffer))}.forge-kv`;
    this.#refresh();
    const isStored = [...this.#known].some(([other, known]) =>
      other === name || (!scheduler.cache.hasStates && commonLength(known, prefix) === length)
    );
    if (isStored) return;
    const state = await scheduler.betweenSteps(() => runner.readSlot(table.slot));
    const content = { tokens: prefix, pages: table.pages, state };
    await writePrompt(join(this.#folder, name), key, content, runner, scheduler);
    for (const [other, known] of this.#known) {
      const isPart = commonLength(known, prefix) === known.length;
      if (isPart && !scheduler.cache.hasStates) this.#remove(other);
    }
    this.#known.set(name, prefix);
    this.#evict(name);
  }

  /** Learns of files that other processes wrote or removed. */
  #refresh(): void {
    const names = new Set(this.#names().filter((name) => NAME.exec(name)?.[1] === this.#keyDigest));
    for (const name of this.#known.keys()) if (!names.has(name)) this.#known.delete(name);
    for (const name of names) {
      if (this.#known.has(name)) continue;
      try {
        using file = InputFile.open(join(this.#folder, name));
        this.#known.set(name, new PromptCacheReader(file, this.#model.key).tokens);
      } catch (error) {
        this.#drop(name, error);
      }
    }
  }

  #names(): string[] {
    try {
      return [...Deno.readDirSync(this.#folder)].map(({ name }) => name);
    } catch {
      return [];
    }
  }

  /** Removes a file that cannot be used. */
  #drop(name: string, error: unknown): void {
    if (!(error instanceof ForgeError)) throw error;
    // Another process removed it.
    if (error.code === "not_found" || error.code === "device") return;
    this.#remove(name);
    this.#options.onWarning(`removed ${quote(join(this.#folder, name))}: ${error.message}`);
  }

  #remove(name: string): void {
    this.#known.delete(name);
    try {
      Deno.removeSync(join(this.#folder, name));
    } catch {
      // Another process removed it, or may.
    }
  }

  /** Removes the least recently used files, of any model, until the rest fits the limit. */
  #evict(newest: string): void {
    const now = Date.now();
    const files = this.#names().flatMap((name) => {
      if (!NAME.test(name) && !UNFINISHED.test(name)) return [];
      try {
        const { size, mtime } = Deno.statSync(join(this.#folder, name));
        return [{ name, size, at: mtime?.getTime() ?? 0 }];
      } catch {
        return [];
      }
    });
    for (const { name, at } of files) {
      if (UNFINISHED.test(name) && now - at > ABANDONED_MS) this.#remove(name);
    }
    const complete = files.filter(({ name }) => NAME.test(name)).sort((a, b) => a.at - b.at);
    let total = complete.reduce((sum, { size }) => sum + size, 0);
    for (const { name, size } of complete) {
      if (total <= this.#maxBytes) return;
      if (name === newest) continue;
      this.#remove(name);
      total -= size;
    }
  }
}

function isSame(a: Int32Array, b: Int32Array): boolean {
  return a.length === b.length && commonLength(a, b) === a.length;
}

function digest(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("hex").slice(0, 16);
}
