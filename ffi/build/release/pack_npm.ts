/**
 * Packs forge for npm into `dist/npm/` (`deno task pack`): the package `forge-llm` with the sources
 * as JavaScript and the demo model, and a package of libraries for each platform, which npm
 * installs only where it fits.
 *
 * The sources stay files in their folders rather than one bundle: types are stripped, so that lines
 * keep their numbers, and every module is loaded only when it is used.
 */
import { stripTypeScriptTypes } from "node:module";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import { ForgeError } from "../../../src/errors.ts";
import { buildLibraries, type BuiltLibrary, forgeRoot } from "../build.ts";
import { runCommand } from "../command.ts";
import { runProcess } from "../compiler.ts";
import type { LibraryName } from "../libraries.ts";
import { installNpmPackages, listFiles, withoutTests } from "../package.ts";
import { hostPlatform, type Platform, platformName, targetPlatform } from "../targets.ts";
import { tar, type TarEntry } from "../tar.ts";

/** Name of the main package. */
export const NAME = "forge-llm";

/** Version of Deno that the package brings. */
export const DENO_VERSION = "2.9.6";

/** A package of libraries for one platform. */
interface LibraryPackage {
  readonly name: string;
  readonly platform: Platform;
  /** Fields with which npm decides if a machine can use it. */
  readonly fits: Readonly<Record<"os" | "cpu" | "libc", readonly string[]>>;
  /** Libraries; flash_attn is left out without nvcc. */
  readonly libraries: readonly LibraryName[];
}

/** The packages of libraries. All are optional dependencies of the main package. */
export const libraryPackages: readonly LibraryPackage[] = [
  libraryPackage("linux", "x86_64", ["cpu"]),
  libraryPackage("linux", "x86_64", ["cuda", "flash_attn"], "-cuda"),
  libraryPackage("linux", "aarch64", ["cpu"]),
  libraryPackage("linux", "aarch64", ["cuda", "flash_attn"], "-cuda"),
  libraryPackage("darwin", "aarch64", ["cpu", "metal"]),
  libraryPackage("windows", "x86_64", ["cpu"]),
  libraryPackage("windows", "x86_64", ["cuda"], "-cuda"),
];

function libraryPackage(
  os: Platform["os"],
  arch: Platform["arch"],
  libraries: readonly LibraryName[],
  suffix = "",
): LibraryPackage {
  const cpu = arch === "x86_64" ? "x64" : "arm64";
  const system = os === "windows" ? "win32" : os;
  return {
    name: `@${NAME}/${system}-${cpu}${suffix}`,
    platform: { os, arch },
    fits: { os: [system], cpu: [cpu], libc: os === "linux" ? ["glibc"] : [] },
    libraries,
  };
}

/** Returns the name of Deno's package for a platform. */
export function denoPackage(platform: Platform): string {
  const { name, fits } = libraryPackages.find((each) =>
    platformName(each.platform) === platformName(platform)
  )!;
  return [name.replace(NAME, "deno"), ...fits.libc].join("-");
}

const denoPackages = [...new Set(libraryPackages.map(({ platform }) => denoPackage(platform)))];

/**
 * Packages that are copied into the main package, by the names of deno.json: the folder and the
 * imported module.
 */
const vendored: Readonly<Record<string, readonly [folder: string, module: string]>> = {
  marked: ["marked", "lib/marked.esm.js"],
};

/** Folders of sources. Libraries are not built in a package, so it has no `ffi/build`. */
const sources: readonly string[] = ["src", "ffi", "models/demo"];
const leftOut = /^(ffi\/build|models\/demo\/train)\/|\.(md|png)$/;

/** TypeScript that the server gives to browsers. */
const pageFolder = "src/serve/page/";

/** Returns a module as JavaScript. `path` is its place in the package. */
function javaScript(path: string, text: string): string {
  const depth = path.split("/").length - 1;
  return stripTypeScriptTypes(text).replace(
    /(\bfrom |\bimport |\bimport\(|\bimport\.meta\.resolve\()"([^"]+)"/g,
    (whole, start: string, name: string) => {
      if (/^\..*\.ts$/.test(name)) return `${start}"${name.slice(0, -3)}.js"`;
      const [folder, module] = vendored[name] ?? [];
      if (folder === undefined) return whole;
      return `${start}"${"../".repeat(depth) || "./"}vendor/${folder}/${module}"`;
    },
  );
}

