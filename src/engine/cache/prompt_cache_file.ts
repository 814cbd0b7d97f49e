/**
 * The file of a prompt's keys and values. All numbers are little-endian:
 *
 * - 8 bytes "forge-kv", then u32 version and u32 length of the header
 * - the header: JSON, UTF-8, the members of {@linkcode PromptCacheHeader}
 * - i32 token ids
 * - the pages, one after another, each as the bytes of every layer in turn
 * - the recurrent state after the last token, as the bytes of every state cache in turn
 * - SHA-256 of all that
 */
import { createHash, type Hash } from "node:crypto";
import { ForgeError } from "../../errors.ts";
import type { InputFile } from "../../formats/file.ts";
import { isJsonObject, type JsonValue } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";

const MAGIC = "forge-kv";
const VERSION = 2;
const PREFIX_BYTES = 16;
const CHECKSUM_BYTES = 32;

/** Limit of a header, which has one number for each layer. */
const MAX_HEADER_BYTES = 2 ** 20;

/**
 * Everything but the tokens that keys and values depend on. A file is valid if all of it agrees.
 */
export interface PromptCacheKey {
  /** Digest of configuration and weights. */
  readonly model: string;
  /** Kind and kernels of the device, which decide the layout of pages. */
  readonly device: string;
  readonly kv_type: string;
  readonly page_tokens: number;
  /** Bytes of a page in each layer. */
  readonly page_bytes: readonly number[];
  /** Bytes of a slot in each state cache; empty in a model without recurrent state. */
  readonly state_bytes: readonly number[];
  /** Context length if the model's positions depend on it, else `null`. */
  readonly context_length: number | null;
  /** Digests and scales of the adapters, if any. */
  readonly adapters?: string | undefined;
}

/** Header of a file. */
interface PromptCacheHeader extends PromptCacheKey {
  /** Number of token ids that follow. */
  readonly tokens: number;
}

/** Names of the members in messages. */
const MEMBERS: Record<keyof PromptCacheKey, string> = {
  model: "model",
  device: "device",
  kv_type: "KV type",
  page_tokens: "page size",
  page_bytes: "page layout",
  state_bytes: "layout of states",
  context_length: "context length",
  adapters: "set of adapters",
};

/** Writes a file from its beginning to its end. */
export class PromptCacheWriter {
  readonly #file: Deno.FsFile;
  readonly #hash = createHash("sha256");

  constructor(file: Deno.FsFile) {
    this.#file = file;
  }

  async begin(key: PromptCacheKey, tokens: Int32Array): Promise<void> {
    const header = new TextEncoder().encode(JSON.stringify({ ...key, tokens: tokens.length }));
    const prefix = new Uint8Array(PREFIX_BYTES);
    prefix.set(new TextEncoder().encode(MAGIC));
    const view = new DataView(prefix.buffer);
    view.setUint32(8, VERSION, true);
    view.setUint32(12, header.length, true);
    await this.write(prefix);
    await this.write(header);
    const ids = new DataView(new ArrayBuffer(4 * tokens.length));
    tokens.forEach((id, i) => ids.setInt32(4 * i, id, true));
    await this.write(new Uint8Array(ids.buffer));
  }

