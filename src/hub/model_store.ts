import { dirname, join } from "node:path";
import { ForgeError } from "../errors.ts";
import { homeFolder, isFile, reasonOf } from "../formats/file.ts";
import { quote } from "../formats/quote.ts";
import { partFiles, partPath } from "./download.ts";
import { isModelReference, type ModelReference, parseModelReference } from "./model_reference.ts";
import type { Selection } from "./select_files.ts";

/** Environment variable that names the folder of downloaded models. */
export const CACHE_VARIABLE = "FORGE_CACHE";

/** A downloaded model, or one whose download has begun. */
export interface StoredModel {
  /** The reference it was pulled by. */
  readonly name: string;
  /** The file or folder to open. */
  readonly path: string;
  /** Bytes on disk. */
  readonly bytes: number;
  /** Size of the complete model; null if the hub does not report it. */
  readonly total_bytes: number | null;
  /** True if all files are complete. */
  readonly complete: boolean;
}

/** Manifest stored with the files of a model from the start of its download. */
interface Manifest {
  readonly name: string;
  readonly entry: string;
  /** Files get their names when complete. `bytes` is null if the hub does not report it. */
  readonly files: readonly { readonly path: string; readonly bytes: number | null }[];
}

/** Returns the folder of downloaded models. */
export function storeFolder(): string {
  const chosen = Deno.env.get(CACHE_VARIABLE);
  if (chosen) return chosen;
  const home = homeFolder();
  const local = Deno.build.os === "windows" ? Deno.env.get("LOCALAPPDATA") : undefined;
  const base = Deno.env.get("XDG_CACHE_HOME") || local || (home && join(home, ".cache"));
  if (!base) {
    throw new ForgeError("not_found", `no home folder is known; set ${CACHE_VARIABLE} to a folder`);
  }
  return join(base, "forge");
}

/** Returns the folder of a repository's revision. */
export function repositoryFolder({ hub, repository, revision }: ModelReference): string {
  const [organization = "", name = ""] = repository.split("/");
  // No organization has an @ in its name.
  const prefix = hub === "huggingface" ? "" : `${hub}@`;
  return join(storeFolder(), "models", prefix + organization, name, revision);
}

/**
 * Returns the path of a repository's file in the store.
 *
 * @throws {ForgeError} `bad_model` for a path that leads out of the folder or has a name that the
 * store uses itself: hidden files are manifests, and `.part` files are incomplete
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
 * Records the files of a model before its download.
 *
 * @throws {ForgeError} `device` if it cannot be written
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
 * Locks a repository's folder against downloads and removals by other processes.
 *
 * @returns `undefined` while another process holds the lock
 * @throws {ForgeError} `device` if the folder cannot be written
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

/** Returns the models whose download has begun, sorted by name. */
export function listModels(): StoredModel[] {
  return readRecords().map(storedModel).sort((a, b) => a.name < b.name ? -1 : 1);
}

/**
 * Removes a model, complete or not, except files that another model shares.
 *
 * @returns the model with the number of freed bytes, or `undefined` for an unknown name
 * @throws {ForgeError} `device` while it is being downloaded
 */
export function removeModel(name: string): StoredModel | undefined {
  const record = readRecords().find(({ manifest }) => manifest.name === name);
  if (record === undefined) return undefined;
  using lock = lockRepository(record.folder);
  if (lock === undefined) {
    throw new ForgeError(
      "device",
      `${name} is being downloaded by another process; stop that process first`,
    );
  }
  return removeLocked(name);
}

/** Implements {@linkcode removeModel} for callers that hold the lock. */
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

/** Returns the complete model that was pulled by a name. */
export function findModel(name: string): StoredModel | undefined {
  return listModels().find((model) => model.name === name && model.complete);
}

const MANIFESTS = ".forge";

function manifestPath(folder: string, entry: string): string {
  return join(folder, MANIFESTS, `${entry.replaceAll("/", "_") || "folder"}.json`);
}

/** A manifest and its location. */
interface ModelRecord {
  /** Folder of the repository's revision. */
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

/** Number of bytes of a file on disk, complete or partial. */
function bytesHere(folder: string, path: string): number {
  return sizeOf(join(folder, path)) ?? sizeOf(partPath(join(folder, path))) ?? 0;
}

function sizeOf(path: string): number | undefined {
  return isFile(path) ? Deno.statSync(path).size : undefined;
}

/** Reads a manifest. Returns `undefined` for a damaged one, whose model is then pulled again. */
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

/** True if a manifest names its own repository, and an entry in its list of files. */
function isOfFolder({ name, entry, files }: Manifest, folder: string, path: string): boolean {
  if (!isModelReference(name) || path !== manifestPath(folder, entry)) return false;
  return folder === repositoryFolder(parseModelReference(name)) &&
    (entry === "" || files.some((file) => file.path === entry));
}

/** Returns the folders exactly `depth` levels below a folder. */
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

/** Removes a folder of the store and its parents while they are empty. */
function removeEmpty(folder: string): void {
  const root = storeFolder();
  for (let path = folder; path.startsWith(join(root, "models", "/")); path = dirname(path)) {
    if (readFolder(path).length > 0) return;
    removeIfThere(path);
  }
}

const NAME = "lock";

/** True if a name in a folder of the store is that of its lock. */
function isLock(name: string): boolean {
  return name === NAME;
}

/**
 * Locks an existing folder against other processes, until disposal or the end of this process. On
 * file systems without locks it succeeds without one.
 *
 * @returns `undefined` while another process holds the lock
 */
function tryLockFolder(folder: string): Disposable | undefined {
  const file = Deno.openSync(join(folder, NAME), { create: true, write: true });
  let isMine = true;
  try {
    isMine = file.tryLockSync(true);
  } catch {
    // Without locks, concurrent downloads are still detected by the checksum.
  }
  if (isMine) return file;
  file.close();
  return undefined;
}