/** Returns the declarations of the exported interfaces and asynchronous functions of a module. */
function declarations(text: string): string {
  const exported =
    /^(?:\/\*\*(?:(?!\*\/)[^])*\*\/\n)?export (?:interface [^]*?^\}|async function [^{]*(?= \{$))/gm;
  return Array.from(
    text.matchAll(exported),
    ([found]) =>
      found.endsWith("}") ? `${found}\n` : `${found.replace("export async", "export declare")};\n`,
  ).join("\n");
}

/** The error of programs on Node and Bun that import the library itself. */
const onlyOnDeno = `throw new Error(
  "the library of forge runs on Deno; in Node and Bun use connect() of ${NAME}/client, or the server " +
    "of: npx ${NAME} serve",
);
`;

const command = `#!/usr/bin/env node
import { main } from "../src/npm/launcher.js";
main();
`;

/** Fields of every package.json. */
function commonFields(config: Readonly<Record<string, unknown>>) {
  const name = Deno.env.get("GITHUB_REPOSITORY");
  const repository = name && `${Deno.env.get("GITHUB_SERVER_URL")}/${name}`;
  return {
    version: config.version,
    license: config.license,
    // npm compares it with the repository of the workflow that publishes.
    ...(repository ? { repository: { type: "git", url: `git+${repository}.git` } } : {}),
    publishConfig: { access: "public", provenance: true },
  };
}

function mainPackageJson(config: Readonly<Record<string, unknown>>) {
  return {
    name: NAME,
    ...commonFields(config),
    description: "Runs large language models on the machine in front of you",
    type: "module",
    bin: { forge: "bin/forge.js" },
    exports: {
      ".": { deno: "./src/mod.js", default: "./only_on_deno.js" },
      "./serve": { deno: "./src/serve/mod.js", default: "./only_on_deno.js" },
      "./cli": { deno: "./main.js", default: "./only_on_deno.js" },
      "./client": { types: "./src/npm/client.d.ts", default: "./src/npm/client.js" },
      "./package.json": "./package.json",
    },
    engines: { node: ">=18" },
    optionalDependencies: Object.fromEntries([
      ...denoPackages.map((name) => [name, DENO_VERSION]),
      ...libraryPackages.map(({ name }) => [name, config.version]),
    ]),
  };
}

const encoder = new TextEncoder();

function entry(path: string, content: string | Uint8Array<ArrayBuffer>): TarEntry {
  return {
    path: `package/${path}`,
    content: typeof content === "string" ? encoder.encode(content) : content,
    executable: path.startsWith("bin/"),
  };
}

const json = (value: unknown) => `${JSON.stringify(value, undefined, 2)}\n`;

/** Returns the commit of the sources: 10 digits, and "+" if files differ from it. */
async function commitOf(root: string): Promise<string> {
  const git = async (...args: string[]) => (await runProcess(["git", ...args], root)).output.trim();
  const isChanged = await git("status", "--porcelain", "--untracked-files=no") !== "";
  return `${await git("rev-parse", "--short=10", "HEAD")}${isChanged ? "+" : ""}`;
}

/** Returns the files of the main package. */
export async function mainPackage(root: string): Promise<TarEntry[]> {
  const config = withoutTests(Deno.readTextFileSync(join(root, "deno.json")));
  const { imports: _, tasks: __, ...kept } = config;
  const entries = [
    entry("package.json", json(mainPackageJson(config))),
    entry("deno.json", json({ ...kept, nodeModulesDir: "manual", commit: await commitOf(root) })),
    entry("bin/forge.js", command),
    entry("only_on_deno.js", onlyOnDeno),
    entry(
      "src/npm/client.d.ts",
      declarations(Deno.readTextFileSync(join(root, "src/npm/client.ts"))),
    ),
    entry("main.js", javaScript("main.js", Deno.readTextFileSync(join(root, "main.ts")))),
    ...["README.md", "LICENSE"].map((path) => entry(path, Deno.readFileSync(join(root, path)))),
  ];
  for (const { from, path } of sources.flatMap((path) => listFiles(join(root, path), path))) {
    if (leftOut.test(path)) continue;
    if (path.endsWith(".ts") && !path.startsWith(pageFolder)) {
      entries.push(
        entry(path.replace(/ts$/, "js"), javaScript(path, Deno.readTextFileSync(from))),
      );
    } else {
      entries.push(entry(path, Deno.readFileSync(from)));
    }
  }
  return [...entries, ...await vendoredFiles(root)];
}

/** Returns the files of the packages that forge imports, with their licences. */
async function vendoredFiles(root: string): Promise<TarEntry[]> {
  const folder = Deno.makeTempDirSync({ prefix: "forge-package-" });
  try {
    await installNpmPackages(root, folder);
    const store = join(folder, "node_modules", ".deno");
    return Object.values(vendored).flatMap(([name, module]) => {
      const [versioned] = Array.from(Deno.readDirSync(store), (entry) => entry.name)
        .filter((each) => each.startsWith(`${name}@`));
      const installed = join(store, versioned!, "node_modules", name);
      const isNeeded = (path: string) =>
        path === module || /^(package\.json|LICENSE\S*)$/.test(path);
      return listFiles(installed, "")
        .map(({ from, path }) => ({ from, path: path.slice(1) }))
        .filter(({ path }) => isNeeded(path))
        .map(({ from, path }) => entry(`vendor/${name}/${path}`, Deno.readFileSync(from)));
    });
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

/** Returns the entries of a package of libraries. */
function libraryEntries(root: string, each: LibraryPackage, built: readonly BuiltLibrary[]) {
  const config = withoutTests(Deno.readTextFileSync(join(root, "deno.json")));
  const { name, platform, fits, libraries } = each;
  const files = built.filter(({ name }) => libraries.includes(name)).map(({ path }) => path);
  const { os, cpu, libc } = fits;
  return [
    entry(
      "package.json",
      json({
        name,
        ...commonFields(config),
        description: `Libraries of ${NAME} for ${platformName(platform)}`,
        type: "module",
        exports: { ".": "./index.js", "./package.json": "./package.json" },
        ...{ os, cpu, ...(libc.length > 0 ? { libc } : {}) },
      }),
    ),
    entry(
      "index.js",
      "/** Folder of the libraries. */\nexport const folder = import.meta.dirname;\n",
    ),
    entry("LICENSE", Deno.readFileSync(join(root, "LICENSE"))),
    ...files.map((path) => entry(basename(path), Deno.readFileSync(path))),
  ];
}

/** A written package. */
export interface WrittenPackage {
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
}

/** Writes a package; the same entries give the same bytes. Returns its path and size. */
async function writePackage(
  folder: string,
  name: string,
  entries: readonly TarEntry[],
): Promise<WrittenPackage> {
  const sorted = entries.toSorted((a, b) => (a.path < b.path ? -1 : 1));
  const blocks = await Array.fromAsync(tar(sorted));
  const packed = gzipSync(new Uint8Array(await new Blob(blocks).arrayBuffer()), { level: 9 });
  const path = join(folder, `${name.replace("@", "").replace("/", "-")}.tgz`);
  Deno.mkdirSync(folder, { recursive: true });
  Deno.writeFileSync(path, packed);
  return { name, path, bytes: packed.length };
}

/** Options of `pack`. */
interface PackOptions {
  readonly root: string;
  readonly platform: Platform;
  /** Libraries to build. @default all */
  readonly only?: readonly LibraryName[];
  /** Folder of the written packages. */
  readonly output: string;
  readonly log: (line: string) => void;
}

/**
 * Builds libraries for a platform, and writes their packages and the main package.
 *
 * @throws {ForgeError} as `buildLibraries`; `not_found` if an npm package cannot be installed
 */
export async function pack(options: PackOptions): Promise<WrittenPackage[]> {
  const { root, platform, only, output, log } = options;
  const { libraries: built } = await buildLibraries({ root, platform, only, log });
  const written = [await writePackage(output, NAME, await mainPackage(root))];
  for (const each of libraryPackages) {
    if (platformName(each.platform) !== platformName(platform)) continue;
    if (!built.some(({ name }) => each.libraries.includes(name))) continue;
    written.push(await writePackage(output, each.name, libraryEntries(root, each, built)));
  }
  for (const { path, bytes } of written) log(`${(bytes / 1e6).toFixed(2)} MB ${path}`);
  return written;
}

const help = `Usage: deno task pack [options]

Writes npm packages into dist/npm/: ${NAME}, and the libraries of this platform.

  --target TARGET  libraries for x86_64, aarch64 or windows, with a cross compiler where needed
  --help           show this
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
  const platform = values.target === undefined ? hostPlatform() : targetPlatform(values.target);
  if (!libraryPackages.some((each) => platformName(each.platform) === platformName(platform))) {
    throw new ForgeError("unsupported", `there is no package for ${platformName(platform)}`);
  }
  const root = forgeRoot();
  await pack({
    root,
    platform,
    output: join(root, "dist", "npm"),
    log: (line) => console.error(line),
  });
}

if (import.meta.main) await runCommand(main);
