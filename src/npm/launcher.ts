/**
 * Starts forge from Node: the command of the npm package. The arguments for Deno are those of
 * `ffi/build/launcher.sh`; `test/unit/build/launcher_test.ts` compares both.
 *
 * Deno comes from its npm package for the platform. The package `deno`, which chooses among them,
 * runs a script at installation, which npm warns about and can forbid.
 */
import { type ChildProcess, spawn, type SpawnOptions } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

/** Variables that the launcher reads. */
type Environment = Readonly<Record<string, string | undefined>>;

/** Folder of the package. */
const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/** The read part of the package's deno.json. */
interface Config {
  readonly permissions: { readonly forge: { readonly net: readonly string[] } };
}

/** Returns the address that `forge serve` listens on, as a permission, if it is unusual. */
function listeningHost(args: readonly string[]): string | undefined {
  if (args[0] !== "serve") return undefined;
  let host: string | undefined;
  for (const [i, argument] of args.entries()) {
    if (argument.startsWith("--host=")) host = argument.slice("--host=".length);
    if (args[i - 1] === "--host") host = argument;
  }
  if (!host || host.includes(",")) return undefined;
  return host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
}

/** Returns the hosts of other hubs: their addresses with subdomains, and those they redirect to. */
function hubHosts(environment: Environment): string[] {
  const { HF_ENDPOINT = "", MODELSCOPE_ENDPOINT = "", FORGE_HUB_HOSTS = "" } = environment;
  const hubs = [HF_ENDPOINT, MODELSCOPE_ENDPOINT].flatMap((endpoint) => {
    const address = endpoint.replace(/^.*?:\/\//, "").replace(/[/?#].*$/s, "").replace(/^.*@/, "");
    if (!/^[A-Za-z0-9.:_-]+$/.test(address)) return [];
    return /[^0-9.:]/.test(address) ? [address, `*.${address}`] : [address];
  });
  return /^[A-Za-z0-9.:,*_-]+$/.test(FORGE_HUB_HOSTS) ? [...hubs, FORGE_HUB_HOSTS] : hubs;
}

/** Returns the arguments with which Deno runs forge with its permissions and no others. */
export function denoArguments(
  args: readonly string[],
  environment: Environment,
  libraryFolders: readonly string[],
): string[] {
  const isBatch = args.some((argument) => /^--batch(=|$)/.test(argument));
  const config: Config = JSON.parse(readFileSync(join(root, "deno.json"), "utf8"));
  const host = listeningHost(args);
  const added = [...hubHosts(environment), ...(host === undefined ? [] : [host])];
  const { FORGE_LIBRARY_PATH: chosen } = environment;
  const folders = [...libraryFolders, ...(chosen ? [chosen] : [])];
  return [
    "run",
    "--quiet",
    "--no-prompt",
    "--no-lock",
    ...(isBatch ? ["--v8-flags=--optimize-for-size"] : []),
    "--config",
    join(root, "deno.json"),
    "--permission-set=forge",
    ...(folders.length > 0 ? [`--allow-ffi=${folders.join(",")}`] : []),
    // Processes that divide a model may be anywhere.
    ...(args.includes("--distributed")
      ? ["--allow-net"]
      : added.length > 0
      ? [`--allow-net=${[...config.permissions.forge.net, ...added].join(",")}`]
      : []),
    join(root, "main.js"),
    ...args,
  ];
}

const require = createRequire(import.meta.url);

function packageFolder(name: string): string | undefined {
  try {
    return dirname(require.resolve(`${name}/package.json`));
  } catch {
    return undefined;
  }
}

/** True if the C library of this system is musl. */
function hasMusl(): boolean {
  if (process.platform !== "linux") return false;
  const report = process.report?.getReport() as { sharedObjects?: string[] } | undefined;
  return (report?.sharedObjects ?? []).some((path) => path.includes("musl"));
}

const REFUSED_MUSL =
  "the C library of this system is musl; forge and Deno need glibc 2.28 or newer, " +
  "for example an image of Debian instead of Alpine";

/** Returns the error for a package that npm did not install. */
function missingPackage(name: string): Error {
  const { version, optionalDependencies } = require(join(root, "package.json"));
  return new Error(
    hasMusl()
      ? REFUSED_MUSL
      : `the package ${name} is missing; install it with: npm install ${name}@${
        optionalDependencies[name] ?? version
      }`,
  );
}

/**
 * Returns the folders of this platform's libraries, or throws with the reason for their absence.
 */
function libraryFolders(): string[] {
  const platform = `${process.platform}-${process.arch}`;
  const name = `@forge-llm/${platform}`;
  const folder = packageFolder(name);
  if (folder !== undefined) {
    const cuda = packageFolder(`${name}-cuda`);
    return cuda === undefined ? [folder] : [folder, cuda];
  }
  if (process.env.FORGE_LIBRARY_PATH) return [];
  const { optionalDependencies } = require(join(root, "package.json"));
  if (!(name in optionalDependencies)) {
    const valid = Object.keys(optionalDependencies)
      .flatMap((each) => /^@forge-llm\/(\w+-\w+)$/.exec(each)?.[1] ?? []);
    throw new Error(`no libraries for ${platform}; packages exist for ${valid.join(", ")}`);
  }
  throw missingPackage(name);
}

/** Returns the path of Deno. */
function denoProgram(): string {
  const { platform, arch } = process;
  const name = `@deno/${platform}-${arch}${platform === "linux" ? "-glibc" : ""}`;
  const folder = packageFolder(name);
  if (folder === undefined) throw missingPackage(name);
  return join(folder, platform === "win32" ? "deno.exe" : "deno");
}

/** Starts forge with the Deno that was installed with it. */
export function startForge(args: readonly string[], options: SpawnOptions): ChildProcess {
  const folders = libraryFolders();
  return spawn(denoProgram(), denoArguments(args, options.env ?? process.env, folders), options);
}

/** Describes why Deno did not start. */
export function startProblem({ message }: Error): string {
  return hasMusl() ? REFUSED_MUSL : `cannot start Deno: ${message}`;
}

/** Runs forge with the arguments of this process, and ends as it ends. */
export function main(): void {
  try {
    const child = startForge(process.argv.slice(2), { stdio: "inherit" });
    // Ctrl-C reaches both processes; this one waits for forge.
    process.on("SIGINT", () => {});
    process.on("SIGTERM", () => child.kill("SIGTERM"));
    child.on("error", (error) => fail(startProblem(error)));
    child.on("exit", (code, signal) => {
      process.removeAllListeners();
      if (signal === null) process.exitCode = code ?? 1;
      else process.kill(process.pid, signal);
    });
  } catch (error) {
    fail(error instanceof Error ? error.message : String(error));
  }
}

function fail(message: string): void {
  console.error(`forge: error: ${message}`);
  process.exitCode = 1;
}
