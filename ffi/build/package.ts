/**
 * Packs forge for machines without a compiler and without a network: the sources, their npm
 * packages and prebuilt libraries, as `dist/forge-<os>-<arch>.tar.gz` (`deno task package`).
 */
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { ForgeError } from "../../src/errors.ts";
import { buildLibraries, forgeRoot } from "./build.ts";
import { runCommand } from "./command.ts";
import { launcherPath } from "./install.ts";
import { runProcess } from "./compiler.ts";
import { hostPlatform, type Platform, platformName, targetPlatform } from "./targets.ts";
import { tar, type TarEntry } from "./tar.ts";

/** Options of `writePackage`. */
interface PackageOptions {
  /** Root of the source tree. */
  readonly root: string;
  /** Target platform. */
  readonly platform: Platform;
  /** Path of the archive. */
  readonly output: string;
  /** True to add the Deno that runs this program. */
  readonly withDeno: boolean;
  readonly log: (line: string) => void;
}

/** Required files and folders of the source tree. */
const sources: readonly string[] = [
  "LICENSE",
  "README.md",
  "build.ts",
  "csrc",
  "deno.json",
  "deno.lock",
  "ffi",
  "main.ts",
  "models/demo",
  "src",
];

/** Files and folders that a tree may lack. */
const optionalSources: readonly string[] = ["kernels"];

/** Folders that are useful only in a source checkout. */
const leftOut: readonly string[] = ["models/demo/train"];

/** The command of an unpacked package: a link to the launcher. */
const commandPath = "bin/forge";

/** Tasks that work without the rest of the source tree. */
const tasks: readonly string[] = ["forge", "build", "install"];

/** A file of the package: its source path and its path in the archive. */
interface PackedFile {
  readonly from: string;
  readonly path: string;
}

/** Returns the file `from`, or all files below this folder; symbolic links are files. */
export function listFiles(from: string, path: string): PackedFile[] {
  if (leftOut.includes(path)) return [];
  if (!Deno.lstatSync(from).isDirectory) return [{ from, path }];
  return Array.from(Deno.readDirSync(from))
    .flatMap((entry) => listFiles(join(from, entry.name), `${path}/${entry.name}`));
}

/** Returns the packaged files of the source tree. */
function listSources(root: string): PackedFile[] {
  const exists = (path: string) => {
    try {
      Deno.lstatSync(join(root, path));
      return true;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return false;
      throw error;
    }
  };
  const missing = sources.find((path) => !exists(path));
  if (missing !== undefined) {
    throw new ForgeError("not_found", `cannot make a package: ${missing} is missing in ${root}`);
  }
  return [...sources, ...optionalSources.filter(exists)]
    .flatMap((path) => listFiles(join(root, path), path));
}

/** Returns the deno.json of a package, which uses its own folder of npm packages. */
function packagedConfig(text: string): string {
  const config = withoutTests(text);
  const all = Object.entries(config.tasks ?? {});
  return JSON.stringify(
    {
      ...config,
      nodeModulesDir: "manual",
      tasks: Object.fromEntries(all.filter(([name]) => tasks.includes(name))),
    },
    undefined,
    2,
  ) + "\n";
}

/** Parses deno.json and removes its test dependencies. */
export function withoutTests(text: string): Record<string, unknown> {
  const { scopes: _, ...config }: Record<string, unknown> = JSON.parse(text);
  return config;
}

/** Installs the npm packages of deno.json into `folder`/node_modules. */
export async function installNpmPackages(root: string, folder: string): Promise<void> {
  const config = withoutTests(Deno.readTextFileSync(join(root, "deno.json")));
  Deno.writeTextFileSync(join(folder, "deno.json"), JSON.stringify(config));
  Deno.copyFileSync(join(root, "deno.lock"), join(folder, "deno.lock"));
  const result = await runProcess(
    [Deno.execPath(), "install", "--quiet", "--node-modules-dir=auto"],
    folder,
    Deno.env.toObject(),
  );
  if (!result.ok) {
    throw new ForgeError("not_found", `cannot install the npm packages:\n${result.errors}`);
  }
}

/** Reads the files, sorted by path in the archive. */
function* readEntries(files: readonly PackedFile[], top: string): Generator<TarEntry> {
  for (const { from, path } of files.toSorted((a, b) => (a.path < b.path ? -1 : 1))) {
    const content = path === commandPath
      ? { link: `../${launcherPath}` }
      : Deno.lstatSync(from).isSymlink
      ? { link: Deno.readLinkSync(from) }
      : path === "deno.json"
      ? new TextEncoder().encode(packagedConfig(Deno.readTextFileSync(from)))
      : Deno.readFileSync(from);
    yield {
      path: `${top}/${path}`,
      content,
      executable: path === launcherPath || path.startsWith("bin/"),
    };
  }
}

/**
 * Builds the libraries and writes the package. The same sources and compiler give the same bytes.
 *
 * @throws {ForgeError} as `buildLibraries`; `not_found` if a source is missing or the npm packages
 * cannot be installed
 */
export async function writePackage(options: PackageOptions): Promise<void> {
  const { root, platform, log } = options;
  const packed = listSources(root);
  const built = await buildLibraries({ root, platform, log });
  const npm = Deno.makeTempDirSync({ prefix: "forge-package-" });
  try {
    await installNpmPackages(root, npm);
    const files = [
      ...packed,
      { from: join(root, launcherPath), path: commandPath },
      ...built.libraries.map(({ path }) => ({
        from: path,
        path: `lib/${platformName(platform)}/${path.slice(built.folder.length + 1)}`,
      })),
      // The installer's own state differs between runs.
      ...listFiles(join(npm, "node_modules"), "node_modules")
        .filter(({ path }) => !/^node_modules\/\.deno\/\.[^/]+$/.test(path)),
      ...(options.withDeno ? [{ from: Deno.execPath(), path: "bin/deno" }] : []),
    ];
    Deno.mkdirSync(dirname(options.output), { recursive: true });
    const temporary = `${options.output}.${Deno.pid}.tmp`;
    const top = `forge-${platformName(platform)}`;
    await ReadableStream.from(tar(readEntries(files, top)))
      .pipeThrough(new CompressionStream("gzip"))
      .pipeTo((await Deno.create(temporary)).writable);
    Deno.renameSync(temporary, options.output);
    const megabytes = Deno.statSync(options.output).size / 1e6;
    log(`packed ${files.length} files in ${options.output} (${megabytes.toFixed(1)} MB)`);
  } finally {
    Deno.removeSync(npm, { recursive: true });
  }
}

const help = `Usage: deno task package [options]

Writes dist/forge-<os>-<arch>.tar.gz, which runs without a compiler and without a network.

  --target ARCH    pack for x86_64 or aarch64, with a cross compiler where needed
  --with-deno      add Deno itself, so that the package needs nothing else
  --help           show this
`;

async function main(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      target: { type: "string" },
      "with-deno": { type: "boolean", default: false },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    console.log(help.trimEnd());
    return;
  }
  const host = hostPlatform();
  const platform = values.target === undefined ? host : targetPlatform(values.target);
  if (values["with-deno"] && platform.arch !== host.arch) {
    throw new ForgeError(
      "usage",
      `--with-deno packs the Deno that runs this program, which is for ${host.arch}, not ${platform.arch}`,
    );
  }
  const root = forgeRoot();
  await writePackage({
    root,
    platform,
    output: join(root, "dist", `forge-${platformName(platform)}.tar.gz`),
    withDeno: values["with-deno"],
    log: (line) => console.error(line),
  });
}

if (import.meta.main) await runCommand(main);
