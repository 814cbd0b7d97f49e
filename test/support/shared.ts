/**
 * Models, tokenizers and templates with results from independent programs are in a `shared` folder
 * next to the checkout, in it, or at the path in FORGE_SHARED. Tests that need a missing one are
 * skipped with a printed reason.
 */
import { join, resolve } from "@std/path";
import { ROOT } from "./checkout.ts";

const inside = join(ROOT, "shared");
const root = Deno.env.get("FORGE_SHARED") ||
  (exists(inside) ? inside : resolve(ROOT, "..", "shared"));

/** The path of an entry of the shared folder, which may not exist. */
export function sharedPath(...parts: string[]): string {
  return join(root, ...parts);
}

/**
 * True if an entry of the shared folder exists; otherwise prints why a test will be skipped. Use as
 * `ignore: !sharedAvailable("models", "tiny")`.
 */
export function sharedAvailable(...parts: string[]): boolean {
  if (exists(sharedPath(...parts))) return true;
  console.error(`skipping: the shared test data "${parts.join("/")}" is not beside the checkout`);
  return false;
}

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch {
    return false;
  }
}
