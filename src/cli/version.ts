import config from "../../deno.json" with { type: "json" };
import { ABI_VERSION } from "../../ffi/abi.ts";

/** The version of forge. */
export const VERSION: string = config.version;

/** Describes this forge for `--version`, such as `0.1.0 (commit 1a2b3c4d5e, ABI 11)`. */
export function describeVersion(): string {
  const commit = "commit" in config ? String(config.commit) : commitOfClone();
  return `${VERSION} (${commit === undefined ? "" : `commit ${commit}, `}ABI ${ABI_VERSION})`;
}

/** Returns the commit of a clone's HEAD. A package has its commit in its deno.json. */
function commitOfClone(): string | undefined {
  try {
    const folder = new URL("../../.git/", import.meta.url);
    const head = Deno.readTextFileSync(new URL("HEAD", folder)).trim();
    const reference = /^ref: (.+)$/.exec(head)?.[1];
    const commit = reference ? Deno.readTextFileSync(new URL(reference, folder)) : head;
    return commit.slice(0, 10);
  } catch {
    return undefined;
  }
}
