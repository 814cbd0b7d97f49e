/**
 * The cache of Hugging Face's own programs, read only: `models--ORG--NAME/refs/REVISION` names a
 * commit, and `snapshots/COMMIT/` has the files that were downloaded of it, as links.
 */
import { join } from "node:path";
import { ForgeError } from "../errors.ts";
import { expandHome, homeFolder, isFile } from "../formats/file.ts";
import type { ModelReference } from "./model_reference.ts";
import type { StoredModel } from "./model_store.ts";
import { type HubFile, selectFiles } from "./select_files.ts";

/** Returns the folder of the cache, which may be missing. */
function cacheFolder(): string | undefined {
  const chosen = Deno.env.get("HF_HUB_CACHE") || Deno.env.get("HUGGINGFACE_HUB_CACHE");
  if (chosen) return expandHome(chosen);
  const home = Deno.env.get("HF_HOME");
  if (home) return join(expandHome(home), "hub");
  const user = homeFolder();
  const base = Deno.env.get("XDG_CACHE_HOME") || (user && join(user, ".cache"));
  return base ? join(base, "huggingface", "hub") : undefined;
}

/**
 * Finds a model of which the cache has all files.
 *
 * @param name the name that the result gets
 */
export function findInHubCache(name: string, reference: ModelReference): StoredModel | undefined {
  const { hub, repository, revision, selector } = reference;
  const cache = hub === "huggingface" ? cacheFolder() : undefined;
  if (cache === undefined) return undefined;
  const folder = join(cache, `models--${repository.replace("/", "--")}`);
  const snapshot = join(folder, "snapshots", commitOf(folder, revision));
  try {
    const { files, entry } = selectFiles(repository, listFiles(snapshot, ""), selector);
    if (!hasAllParts(files)) return undefined;
    const bytes = files.reduce((sum, file) => sum + file.bytes!, 0);
    return { name, path: join(snapshot, entry), bytes, total_bytes: bytes, complete: true };
  } catch (error) {
    // The hub is asked for what the cache lacks.
    if (error instanceof ForgeError) return undefined;
    throw error;
  }
}

/** Returns the commit of a branch or tag; another revision is a commit itself. */
function commitOf(folder: string, revision: string): string {
  try {
    const commit = Deno.readTextFileSync(join(folder, "refs", revision)).trim();
    return /^[0-9a-f]{40}$/.test(commit) ? commit : revision;
  } catch {
    return revision;
  }
}

function listFiles(folder: string, prefix: string): HubFile[] {
  let entries: Deno.DirEntry[];
  try {
    entries = [...Deno.readDirSync(folder)];
  } catch {
    return [];
  }
  return entries.flatMap(({ name, isDirectory }): HubFile[] => {
    const [path, at] = [`${prefix}${name}`, join(folder, name)];
    if (isDirectory) return listFiles(at, `${path}/`);
    // The target of a link may have been removed.
    if (!isFile(at)) return [];
    return [{ path, bytes: Deno.statSync(at).size, checksum: undefined }];
  });
}

/** True unless a part of a model of several files is missing, or a folder's tokenizer. */
function hasAllParts(files: readonly HubFile[]): boolean {
  const paths = files.map(({ path }) => path);
  const parts = paths.flatMap((path) => /-\d{5}-of-(\d{5})\.\w+$/.exec(path)?.[1] ?? []);
  const isFolder = paths.some((path) => path.endsWith(".safetensors"));
  return parts.every((count) => Number(count) === parts.length) &&
    (!isFolder || paths.includes("tokenizer.json"));
}
