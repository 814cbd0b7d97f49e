import config from "../../deno.json" with { type: "json" };
import { ABI_VERSION } from "../../ffi/abi.ts";

/** The version of forge. */
export const VERSION: string = config.version;

/** Describes this forge for `--version`, such as `0.1.0 (commit 1a2b3c4d5e, ABI 11)`. */
export function describeVersion(): string {
  const commit = "commit" in config ? String(config.commit) : headCommit(GIT_FOLDER);
  return `${VERSION} (${commit === undefined ? "" : `commit ${commit}, `}ABI ${ABI_VERSION})`;
}

/** Git's folder of a clone. A package has its commit in its deno.json. */
const GIT_FOLDER = new URL("../../.git/", import.meta.url);

/** Returns the first digits of the commit of HEAD, if there is a repository. */
export function headCommit(folder: URL): string | undefined {
  const head = readText(new URL("HEAD", folder));
  const reference = /^ref: (.+)$/.exec(head)?.[1];
  const commit = reference === undefined
    ? head
    : readText(new URL(reference, folder)) || packedReference(folder, reference);
  return /^[0-9a-f]{10}/.exec(commit)?.[0];
}

/** Returns the commit of a reference that `git gc` has moved into the common file. */
function packedReference(folder: URL, reference: string): string {
  const lines = readText(new URL("packed-refs", folder)).split("\n");
  return lines.find((line) => line.endsWith(` ${reference}`)) ?? "";
}

/** Returns the text of a file, empty if it cannot be read. */
function readText(path: URL): string {
  try {
    return Deno.readTextFileSync(path).trim();
  } catch {
    return "";
  }
}
