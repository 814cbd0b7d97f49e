import { basename, dirname, join } from "@std/path";
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { isModelReference } from "../../hub/model_reference.ts";
import { nearestName } from "../../formats/suggest.ts";

/**
 * The path of the model that a user names: a path that exists, a model on the hub, which is
 * downloaded unless it is here already, or the bundled model when no name is given.
 *
 * @throws {ForgeError} `not_found` when there is nothing of that name, saying what a name can be; as
 * `pull` when the download fails.
 */
export async function resolveModel(
  name: string | undefined,
  signal: AbortSignal,
): Promise<string> {
  if (name === undefined) return bundledModel();
  if (exists(name)) return name;
  if (looksLikePath(name)) {
    throw new ForgeError("not_found", `no such file or folder: ${quote(name)}${advice(name)}`);
  }
  if (isModelReference(name)) {
    const { pullWithProgress } = await import("../commands/pull.ts");
    return await pullWithProgress(name, signal);
  }
  throw new ForgeError(
    "not_found",
    `no model ${quote(name)} here; valid is a .gguf file, a folder with config.json and ` +
      `safetensors files, or a hub name such as org/name or org/name:Q4_K_M (without -m the ` +
      `bundled demo model is used)`,
  );
}

/** What is in the folder of a path that does not exist under nearly its name; empty where nothing is. */
function advice(path: string): string {
  const folder = dirname(path);
  let names: string[];
  try {
    names = [...Deno.readDirSync(folder)].map((entry) => entry.name);
  } catch {
    return "";
  }
  const similar = nearestName(basename(path), names);
  return similar === undefined ? "" : `; did you mean ${quote(join(folder, similar))}?`;
}

/** The path of the model that comes with forge. @throws {ForgeError} `not_found` */
export function bundledModel(): string {
  const source = import.meta.dirname;
  const path = source === undefined ? undefined : join(source, "..", "..", "..", "models", "demo");
  if (path !== undefined && exists(join(path, "config.json"))) return path;
  throw new ForgeError(
    "not_found",
    `the bundled demo model is missing${path === undefined ? "" : ` from ${quote(path)}`}; ` +
      `name another with -m MODEL`,
  );
}

/** True if there is a model at a path, by the names of its files. */
export function isModel(path: string): boolean {
  return exists(join(path, "config.json")) || (/\.(gguf|safetensors)$/i.test(path) && exists(path));
}

/** True if a text may be meant as the name of a model: of a path, or of a model on the hub. */
export function namesModel(text: string): boolean {
  return exists(text) || (!/\s/.test(text) && (looksLikePath(text) || isModelReference(text)));
}

function looksLikePath(name: string): boolean {
  return /^[./~]|\/$|\.(gguf|safetensors|json)$/i.test(name);
}

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch (error) {
    // What cannot be looked at is there: opening it will say what is wrong with it.
    return !(error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory);
  }
}
