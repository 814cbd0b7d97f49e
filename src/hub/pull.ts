import { ForgeError } from "../errors.ts";
import { isJsonObject, type JsonValue } from "../formats/json.ts";
import { download } from "./download.ts";
import { delay, Interruption, persist, request } from "./http.ts";
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

/** How often a lock that another process has is tried. */
const LOCK_POLL_MS = 300;

/** How a download is followed and stopped. */
export interface PullOptions {
  /** Called as bytes arrive: the file, its bytes so far, and its size where the hub tells it. */
  readonly onProgress?: (file: string, bytes: number, total: number | undefined) => void;
  /** Called when another process downloads from the same repository, whose end is waited for. */
  readonly onWait?: () => void;
  readonly signal?: AbortSignal;
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
  const selection = selectFiles(repository, await listFiles(hub, options.signal), selector);
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
    sha256: file.sha256,
    onProgress: (bytes) => onProgress?.(file.path, bytes, file.bytes),
    signal,
  });
}

/** The files of a repository, with sizes and checksums. */
async function listFiles(hub: Hub, signal: AbortSignal | undefined): Promise<HubFile[]> {
  const { listing: url, headers } = hub;
  const body = await persist(url, signal, async () => {
    const response = await request(url, { headers, signal }).catch((error) => {
      if (!(error instanceof Interruption) || error.status !== undefined || signal?.aborted) {
        throw error;
      }
      // Of a hub that is not there the user hears at once.
      throw new ForgeError("not_found", `${hub.endpoint} cannot be reached: ${error.message}`, {
        cause: error,
      });
    });
    try {
      return await response.json() as JsonValue;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw Interruption.from(error);
      throw new ForgeError("bad_model", `${url} did not answer with JSON`, { cause: error });
    }
  });
  const siblings = isJsonObject(body) ? body.siblings : undefined;
  if (!Array.isArray(siblings)) {
    throw new ForgeError("bad_model", `${url} answered without a list of files ("siblings")`);
  }
  return siblings.flatMap(readFile);
}

function readFile(sibling: JsonValue): HubFile[] {
  if (!isJsonObject(sibling) || typeof sibling.rfilename !== "string") return [];
  const { rfilename: path, size, lfs } = sibling;
  const sha256 = isJsonObject(lfs) ? lfs.sha256 : undefined;
  return [{
    path,
    bytes: typeof size === "number" ? size : undefined,
    sha256: typeof sha256 === "string" && /^[0-9a-f]{64}$/.test(sha256) ? sha256 : undefined,
  }];
}

async function isWhole(path: string, file: HubFile): Promise<boolean> {
  try {
    const { size } = await Deno.stat(path);
    // A file takes its name only when it is whole, so that its size tells whether it is this one.
    return file.bytes === undefined || size === file.bytes;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
