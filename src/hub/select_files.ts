import { ForgeError } from "../errors.ts";
import { quoteList } from "../formats/quote.ts";
import type { Checksum } from "./download.ts";

/** A file of a repository. */
export interface HubFile {
  readonly path: string;
  readonly bytes: number | undefined;
  readonly checksum: Checksum | undefined;
}

/** Files to download, and the file or folder to open afterwards. */
export interface Selection {
  readonly files: readonly HubFile[];
  /** Path to open below the repository's folder; empty for the folder itself. */
  readonly entry: string;
}

/** Quantizations in order of preference without a selector: quality for size. */
const PREFERRED = ["Q4_K_M", "Q4_0", "Q5_K_M", "Q8_0", "Q6_K", "Q4_K_S", "F16", "BF16", "F32"];

const COMPANIONS = new Set([
  "config.json",
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "chat_template.jinja",
  "chat_template.json",
  "model.safetensors.index.json",
  "hf_quant_config.json",
  // Embedding settings in the format of sentence-transformers.
  "modules.json",
]);

/** Configuration of a module that `modules.json` lists, such as 1_Pooling. */
const MODULE_CONFIG = /^\d+_\w+\/config\.json$/;

/** Limit of the files that an error lists. */
const MOST_LISTED = 50;

const SPLIT = /-(\d{5})-of-(\d{5})\.gguf$/;

/**
 * Selects the files of one model: a safetensors folder, or one GGUF file with all its parts.
 *
 * @param selector a file name or a part of one, case-insensitive
 * @throws {ForgeError} `not_found` if the repository has no such model, listing its files
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
  for (const quantization of PREFERRED) {
    const found = matching(ggufs, quantization);
    if (found !== undefined) return found;
  }
  return firstPart(ggufs);
}

function matching(ggufs: readonly HubFile[], selector: string): HubFile | undefined {
  const exact = ggufs.find(({ path }) => path === selector);
  if (exact !== undefined) return exact;
  // Prefer whole words: Q4_K must not match Q4_K_M if there is a Q4_K.
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

/** True for vision projectors, which many models include as separate GGUF files. */
function isProjector(path: string): boolean {
  return /(^|\/)mmproj/i.test(path);
}

function noModel(
  repository: string,
  ggufs: readonly HubFile[],
  selector: string | undefined,
  hasFolder: boolean,
): ForgeError {
  const found = ggufs.length > 0
    ? `it holds ${quoteList(ggufs.map(({ path }) => path), MOST_LISTED)}`
    : hasFolder
    ? "it holds safetensors only: leave out the part after the colon"
    : "it holds neither GGUF files nor config.json with model.safetensors";
  const wanted = selector === undefined ? "a model that forge reads" : `a GGUF file "${selector}"`;
  return new ForgeError("not_found", `${repository} does not have ${wanted}; ${found}`);
}
