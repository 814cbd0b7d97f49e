import { join } from "@std/path";
import { ForgeError } from "../errors.ts";
import { isJsonObject, type JsonValue } from "../formats/json.ts";
import { download, refusal } from "./download.ts";
import { parseModelReference } from "./model_reference.ts";
import {
  findModel,
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

/** How a download is followed and stopped. */
export interface PullOptions {
  /** Called as bytes arrive: the file, its bytes so far, and its size where the hub tells it. */
  readonly onProgress?: (file: string, bytes: number, total: number | undefined) => void;
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

  const endpoint = (Deno.env.get(ENDPOINT_VARIABLE) || DEFAULT_ENDPOINT).replace(/\/+$/, "");
  const token = Deno.env.get(TOKEN_VARIABLE);
  const headers: Record<string, string> = token ? { authorization: `Bearer ${token}` } : {};
  const files = await listFiles(endpoint, repository, revision, headers, options.signal);
  const selection = selectFiles(repository, files, selector);
  const folder = repositoryFolder(repository, revision);
  for (const file of selection.files) {
    const path = storedPath(folder, file);
    if (await isWhole(path, file)) continue;
    const location = file.path.split("/").map(encodeURIComponent).join("/");
    await download({
      url: `${endpoint}/${repository}/resolve/${revision}/${location}`,
      path,
      headers,
      bytes: file.bytes,
      sha256: file.sha256,
      onProgress: (bytes) => options.onProgress?.(file.path, bytes, file.bytes),
      signal: options.signal,
    });
  }
  await writeManifest(folder, name, selection);
  return findModel(name) ?? { name, path: join(folder, selection.entry), bytes: 0 };
}

/** The files of a repository, with sizes and checksums. */
async function listFiles(
  endpoint: string,
  repository: string,
  revision: string,
  headers: Record<string, string>,
  signal: AbortSignal | undefined,
): Promise<HubFile[]> {
  const url = `${endpoint}/api/models/${repository}/revision/${revision}?blobs=true`;
  let response: Response;
  try {
    response = await fetch(url, { headers, signal: signal ?? null });
  } catch (error) {
    if (signal?.aborted) throw new ForgeError("cancelled", "the download was stopped");
    const reason = error instanceof Error ? error.message : String(error);
    throw new ForgeError("not_found", `${endpoint} cannot be reached: ${reason}`, { cause: error });
  }
  if (!response.ok) {
    await response.body?.cancel();
    throw refusal(url, response.status);
  }
  let body: JsonValue;
  try {
    body = await response.json();
  } catch (error) {
    throw new ForgeError("bad_model", `${url} did not answer with JSON`, { cause: error });
  }
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
