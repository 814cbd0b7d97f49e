import { dirname, join } from "@std/path";
import { ForgeError } from "../errors.ts";
import type { Selection } from "./select_files.ts";

/** Environment variable that names the folder of downloaded models. */
export const CACHE_VARIABLE = "FORGE_CACHE";

/** A downloaded model. */
export interface StoredModel {
  /** The reference it was pulled by. */
  readonly name: string;
  /** The file or folder to open. */
  readonly path: string;
  readonly bytes: number;
}

/** What a finished download leaves beside its files; without it a model counts as incomplete. */
interface Manifest {
  readonly name: string;
  readonly entry: string;
  readonly files: readonly { readonly path: string; readonly bytes: number }[];
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
 * @throws {ForgeError} `bad_model` for a path that would leave the folder.
 */
export function storedPath(folder: string, file: { readonly path: string }): string {
  const parts = file.path.split("/");
  if (parts.some((part) => part === "" || part === "." || part === ".." || /[\\:\0]/.test(part))) {
    throw new ForgeError("bad_model", `the hub names a file "${file.path}", which is not safe`);
  }
  return join(folder, ...parts);
}

/** Records that everything of a selection has arrived. */
export async function writeManifest(folder: string, name: string, selection: Selection) {
  const files = await Promise.all(selection.files.map(async (file) => ({
    path: file.path,
    bytes: (await Deno.stat(storedPath(folder, file))).size,
  })));
  const manifest: Manifest = { name, entry: selection.entry, files };
  const path = manifestPath(folder, selection.entry);
  await Deno.mkdir(dirname(path), { recursive: true });
  const temporary = `${path}.${Deno.pid}.tmp`;
  await Deno.writeTextFile(temporary, JSON.stringify(manifest, null, 2) + "\n");
  await Deno.rename(temporary, path);
}

/** The models whose download is complete, by name. */
export function listModels(): StoredModel[] {
  return readRecords()
    .filter(({ folder, manifest }) => isComplete(folder, manifest))
    .map(storedModel)
    .sort((a, b) => a.name < b.name ? -1 : 1);
}

/**
 * Removes a downloaded model, but for files that another model needs too. Its record goes first: what
 * is left after an interruption counts as incomplete.
 *
 * @returns the model with the bytes that are free now; undefined where there is none of that name.
 */
export function removeModel(name: string): StoredModel | undefined {
  const records = readRecords();
  const record = records.find(({ manifest }) => manifest.name === name);
  if (record === undefined) return undefined;
  const { folder, path } = record;
  const kept = new Set(
    records.filter((other) => other.folder === folder && other.path !== path)
      .flatMap(({ manifest }) => manifest.files.map((file) => file.path)),
  );
  const files = record.manifest.files.filter((file) => !kept.has(file.path));
  const paths = files.map((file) => storedPath(folder, file));
  Deno.removeSync(path);
  for (const path of paths) removeIfThere(path);
  for (const path of [join(folder, MANIFESTS), ...paths.map(dirname)]) removeEmpty(path);
  return { ...storedModel(record), bytes: files.reduce((total, { bytes }) => total + bytes, 0) };
}

/** The complete model that was pulled by a name. */
export function findModel(name: string): StoredModel | undefined {
  return listModels().find((model) => model.name === name);
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
      const manifest = readManifest(path);
      return manifest === undefined ? [] : [{ folder, path, manifest }];
    })
  );
}

function storedModel({ folder, manifest }: ModelRecord): StoredModel {
  return {
    name: manifest.name,
    path: join(folder, manifest.entry),
    bytes: manifest.files.reduce((total, { bytes }) => total + bytes, 0),
  };
}

function readManifest(path: string): Manifest | undefined {
  try {
    const manifest = JSON.parse(Deno.readTextFileSync(path)) as Manifest;
    return Array.isArray(manifest.files) ? manifest : undefined;
  } catch {
    // Half-written or foreign: the model is pulled again.
    return undefined;
  }
}

function isComplete(folder: string, manifest: Manifest): boolean {
  return manifest.files.every(({ path, bytes }) => {
    try {
      return Deno.statSync(join(folder, path)).size === bytes;
    } catch {
      return false;
    }
  });
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
