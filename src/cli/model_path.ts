import { join } from "@std/path";
import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";

/**
 * The path of the model that a user names: a path that exists, or the bundled model when no name is
 * given.
 *
 * @throws {ForgeError} `not_found` when there is nothing of that name, saying what a name can be.
 */
export function resolveModel(name: string | undefined): string {
  if (name === undefined) return bundledModel();
  if (exists(name)) return name;
  if (looksLikePath(name)) {
    throw new ForgeError("not_found", `no such file or folder: ${quote(name)}`);
  }
  throw new ForgeError(
    "not_found",
    `no model ${quote(name)} here; valid is a .gguf file or a folder with config.json and ` +
      `safetensors files (without -m the bundled demo model is used)`,
  );
}

function bundledModel(): string {
  const source = import.meta.dirname;
  const path = source === undefined ? undefined : join(source, "..", "..", "models", "demo");
  if (path !== undefined && exists(join(path, "config.json"))) return path;
  throw new ForgeError(
    "not_found",
    `the bundled demo model is missing${path === undefined ? "" : ` from ${quote(path)}`}; ` +
      `name another with -m MODEL`,
  );
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
