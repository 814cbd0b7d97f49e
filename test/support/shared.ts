/**
 * Models, tokenizers and templates with results from independent programs live in a `shared` folder
 * beside the checkout, or in it, or where FORGE_SHARED says. Tests that need them skip, with a printed
 * reason, where it is absent.
 */
import { join, resolve } from "@std/path";
import { ROOT } from "./checkout.ts";

const inside = join(ROOT, "shared");
const root = Deno.env.get("FORGE_SHARED") ||
  (exists(inside) ? inside : resolve(ROOT, "..", "shared"));

/** The path of an entry of the shared folder, whether or not it exists. */
export function sharedPath(...parts: string[]): string {
  return join(root, ...parts);
}

/**
 * Whether an entry of the shared folder exists; prints why a test is about to be skipped when not.
 * Use as `ignore: !sharedAvailable("models", "tiny")`.
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