  async write(data: Uint8Array): Promise<void> {
    this.#hash.update(data);
    await writeAll(this.#file, data);
  }

  async end(): Promise<void> {
    await writeAll(this.#file, this.#hash.digest());
  }
}

async function writeAll(file: Deno.FsFile, data: Uint8Array): Promise<void> {
  for (let done = 0; done < data.length;) done += await file.write(data.subarray(done));
}

/** Reads a file from its beginning to its end. Every failure is a `ForgeError` that names it. */
export class PromptCacheReader {
  readonly tokens: Int32Array;
  readonly #file: InputFile;
  readonly #hash: Hash = createHash("sha256");
  #at = 0;

  /**
   * Reads everything before the pages.
   *
   * @throws {ForgeError} `bad_input` for a file of another kind, a damaged file, or another key,
   * naming the difference.
   */
  constructor(file: InputFile, key: PromptCacheKey) {
    this.#file = file;
    const { tokens, ...made } = this.#readHeader();
    this.#checkKey(made, key);
    const total = (sizes: readonly number[]) => sizes.reduce((sum, bytes) => sum + bytes, 0);
    const nPages = Math.ceil(tokens / key.page_tokens);
    const expected = this.#at + 4 * tokens + nPages * total(key.page_bytes) +
      total(key.state_bytes) + CHECKSUM_BYTES;
    if (file.size !== expected) {
      throw this.#damaged(`it has ${file.size} bytes instead of ${expected}`);
    }
    const ids = this.read(4 * tokens);
    const view = new DataView(ids.buffer);
    this.tokens = Int32Array.from({ length: tokens }, (_, i) => view.getInt32(4 * i, true));
  }

  read(bytes: number): Uint8Array<ArrayBuffer> {
    const data = new Uint8Array(bytes);
    this.#file.readAt(this.#at, data);
    this.#at += bytes;
    this.#hash.update(data);
    return data;
  }

  /** @throws {ForgeError} `bad_input` if the checksum differs */
  end(): void {
    const actual = this.#hash.digest();
    const expected = new Uint8Array(CHECKSUM_BYTES);
    this.#file.readAt(this.#at, expected);
    if (actual.some((byte, i) => byte !== expected[i])) {
      throw this.#damaged("its checksum is wrong");
    }
  }

  #readHeader(): PromptCacheHeader {
    if (this.#file.size < PREFIX_BYTES) throw this.#foreign();
    const prefix = this.read(PREFIX_BYTES);
    if (new TextDecoder().decode(prefix.subarray(0, 8)) !== MAGIC) throw this.#foreign();
    const view = new DataView(prefix.buffer);
    const [version, length] = [view.getUint32(8, true), view.getUint32(12, true)];
    if (version !== VERSION) {
      throw new ForgeError(
        "bad_input",
        `${this.#name} is of version ${version}, this forge reads ${VERSION}; delete it`,
      );
    }
    if (length > Math.min(MAX_HEADER_BYTES, this.#file.size - this.#at)) {
      throw this.#damaged(`its header would have ${length} bytes`);
    }
    const header = parseHeader(new TextDecoder().decode(this.read(length)));
    if (header === undefined) throw this.#damaged("its header is not one");
    return header;
  }

  #checkKey(made: PromptCacheKey, key: PromptCacheKey): void {
    for (const member of Object.keys(MEMBERS) as (keyof PromptCacheKey)[]) {
      const [was, is] = [made[member], key[member]].map(String);
      if (was === is) continue;
      const isShown = !["model", "adapters", "page_bytes", "state_bytes"].includes(member);
      const values = !isShown ? "" : ` (${was} instead of ${is})`;
      throw new ForgeError(
        "bad_input",
        `${this.#name} was made with another ${
          MEMBERS[member]
        }${values}; delete it or name another`,
      );
    }
  }

  get #name(): string {
    return `the prompt cache ${quote(this.#file.path)}`;
  }

  #foreign(): ForgeError {
    return new ForgeError("bad_input", `${quote(this.#file.path)} is not a prompt cache of forge`);
  }

  #damaged(why: string): ForgeError {
    return new ForgeError("bad_input", `${this.#name} is damaged: ${why}; delete it`);
  }
}

function parseHeader(text: string): PromptCacheHeader | undefined {
  let json: JsonValue;
  try {
    json = JSON.parse(text) as JsonValue;
  } catch {
    return undefined;
  }
  if (!isJsonObject(json)) return undefined;
  const { model, device, kv_type, page_tokens, page_bytes, state_bytes } = json;
  const { context_length, adapters, tokens } = json;
  if (typeof model !== "string" || typeof device !== "string" || typeof kv_type !== "string") {
    return undefined;
  }
  if (!isCount(page_tokens) || !isCount(tokens) || !isCounts(page_bytes)) return undefined;
  if (!isCounts(state_bytes)) return undefined;
  if (context_length !== null && !isCount(context_length)) return undefined;
  if (adapters !== undefined && typeof adapters !== "string") return undefined;
  return {
    model,
    device,
    kv_type,
    page_tokens,
    page_bytes,
    state_bytes,
    context_length,
    adapters,
    tokens,
  };
}

function isCount(value: JsonValue | undefined): value is number {
  return typeof value === "number" && Number.isInteger(value) && value > 0 && value < 2 ** 31;
}

function isCounts(value: JsonValue | undefined): value is number[] {
  return Array.isArray(value) && value.every(isCount);
}
