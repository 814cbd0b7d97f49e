/**
 * Compiles forge, its libraries and the demo model with the runtime of Deno into one file,
 * `dist/forge-<os>-<arch>` (`deno task compile`). At its first start it unpacks itself into a
 * folder of the user, because the system loads libraries from files.
 *
 * Deno downloads the runtime, `denort`, unless the variable `DENORT_BIN` names it.
 */
import { basename, dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { ForgeError } from "../../../src/errors.ts";
import { buildLibraries, forgeRoot } from "../build.ts";
import { runCommand } from "../command.ts";
import { runProcess } from "../compiler.ts";
import type { LibraryName } from "../libraries.ts";
import { hostPlatform, type Platform, platformName, targetPlatform } from "../targets.ts";
import { libraryPackages, mainPackage } from "./pack_npm.ts";

/** Deno's names of the platforms that have libraries. */
const targets: Readonly<Record<string, string>> = {
  "linux-x86_64": "x86_64-unknown-linux-gnu",
  "linux-aarch64": "aarch64-unknown-linux-gnu",
  "darwin-aarch64": "aarch64-apple-darwin",
  "windows-x86_64": "x86_64-pc-windows-msvc",
};

/** Files of the npm package that only npm and Node use. */
const ofNpm = /^(package\.json|README\.md|only_on_deno\.js|bin\/.*)$/;

/**
 * Permissions of the file. Folders and hosts are not limited: they are not known before it runs, or
 * come from its arguments.
 */
const permissions: readonly string[] = [
  ...["read", "write", "net", "env", "ffi"].map((name) => `--allow-${name}`),
  "--allow-sys=systemMemoryInfo",
  "--allow-run=xdg-open,open,explorer",
];

/** Options of `compileOneFile`. */
interface CompileOptions {
  readonly root: string;
  readonly platform: Platform;
  /** Libraries to include. @default all of the platform's packages */
  readonly only?: readonly LibraryName[];
  /** Folder of the file. */
  readonly output: string;
  readonly log: (line: string) => void;
}

/**
 * Builds the libraries of a platform and compiles the file. Returns its path.
 *
 * @throws {ForgeError} as `buildLibraries`; `device` if Deno fails, for example because it cannot
 * download its runtime
 */
export async function compileOneFile(options: CompileOptions): Promise<string> {
  const { root, platform, output, log } = options;
  const name = platformName(platform);
  const target = targets[name];
  if (target === undefined) {
    throw new ForgeError(
      "unsupported",
      `there is no file for ${name}; valid are ${Object.keys(targets).join(", ")}`,
    );
  }
  const shipped = libraryPackages.filter((each) => platformName(each.platform) === name)
    .flatMap(({ libraries }) => libraries);
  const built = await buildLibraries({ root, platform, only: options.only, log });
  const libraries = built.libraries.filter((each) => shipped.includes(each.name));
  const folder = Deno.makeTempDirSync({ prefix: "forge-compile-" });
  try {
    const write = (path: string, content: Uint8Array) => {
      Deno.mkdirSync(dirname(join(folder, path)), { recursive: true });
      Deno.writeFileSync(join(folder, path), content);
    };
    for (const { path, content } of await mainPackage(root)) {
      const inside = path.slice("package/".length);
      if (!ofNpm.test(inside) && content instanceof Uint8Array) write(inside, content);
    }
    for (const { path } of libraries) {
      write(`lib/${name}/${basename(path)}`, Deno.readFileSync(path));
    }
    const file = join(output, `forge-${name}${platform.os === "windows" ? ".exe" : ""}`);
    Deno.mkdirSync(output, { recursive: true });
    const included = ["models", "lib", "vendor", "src/serve/page"];
    const result = await runProcess(
      [
        ...[Deno.execPath(), "compile", "--quiet", "--no-check", "--no-lock", "--self-extracting"],
        ...["--no-prompt", ...permissions, "--target", target, "--app-name", "forge"],
        ...included.flatMap((path) => ["--include", path]),
        ...["--output", file, "main.js"],
      ],
      folder,
      Deno.env.toObject(),
    );
    if (!result.ok) throw new ForgeError("device", `deno compile failed:\n${result.errors}`);
    log(`${(Deno.statSync(file).size / 1e6).toFixed(1)} MB ${file}`);
    return file;
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

const help = `Usage: deno task compile [options]

Writes dist/forge-<os>-<arch>: forge, its libraries and the demo model in one file.

  --target TARGET  for x86_64, aarch64 or windows, with a cross compiler where needed
  --help           show this

The variable DENORT_BIN names the runtime of Deno for the target (default: Deno downloads it).
`;

async function main(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: { target: { type: "string" }, help: { type: "boolean" } },
  });
  if (values.help) {
    console.log(help.trimEnd());
    return;
  }
  const root = forgeRoot();
  await compileOneFile({
    root,
    platform: values.target === undefined ? hostPlatform() : targetPlatform(values.target),
    output: join(root, "dist"),
    log: (line) => console.error(line),
  });
}

if (import.meta.main) await runCommand(main);
