import { ForgeError } from "../errors.ts";
import { isJsonObject, type JsonValue, parseJson } from "../formats/json.ts";
import { type Checksum, checksumOf, download } from "./download.ts";
import { delay, Interruption, persist, readBounded, request } from "./http.ts";
import { findInHubCache } from "./hub_cache.ts";
import {
  type HubName,
  hubName,
  type ModelReference,
  parseModelReference,
} from "./model_reference.ts";
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

/** Addresses of the hubs, the variables for another address and for a token. */
const HUBS: Readonly<Record<HubName, { address: string; endpoint: string; token: string }>> = {
  huggingface: { address: "https://huggingface.co", endpoint: "HF_ENDPOINT", token: "HF_TOKEN" },
  modelscope: {
    address: "https://modelscope.cn",
    endpoint: "MODELSCOPE_ENDPOINT",
    token: "MODELSCOPE_API_TOKEN",
  },
};

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
  const { repository, selector } = reference;
  const stored = findModel(name) ?? findInHubCache(name, reference);
  if (stored !== undefined) return stored;

  const hub = hubOf(reference);
  const listing = await listFiles(hub, options);
  const selection = selectFiles(repository, listing.files, selector);
  const folder = repositoryFolder(reference);
  for (const file of selection.files) storedPath(folder, file);
  using _lock = await waitForLock(folder, options);
  const pulledMeanwhile = findModel(name);
  if (pulledMeanwhile !== undefined) return pulledMeanwhile;
  await writeManifest(folder, name, selection);
  try {
    for (const file of selection.files) await pullFile(hub, listing, folder, file, options);
  } catch (error) {
    // A download without any data is not listed.
    if (listModels().find((model) => model.name === name)?.bytes === 0) removeLocked(name);
    throw error;
  }
  return listModels().find((model) => model.name === name)!;
}

/** Addresses and headers of a repository's revision on a hub. */
interface Hub {
  readonly name: HubName;
  readonly endpoint: string;
  readonly revision: string;
  readonly listing: string;
  /** Base address of the files of all revisions, with a slash at the end. */
  readonly files: string;
  readonly headers: Readonly<Record<string, string>>;
}

function hubOf({ hub: name, repository, revision }: ModelReference): Hub {
  const { address, endpoint: variable, token: tokenVariable } = HUBS[name];
  const endpoint = (Deno.env.get(variable) || address).replace(/\/+$/, "");
  const token = Deno.env.get(tokenVariable);
  const authorization = token ? { authorization: `Bearer ${token}` } : {};
  if (name === "huggingface") {
    return {
      name,
      endpoint,
      revision,
      listing: `${endpoint}/api/models/${repository}/revision/${revision}?blobs=true`,
      files: `${endpoint}/${repository}/resolve/`,
      headers: authorization,
    };
  }
  return {
    name,
    endpoint,
    revision,
    listing:
      `${endpoint}/api/v1/models/${repository}/repo/files?Revision=${revision}&Recursive=true`,
    files: `${endpoint}/models/${repository}/resolve/`,
    // ModelScope's own programs send both.
    headers: token ? { ...authorization, cookie: `m_session_id=${token}` } : {},
  };
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
  hub: Hub,
  { revision }: Listing,
  folder: string,
  file: HubFile,
  { signal, onProgress }: PullOptions,
): Promise<void> {
  const path = storedPath(folder, file);
  if (await isWhole(path, file)) return;
  await download({
    url: hub.files + [revision, ...file.path.split("/")].map(encodeURIComponent).join("/"),
    path,
    headers: hub.headers,
    bytes: file.bytes,
    checksum: file.checksum,
    onProgress: (bytes) => onProgress?.(file.path, bytes, file.bytes),
    signal,
  });
}

/** Files of a repository with sizes and checksums. */
interface Listing {
  readonly files: readonly HubFile[];
  /** The commit that was listed, so that files of a branch that moves are not mixed, if known. */
  readonly revision: string;
}

async function listFiles(
  { name, endpoint, listing: url, headers, revision }: Hub,
  { signal, listingTimeoutMs = LISTING_TIMEOUT_MS }: PullOptions,
): Promise<Listing> {
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
  const body = parseJson(text, url);
  if (name === "modelscope") {
    const list = isJsonObject(body) && isJsonObject(body.Data) ? body.Data.Files : undefined;
    if (!Array.isArray(list)) throw noListing(url, "Data.Files");
    const files = list.filter(isJsonObject).filter(({ Type }) => Type !== "tree")
      .flatMap(({ Path, Size, Sha256 }) => listedFile(Path, Size, sha256Checksum(Sha256)));
    return { files, revision };
  }
  const { siblings, sha } = isJsonObject(body) ? body : {};
  if (!Array.isArray(siblings)) throw noListing(url, "siblings");
  const files = siblings.filter(isJsonObject).flatMap(({ rfilename, size, lfs, blobId }) =>
    listedFile(rfilename, size, gitChecksum(lfs, blobId))
  );
  const isCommit = typeof sha === "string" && /^[0-9a-f]{40}$/.test(sha);
  return { files, revision: isCommit ? sha : revision };
}

function noListing(url: string, key: string): ForgeError {
  return new ForgeError("bad_model", `${url} answered without a list of files ("${key}")`);
}

function listedFile(
  path: JsonValue | undefined,
  size: JsonValue | undefined,
  checksum: Checksum | undefined,
): HubFile[] {
  if (typeof path !== "string") return [];
  const bytes = Number.isSafeInteger(size) && (size as number) >= 0 ? size as number : undefined;
  return [{ path, bytes, checksum }];
}

function sha256Checksum(value: JsonValue | undefined): Checksum | undefined {
  const isHash = typeof value === "string" && /^[0-9a-f]{64}$/.test(value);
  return isHash ? { kind: "SHA-256", value } : undefined;
}

/** Returns the SHA-256 of a large file or the Git blob id of a small one. */
function gitChecksum(
  lfs: JsonValue | undefined,
  blobId: JsonValue | undefined,
): Checksum | undefined {
  if (isJsonObject(lfs)) return sha256Checksum(lfs.sha256);
  const isHash = typeof blobId === "string" && /^[0-9a-f]{40}$/.test(blobId);
  return isHash ? { kind: "Git blob", value: blobId } : undefined;
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
