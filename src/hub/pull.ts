import { ForgeError } from "../errors.ts";
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from "../formats/json.ts";
import { type Checksum, checksumOf, download } from "./download.ts";
import { delay, Interruption, persist, readBounded, request } from "./http.ts";
import { parseModelReference } from "./model_reference.ts";
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

/** Environment variables that choose another hub, and the token it is asked with. */
export const ENDPOINT_VARIABLE = "HF_ENDPOINT";
const TOKEN_VARIABLE = "HF_TOKEN";

const DEFAULT_ENDPOINT = "https://huggingface.co";

/** Budget of a hub's list of files; that of a model with 10,000 files takes 3 MB. */
const MAX_LISTING_BYTES = 16 * 2 ** 20;
const LISTING_TIMEOUT_MS = 60_000;

/** How often a lock that another process has is tried. */
const LOCK_POLL_MS = 300;

/** How a download is followed and stopped. */
export interface PullOptions {
  /** Called as bytes arrive: the file, its bytes so far, and its size where the hub tells it. */
  readonly onProgress?: (file: string, bytes: number, total: number | undefined) => void;
  /** Called when another process downloads from the same repository, whose end is waited for. */
  readonly onWait?: () => void;
  readonly signal?: AbortSignal;
  /** How long the hub may take to list the files, in milliseconds. @default 60000 */
  readonly listingTimeoutMs?: number;
}

/**
 * Downloads a model from the hub, or finds it among those downloaded before.
 *
 * @param name `org/name`, `org/name:FILE-OR-QUANTISATION`, with `@REVISION` after the name
 * @throws {ForgeError} `usage` for a text that is no such name; `not_found` when hub, model or file
 * cannot be reached; `bad_model` when a file arrives damaged; `cancelled` when stopped.
 */
export async function pull(name: string, options: PullOptions = {}): Promise<StoredModel> {
  const { repository, revision, selector } = parseModelReference(name);
  const stored = findModel(name);
  if (stored !== undefined) return stored;

  const hub = hubOf(repository, revision);
  const selection = selectFiles(repository, await listFiles(hub, options), selector);
  const folder = repositoryFolder(repository, revision);
  for (const file of selection.files) storedPath(folder, file);
  using _lock = await waitForLock(folder, options);
  const pulledMeanwhile = findModel(name);
  if (pulledMeanwhile !== undefined) return pulledMeanwhile;
  await writeManifest(folder, name, selection);
  try {
    for (const file of selection.files) await pullFile(hub, folder, file, options);
  } catch (error) {
    // What has not begun to arrive is not worth a line in the list.
    if (listModels().find((model) => model.name === name)?.bytes === 0) removeLocked(name);
    throw error;
  }
  return listModels().find((model) => model.name === name)!;
}

/** A repository's revision on a hub, and how it is asked. */
interface Hub {
  readonly endpoint: string;
  readonly listing: string;
  /** Where its files are, with a slash at the end. */
  readonly files: string;
  readonly headers: Readonly<Record<string, string>>;
}

function hubOf(repository: string, revision: string): Hub {
  const endpoint = (Deno.env.get(ENDPOINT_VARIABLE) || DEFAULT_ENDPOINT).replace(/\/+$/, "");
  const token = Deno.env.get(TOKEN_VARIABLE);
  return {
    endpoint,
    listing: `${endpoint}/api/models/${repository}/revision/${revision}?blobs=true`,
    files: `${endpoint}/${repository}/resolve/${revision}/`,
    headers: token ? { authorization: `Bearer ${token}` } : {},
  };
}

/** Takes the lock of a repository's folder, if need be after the process that has it. */
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
  folder: string,
  file: HubFile,
  { signal, onProgress }: PullOptions,
): Promise<void> {
  const path = storedPath(folder, file);
  if (await isWhole(path, file)) return;
  await download({
    url: hub.files + file.path.split("/").map(encodeURIComponent).join("/"),
    path,
    headers: hub.headers,
    bytes: file.bytes,
    checksum: file.checksum,
    onProgress: (bytes) => onProgress?.(file.path, bytes, file.bytes),
    signal,
  });
}

/** The files of a repository, with sizes and checksums. */
async function listFiles(
  { endpoint, listing: url, headers }: Hub,
  { signal, listingTimeoutMs = LISTING_TIMEOUT_MS }: PullOptions,
): Promise<HubFile[]> {
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
          // Of a hub that is not there the user hears at once.
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
  const siblings = isJsonObject(body) ? body.siblings : undefined;
  if (!Array.isArray(siblings)) {
    throw new ForgeError("bad_model", `${url} answered without a list of files ("siblings")`);
  }
  return siblings.flatMap(readFile);
}

function readFile(sibling: JsonValue): HubFile[] {
  if (!isJsonObject(sibling) || typeof sibling.rfilename !== "string") return [];
  const { rfilename: path, size } = sibling;
  const bytes = Number.isSafeInteger(size) && (size as number) >= 0 ? size as number : undefined;
  return [{ path, bytes, checksum: readChecksum(sibling) }];
}

/** The SHA-256 of a large file, or the name that Git gives a small one. */
function readChecksum({ lfs, blobId }: JsonObject): Checksum | undefined {
  if (isJsonObject(lfs)) {
    const { sha256 } = lfs;
    const isHash = typeof sha256 === "string" && /^[0-9a-f]{64}$/.test(sha256);
    return isHash ? { kind: "SHA-256", value: sha256 } : undefined;
  }
  const isHash = typeof blobId === "string" && /^[0-9a-f]{40}$/.test(blobId);
  return isHash ? { kind: "Git blob", value: blobId } : undefined;
}

/**
 * Returns true if a file of an earlier pull is the one that the hub lists now. A revision such as
 * `main` may have moved since, so that equal sizes prove nothing: without a checksum the file is
 * fetched again.
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
