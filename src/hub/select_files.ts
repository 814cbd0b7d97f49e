import { ForgeError } from "../errors.ts";
import type { Checksum } from "./download.ts";

/** A file of a repository. */
export interface HubFile {
  readonly path: string;
  readonly bytes: number | undefined;
  readonly checksum: Checksum | undefined;
}

/** What to download of a repository, and the file or folder to open then. */
export interface Selection {
  readonly files: readonly HubFile[];
  /** Path to open below the repository's folder; empty for the folder itself. */
  readonly entry: string;
}

/** Quantisations to prefer when the reference names none: good quality for their size first. */
const PREFERRED = ["Q4_K_M", "Q4_0", "Q5_K_M", "Q8_0", "Q6_K", "Q4_K_S", "F16", "BF16", "F32"];

const COMPANIONS = new Set([
  "config.json",
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "chat_template.jinja",
  "chat_template.json",
  "model.safetensors.index.json",
  // How a model embeds, as sentence-transformers writes it.
  "modules.json",
]);

/** The config of one of the modules that `modules.json` lists, such as 1_Pooling. */
const MODULE_CONFIG = /^\d+_\w+\/config\.json$/;

const SPLIT = /-(\d{5})-of-(\d{5})\.gguf$/;

/**
 * Chooses the files that make up one model: those of a safetensors folder, or one GGUF file with all
 * its parts.
 *
 * @param selector a file name, or part of one; letters' case does not matter
 * @throws {ForgeError} `not_found` when the repository holds no such model, naming what it holds.
 */
export function selectFiles(
  repository: string,
  files: readonly HubFile[],
  selector: string | undefined,
): Selection {
  const weights = files.filter(({ path }) => /^model(-\d+-of-\d+)?\.safetensors$/.test(path));
  const hasFolder = weights.length > 0 && files.some(({ path }) => path === "config.json");
  if (selector === undefined && hasFolder) {
    const companions = files.filter(({ path }) => COMPANIONS.has(path) || MODULE_CONFIG.test(path));
    return { files: [...companions, ...weights], entry: "" };
  }
  const ggufs = files.filter(({ path }) => path.endsWith(".gguf") && !isProjector(path));
  const entry = selector === undefined ? preferred(ggufs) : matching(ggufs, selector);
  if (entry === undefined) throw noModel(repository, ggufs, selector, hasFolder);
  return { files: allParts(entry, ggufs), entry: entry.path };
}

function preferred(ggufs: readonly HubFile[]): HubFile | undefined {
  for (const quantisation of PREFERRED) {
    const found = matching(ggufs, quantisation);
    if (found !== undefined) return found;
  }
  return firstPart(ggufs);
}

function matching(ggufs: readonly HubFile[], selector: string): HubFile | undefined {
  const exact = ggufs.find(({ path }) => path === selector);
  if (exact !== undefined) return exact;
  // Whole words only: Q4_K must not find Q4_K_M when there is a Q4_K.
  const escaped = selector.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const word = new RegExp(`(^|[^A-Za-z0-9_])${escaped}([^A-Za-z0-9_]|$)`, "i");
  return firstPart(ggufs.filter(({ path }) => word.test(path))) ??
    firstPart(ggufs.filter(({ path }) => path.toLowerCase().includes(selector.toLowerCase())));
}

function firstPart(ggufs: readonly HubFile[]): HubFile | undefined {
  return ggufs.find(({ path }) => (SPLIT.exec(path)?.[1] ?? "00001") === "00001");
}

function allParts(entry: HubFile, ggufs: readonly HubFile[]): HubFile[] {
  const split = SPLIT.exec(entry.path);
  if (split === null) return [entry];
  const stem = entry.path.slice(0, split.index);
  return ggufs.filter(({ path }) =>
    path.startsWith(stem) && SPLIT.exec(path)?.index === split.index &&
    SPLIT.exec(path)?.[2] === split[2]
  );
}

/** Vision projectors lie beside many models and are none themselves. */
function isProjector(path: string): boolean {
  return /(^|\/)mmproj/i.test(path);
}

function noModel(
  repository: string,
  ggufs: readonly HubFile[],
  selector: string | undefined,
  hasFolder: boolean,
): ForgeError {
  const held = ggufs.map(({ path }) => path).join(", ");
  const found = held !== ""
    ? `it holds ${held}`
    : hasFolder
    ? "it holds safetensors only: leave the part after the colon out"
    : "it holds neither GGUF files nor config.json with model.safetensors";
  const wanted = selector === undefined ? "a model that forge reads" : `a GGUF file "${selector}"`;
  return new ForgeError("not_found", `${repository} has not ${wanted}; ${found}`);
}
