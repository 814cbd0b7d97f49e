import { ForgeError } from "../errors.ts";
import { parseJson } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import { checksumOf, download } from "./download.ts";
import { delay, Interruption, persist, readBounded, request } from "./http.ts";
import { findInHubCache } from "./hub_cache.ts";
import { endpointOf, type Hub, HUBS } from "./hubs.ts";
import { hubName, type ModelReference, parseModelReference } from "./model_reference.ts";
import {
  findModel,
  listModels,
  lockRepository,
  removeLocked,
  repositoryFolder,
  type StoredModel,
  storedPath,
  writeManifest,
} from "./model_store.ts";
import { type HubFile, selectFiles } from "./select_files.ts";

/** Budget of a hub's file listing; the listing of a model with 10,000 files has 3 MB. */
const MAX_LISTING_BYTES = 16 * 2 ** 20;
const LISTING_TIMEOUT_MS = 60_000;

/** Interval between attempts to take a lock. */
const LOCK_POLL_MS = 300;

/** Progress and cancellation of a download. */
interface PullOptions {
  /**
   * Called as bytes arrive, with the file, its bytes so far, and its size if the hub reports it.
   */
  readonly onProgress?: (file: string, bytes: number, total: number | undefined) => void;
  /** Called before waiting for another process that downloads from the same repository. */
  readonly onWait?: () => void;
  readonly signal?: AbortSignal;
  /** Timeout of the file listing in milliseconds. @default 60000 */
  readonly listingTimeoutMs?: number;
}

/**
 * Downloads a model from the hub, or finds it in the store or in the hub's own cache.
 *
 * @param text `org/name` or `org/name:FILE-OR-QUANTIZATION`, with `@REVISION` after the name and
 * `modelscope:` before it, or the address of a model
 * @throws {ForgeError} `usage` for an invalid name; `not_found` if hub, model or file cannot be
 * reached; `bad_model` for a damaged file; `cancelled` if stopped
 */
export async function pull(text: string, options: PullOptions = {}): Promise<StoredModel> {
  const name = hubName(text);
  const reference = parseModelReference(name);
  const stored = findModel(name) ?? findInHubCache(name, reference);
  if (stored !== undefined) return stored;

  const listing = await listFiles(reference, options);
  const selection = selectFiles(reference.repository, listing.files, reference.selector);
  const folder = repositoryFolder(reference);
  for (const file of selection.files) storedPath(folder, file);
  using _lock = await waitForLock(folder, options);
  const pulledMeanwhile = findModel(name);
  if (pulledMeanwhile !== undefined) return pulledMeanwhile;
  await writeManifest(folder, name, selection);
  try {
    for (const file of selection.files) await pullFile(listing, folder, file, options);
  } catch (error) {
    // A download without any data is not listed.
    if (listModels().find((model) => model.name === name)?.bytes === 0) removeLocked(name);
    throw error;
  }
  return listModels().find((model) => model.name === name)!;
}

/** Locks a repository's folder; waits for another process if necessary. */
async function waitForLock(
  folder: string,
  { signal, onWait }: PullOptions,
): Promise<Disposable> {
  for (let tries = 0;; tries++) {
    const lock = lockRepository(folder);
    if (lock !== undefined) return lock;
    if (tries === 0) onWait?.();
    await delay(LOCK_POLL_MS, signal);
    if (signal?.aborted) throw new ForgeError("cancelled", "the download was stopped");
  }
}

async function pullFile(
  { filesAt, headers }: Listing,
  folder: string,
  file: HubFile,
  { signal, onProgress }: PullOptions,
): Promise<void> {
  const path = storedPath(folder, file);
  if (await isWhole(path, file)) return;
  await download({
    url: `${filesAt}/${file.path.split("/").map(encodeURIComponent).join("/")}`,
    path,
    headers,
    bytes: file.bytes,
    checksum: file.checksum,
    onProgress: (bytes) => onProgress?.(file.path, bytes, file.bytes),
    signal,
  });
}

/** Files of a repository, and how to request them. */
interface Listing {
  readonly files: readonly HubFile[];
  /** Address of the folder of the files, of the commit that was listed if the hub names it. */
  readonly filesAt: string;
  readonly headers: Readonly<Record<string, string>>;
}

async function listFiles(
  { hub: hubName, repository, revision }: ModelReference,
  { signal, listingTimeoutMs = LISTING_TIMEOUT_MS }: PullOptions,
): Promise<Listing> {
  const hub: Hub = HUBS[hubName];
  const endpoint = endpointOf(hub);
  if (!/^https?:\/\/[^/]/.test(endpoint) || !URL.canParse(endpoint)) {
    throw new ForgeError(
      "usage",
      `${hub.endpointVariable} is ${quote(endpoint)}; valid is an address such as ${hub.address}`,
    );
  }
  const url = `${endpoint}${hub.listingPath(repository, revision)}`;
  const token = Deno.env.get(hub.tokenVariable);
  const headers = token ? hub.headers(token) : {};
  const timeout = new AbortController();
  const signals = [timeout.signal, ...(signal === undefined ? [] : [signal])];
  const timer = setTimeout(() => timeout.abort(), listingTimeoutMs);
  let text: string | undefined;
  try {
    text = await persist(url, AbortSignal.any(signals), async () => {
      const response = await request(url, { headers, signal: AbortSignal.any(signals) })
        .catch((error) => {
          const isAnswer = !(error instanceof Interruption) || error.status !== undefined;
          if (isAnswer || signals.some((each) => each.aborted)) throw error;
          // An unreachable hub is reported without retries.
          throw new ForgeError("not_found", `${endpoint} cannot be reached: ${error.message}`, {
            cause: error,
          });
        });
      return await readBounded(response, MAX_LISTING_BYTES);
    });
  } catch (error) {
    if (!timeout.signal.aborted || signal?.aborted) throw error;
    throw new ForgeError(
      "not_found",
      `${url} did not list its files within ${listingTimeoutMs / 1000} s`,
      { cause: error },
    );
  } finally {
    clearTimeout(timer);
  }
  if (text === undefined) {
    throw new ForgeError(
      "bad_model",
      `${url} answered with more than ${MAX_LISTING_BYTES / 2 ** 20} MiB; ` +
        "a list of files is shorter",
    );
  }
  const listing = hub.readListing(parseJson(text, url));
  if (typeof listing === "string") {
    throw new ForgeError("bad_model", `${url} answered without a list of files ("${listing}")`);
  }
  const { files, commit = revision } = listing;
  return { files, filesAt: `${endpoint}${hub.modelsPath}${repository}/resolve/${commit}`, headers };
}

/**
 * True if a file of an earlier pull is the one that the hub lists now. A revision such as `main`
 * may have moved, so equal sizes are not enough: without a checksum the file is fetched again.
 */
async function isWhole(path: string, file: HubFile): Promise<boolean> {
  try {
    const { size } = await Deno.stat(path);
    if (file.checksum === undefined || size !== (file.bytes ?? size)) return false;
    return await checksumOf(path, file.checksum.kind) === file.checksum.value;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
