/**
 * Installs the command `forge`: links the launcher into a folder of programs (`deno task install`).
 */
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { ForgeError } from "../../src/errors.ts";
import { buildLibraries, forgeRoot } from "./build.ts";
import { runCommand } from "./command.ts";
import type { LibraryName } from "./libraries.ts";
import { hostPlatform, libraryFileName, type Platform, platformName } from "./targets.ts";

/** Libraries built at installation, because the user may not be able to write to the tree. */
const needed: Readonly<Record<Platform["os"], readonly LibraryName[]>> = {
  linux: ["cpu", "cuda"],
  darwin: ["cpu", "metal"],
  windows: ["cpu"],
};

/** Path of the launcher below the root of the tree. */
export const launcherPath = "ffi/build/launcher.sh";

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** Returns the target of a link, "" for another kind of file, or `undefined` if nothing exists. */
function linkTarget(path: string): string | undefined {
  try {
    return Deno.lstatSync(path).isSymlink ? Deno.readLinkSync(path) : "";
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/**
 * Links `folder`/forge to the launcher of the tree at `root`, replacing a link to another launcher.
 * Returns the path of the link.
 *
 * @throws {ForgeError} `usage` if another file has that name, unless `force` is set
 */
export function linkLauncher(root: string, folder: string, force: boolean): string {
  const launcher = join(root, launcherPath);
  const path = join(folder, "forge");
  const target = linkTarget(path);
  if (target !== undefined) {
    if (!force && !target.endsWith(`/${launcherPath}`)) {
      throw new ForgeError(
        "usage",
        `${path} exists and is not a link to forge; --force replaces it`,
      );
    }
    Deno.removeSync(path);
  }
  Deno.mkdirSync(folder, { recursive: true });
  Deno.symlinkSync(launcher, path);
  return path;
}

function defaultFolder(): string {
  const chosen = Deno.env.get("FORGE_INSTALL_DIR");
  if (chosen) return chosen;
  const home = Deno.env.get("HOME");
  if (home) return join(home, ".local", "bin");
  throw new ForgeError(
    "usage",
    "neither FORGE_INSTALL_DIR nor HOME is set; give a folder with --dir",
  );
}

const help = `Usage: deno task install [options]

Links the command forge into a folder of programs. It runs from this folder, which must stay.

    --dir FOLDER   target folder (default: $FORGE_INSTALL_DIR, else ~/.local/bin)
    --force        replace a file of that name that is not forge's
  --help         show this
`;

async function main(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      dir: { type: "string" },
      force: { type: "boolean", default: false },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    console.log(help.trimEnd());
    return;
  }
  const root = forgeRoot();
  const platform = hostPlatform();
  if (platform.os === "windows") {
    throw new ForgeError(
      "unsupported",
      "on Windows npm makes the command: deno task pack, then npm install --global with its files",
    );
  }
  const library = libraryFileName(platform, "cpu");
  if (!exists(join(root, "lib", platformName(platform), library))) {
    await buildLibraries({ only: needed[platform.os], log: (line) => console.error(line) });
  }
  const folder = resolve(values.dir ?? defaultFolder());
  console.error(`installed ${linkLauncher(root, folder, values.force)}`);
  if (!(Deno.env.get("PATH") ?? "").split(":").includes(folder)) {
    console.error(`to find it by name, add its folder to PATH: export PATH="${folder}:$PATH"`);
  }
}

if (import.meta.main) await runCommand(main);
