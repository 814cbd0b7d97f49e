import { dirname, join } from "@std/path";
import { ForgeError } from "../errors.ts";
import { isFile, reasonOf } from "../formats/file.ts";
import { quote } from "../formats/quote.ts";
import { partFiles, partPath } from "./download.ts";
import { isLock, tryLockFolder } from "./folder_lock.ts";
import { isModelReference, parseModelReference } from "./model_reference.ts";
import type { Selection } from "./select_files.ts";

/** Environment variable that names the folder of downloaded models. */
export const CACHE_VARIABLE = "FORGE_CACHE";

/** A downloaded model, or one whose download has begun. */
export interface StoredModel {
  /** The reference it was pulled by. */
  readonly name: string;
  /** The file or folder to open. */
  readonly path: string;
  /** How much of it is here. */
  readonly bytes: number;
  /** How large it is; null where the hub does not tell. */
  readonly total_bytes: number | null;
  /** Whether all of it is here. */
  readonly complete: boolean;
}

/** What lies beside the files of a model from the beginning of its download on. */
interface Manifest {
  readonly name: string;
  readonly entry: string;
  /** A file takes its name when it is whole. Its bytes are null where the hub does not tell them. */
  readonly files: readonly { readonly path: string; readonly bytes: number | null }[];
}

/** The folder that downloaded models are kept in. */
export function storeFolder(): string {
  const chosen = Deno.env.get(CACHE_VARIABLE);
  if (chosen) return chosen;
  const home = Deno.env.get("HOME") ?? Deno.env.get("USERPROFILE");
  const base = Deno.env.get("XDG_CACHE_HOME") || (home && join(home, ".cache"));
  if (!base) {
    throw new ForgeError("not_found", `no home folder is known; set ${CACHE_VARIABLE} to a folder`);
  }
  return join(base, "forge");
}

/** The folder of one repository's revision. */
export function repositoryFolder(repository: string, revision: string): string {
  return join(storeFolder(), "models", ...repository.split("/"), revision);
}

/**
 * Where a file of a repository goes.
 *
 * @throws {ForgeError} `bad_model` for a path that would leave the folder, or be taken for one of the
 * store's own files: hidden ones hold manifests, partial ones are continued.
 */
export function storedPath(folder: string, file: { readonly path: string }): string {
  if (!isSafePath(file.path)) {
    throw new ForgeError(
      "bad_model",
      `the hub names a file ${quote(file.path)}, which is not safe`,
    );
  }
  return join(folder, ...file.path.split("/"));
}

function isSafePath(path: string): boolean {
  return path.split("/").every((part) =>
    part !== "" && !/^\.|\.part(\.\w+)?$|[\\:\p{C}]/iu.test(part)
  );
}

/**
 * Records what a model consists of, before its download begins.
 *
 * @throws {ForgeError} `device` where it cannot be written
 */
export async function writeManifest(folder: string, name: string, selection: Selection) {
  const files = selection.files.map(({ path, bytes = null }) => ({ path, bytes }));
  const manifest: Manifest = { name, entry: selection.entry, files };
  const path = manifestPath(folder, selection.entry);
  const temporary = `${path}.${Deno.pid}.tmp`;
  await Deno.writeTextFile(temporary, JSON.stringify(manifest, null, 2) + "\n");
  await Deno.rename(temporary, path);
}

/**
 * Keeps other processes from downloading to a folder of a repository, or removing from it.
 *
 * @returns undefined while another process does so
 * @throws {ForgeError} `device` where the folder cannot be written
 */
export function lockRepository(folder: string): Disposable | undefined {
  const path = join(folder, MANIFESTS);
  try {
    Deno.mkdirSync(path, { recursive: true });
    return tryLockFolder(path);
  } catch (error) {
    if (!(error instanceof Error) || error instanceof Deno.errors.NotCapable) throw error;
    throw new ForgeError(
      "device",
      `cannot write ${folder}: ${reasonOf(error)}; ${CACHE_VARIABLE} names another folder`,
      { cause: error },
    );
  }
}

/** The models whose download has begun, by name. */
export function listModels(): StoredModel[] {
  return readRecords().map(storedModel).sort((a, b) => a.name < b.name ? -1 : 1);
}

/**
 * Removes a model, whole or not, but for files that another one needs too.
 *
 * @returns the model with the bytes that are free now; undefined where there is none of that name.
 * @throws {ForgeError} `device` while it is being downloaded
 */
export function removeModel(name: string): StoredModel | undefined {
  const record = readRecords().find(({ manifest }) => manifest.name === name);
  if (record === undefined) return undefined;
  using lock = lockRepository(record.folder);
  if (lock === undefined) {
    throw new ForgeError(
      "device",
      `${name} is being downloaded by another process; end that first`,
    );
  }
  return removeLocked(name);
}

