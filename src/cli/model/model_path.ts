import { basename, dirname, join } from "node:path";
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { hubName, isModelReference } from "../../hub/model_reference.ts";
import { nearestName } from "../../formats/suggest.ts";
import { configuredModel } from "./config_file.ts";

/**
 * Resolves the name of a model to a path: a short name of the config file, an existing path, a
 * model on the hub, which is downloaded if necessary, or the bundled model without a name.
 *
 * @throws {ForgeError} `not_found` if there is no such model; as `pull` if the download fails.
 */
export async function resolveModel(
  name: string | undefined,
  signal: AbortSignal,
): Promise<string> {
  if (name === undefined) return bundledModel();
  const configured = configuredModel(name);
  if (configured !== undefined) name = configured.model;
  if (name !== "" && exists(name)) return name;
  const onHub = hubName(name);
  if (onHub === name && looksLikePath(name)) {
    throw new ForgeError("not_found", `no such file or folder: ${quote(name)}${advice(name)}`);
  }
  if (isModelReference(onHub)) {
    const { pullWithProgress } = await import("../commands/pull.ts");
    return await pullWithProgress(onHub, signal);
  }
  throw new ForgeError(
    "not_found",
    `no such model: ${quote(name)}; valid is a .gguf file, a folder with config.json and ` +
      `safetensors files, or a hub name such as org/name or org/name:Q4_K_M (without -m, ` +
      `the bundled demo model is used)`,
  );
}

/** Returns the advice for a path that does not exist: a similar name in its folder, if any. */
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

/**
 * Returns the path of the bundled model.
 *
 * @param source folder of this module; `undefined` if it is not a file
 * @throws {ForgeError} `not_found`
 */
export function bundledModel(source = import.meta.dirname): string {
  const path = source === undefined ? undefined : join(source, "..", "..", "..", "models", "demo");
  if (path !== undefined && exists(join(path, "config.json"))) return path;
  throw new ForgeError(
    "not_found",
    `the bundled demo model is missing${path === undefined ? "" : ` from ${quote(path)}`}; ` +
      `name another with -m MODEL`,
  );
}

/** True if a path is a model, by the names of its files. */
export function isModel(path: string): boolean {
  return exists(join(path, "config.json")) || (/\.(gguf|safetensors)$/i.test(path) && exists(path));
}

/** True if a text may be the name of a model: a path, or a model on the hub. */
export function namesModel(text: string): boolean {
  return configuredModel(text) !== undefined || exists(text) ||
    (!/\s/.test(text) && (looksLikePath(text) || isModelReference(hubName(text))));
}

function looksLikePath(name: string): boolean {
  if (Deno.build.os === "windows" && /\\|^[a-z]:/i.test(name)) return true;
  return /^[./~]|\/$|\.(gguf|safetensors|json)$/i.test(name);
}

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch (error) {
    // Other errors mean that the path exists; opening it reports the reason.
    return !(error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory);
  }
}