/** Does what {@linkcode removeModel} does for a caller who has the lock. */
export function removeLocked(name: string): StoredModel | undefined {
  const records = readRecords();
  const record = records.find(({ manifest }) => manifest.name === name);
  if (record === undefined) return undefined;
  const { folder, path } = record;
  const removed = storedModel(record);
  const kept = new Set(
    records.filter((other) => other.folder === folder && other.path !== path)
      .flatMap(({ manifest }) => manifest.files.map((file) => file.path)),
  );
  const files = record.manifest.files.filter((file) => !kept.has(file.path));
  const paths = files.map((file) => storedPath(folder, file));
  const bytes = files.reduce((total, file) => total + bytesHere(folder, file.path), 0);
  for (const path of paths.flatMap((path) => [path, ...partFiles(path)]).filter(isFile)) {
    removeIfThere(path);
  }
  Deno.removeSync(path);
  const manifests = join(folder, MANIFESTS);
  if (readFolder(manifests).every((entry) => isLock(entry.name))) {
    Deno.removeSync(manifests, { recursive: true });
  }
  for (const path of paths) removeEmpty(dirname(path));
  removeEmpty(folder);
  return { ...removed, bytes };
}

/** The complete model that was pulled by a name. */
export function findModel(name: string): StoredModel | undefined {
  return listModels().find((model) => model.name === name && model.complete);
}

const MANIFESTS = ".forge";

function manifestPath(folder: string, entry: string): string {
  return join(folder, MANIFESTS, `${entry.replaceAll("/", "_") || "folder"}.json`);
}

/** A manifest and where it is. */
interface ModelRecord {
  /** Of the repository's revision. */
  readonly folder: string;
  readonly path: string;
  readonly manifest: Manifest;
}

function readRecords(): ModelRecord[] {
  return subfolders(join(storeFolder(), "models"), 3).flatMap((folder) =>
    readFolder(join(folder, MANIFESTS)).flatMap((entry) => {
      const path = join(folder, MANIFESTS, entry.name);
      const manifest = readManifest(folder, path);
      return manifest === undefined ? [] : [{ folder, path, manifest }];
    })
  );
}

function storedModel({ folder, manifest: { name, entry, files } }: ModelRecord): StoredModel {
  return {
    name,
    path: join(folder, entry),
    bytes: files.reduce((total, { path }) => total + bytesHere(folder, path), 0),
    total_bytes: files.reduce<number | null>(
      (total, { bytes }) => total === null || bytes === null ? null : total + bytes,
      0,
    ),
    complete: files.every(({ path, bytes }) => {
      const size = sizeOf(join(folder, path));
      return size !== undefined && (bytes === null || size === bytes);
    }),
  };
}

/** How much of a file has arrived. */
function bytesHere(folder: string, path: string): number {
  return sizeOf(join(folder, path)) ?? sizeOf(partPath(join(folder, path))) ?? 0;
}

function sizeOf(path: string): number | undefined {
  return isFile(path) ? Deno.statSync(path).size : undefined;
}

/** The manifest at a path, unless it is half-written or foreign: the model is then pulled again. */
function readManifest(folder: string, path: string): Manifest | undefined {
  try {
    const manifest: unknown = JSON.parse(Deno.readTextFileSync(path));
    return isManifest(manifest) && isOfFolder(manifest, folder, path) ? manifest : undefined;
  } catch {
    return undefined;
  }
}

function isManifest(value: unknown): value is Manifest {
  const { name, entry, files } = (value ?? {}) as Partial<Record<keyof Manifest, unknown>>;
  return typeof name === "string" && typeof entry === "string" && Array.isArray(files) &&
    files.every((file) =>
      typeof file?.path === "string" && isSafePath(file.path) &&
      (file.bytes === null || Number.isSafeInteger(file.bytes))
    );
}

/** True if a manifest speaks of its own repository, and of a file that it lists. */
function isOfFolder({ name, entry, files }: Manifest, folder: string, path: string): boolean {
  if (!isModelReference(name) || path !== manifestPath(folder, entry)) return false;
  const { repository, revision } = parseModelReference(name);
  return folder === repositoryFolder(repository, revision) &&
    (entry === "" || files.some((file) => file.path === entry));
}

/** Folders exactly `depth` levels below a folder. */
function subfolders(folder: string, depth: number): string[] {
  if (depth === 0) return [folder];
  return readFolder(folder)
    .filter((entry) => entry.isDirectory)
    .flatMap((entry) => subfolders(join(folder, entry.name), depth - 1));
}

function readFolder(folder: string): Deno.DirEntry[] {
  try {
    return [...Deno.readDirSync(folder)];
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    throw error;
  }
}

function removeIfThere(path: string): void {
  try {
    Deno.removeSync(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

/** Removes a folder of the store and those around it, as far as they are empty. */
function removeEmpty(folder: string): void {
  const root = storeFolder();
  for (let path = folder; path.startsWith(join(root, "models", "/")); path = dirname(path)) {
    if (readFolder(path).length > 0) return;
    removeIfThere(path);
  }
}
