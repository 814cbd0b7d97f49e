/** Finds, identifies and runs the C++ compiler. */
import { ForgeError } from "../../src/errors.ts";
import { crossCompilers, hostPlatform, type Platform, platformName } from "./targets.ts";

/** A compiler that exists and was identified. */
export interface Compiler {
  /** The program and leading arguments, as in `CXX="ccache g++"`. */
  readonly command: readonly string[];
  /** Name and version; compilers with the same identity produce the same code. */
  readonly identity: string;
}

/** Result of a finished process. */
export interface ProcessResult {
  readonly ok: boolean;
  /** stdout. */
  readonly output: string;
  /** stderr. */
  readonly errors: string;
}

/** Compilers to try in this order without CXX. */
export const defaultCompilers: readonly string[] = ["c++", "g++", "clang++"];

/** Environment variables that the compiler receives. */
export const compilerVariables: readonly string[] = [
  "PATH",
  "HOME",
  "TMPDIR",
  "LANG",
  "LC_ALL",
  "CPATH",
  "CPLUS_INCLUDE_PATH",
  "LIBRARY_PATH",
  "SDKROOT",
  "DEVELOPER_DIR",
  "MACOSX_DEPLOYMENT_TARGET",
  "CCACHE_DIR",
  // Without these, programs on Windows find neither their folder for temporary files nor the
  // system.
  "TEMP",
  "TMP",
  "SystemRoot",
];

const howToInstall = [
  "  Debian, Ubuntu   sudo apt-get install g++",
  "  Fedora, RHEL     sudo dnf install gcc-c++",
  "  Alpine           sudo apk add g++",
  "  macOS            xcode-select --install",
  "  Windows          winget install BrechtSanders.WinLibs.POSIX.UCRT",
].join("\n");

function compilerEnvironment(): Record<string, string> {
  const names = [...compilerVariables];
  // With permission to run only certain programs, Deno does not allow passing this one.
  if (Deno.permissions.querySync({ name: "run" }).state === "granted") {
    names.push("LD_LIBRARY_PATH");
  }
  const environment: Record<string, string> = {};
  for (const name of names) {
    const value = Deno.env.get(name);
    if (value !== undefined) environment[name] = value;
  }
  return environment;
}

/**
 * Runs a program in the folder `cwd` and waits for its end.
 *
 * @throws {ForgeError} `device` without permission to run it; `cancelled` if Ctrl-C ended it
 * @throws {Deno.errors.NotFound} for an unknown program
 */
export async function runProcess(
  command: readonly string[],
  cwd: string,
  environment: Readonly<Record<string, string>> = compilerEnvironment(),
): Promise<ProcessResult> {
  const [program = "", ...args] = command;
  try {
    const process = new Deno.Command(program, {
      args,
      cwd,
      clearEnv: true,
      env: environment,
      stdin: "null",
    });
    const { success, signal, stdout, stderr } = await process.output();
    // On a terminal Ctrl-C reaches the compiler too, which exits silently.
    if (signal === "SIGINT") throw new ForgeError("cancelled", "stopped on request");
    const decoder = new TextDecoder();
    return { ok: success, output: decoder.decode(stdout), errors: decoder.decode(stderr) };
  } catch (error) {
    if (!(error instanceof Deno.errors.NotCapable)) throw error;
    throw new ForgeError(
      "device",
      `no permission to run the compiler "${program}"; build the libraries with: deno task build`,
      { cause: error },
    );
  }
}

/** Returns the built-in macros of a compiler, or `undefined` for an unknown program. */
async function builtInMacros(
  command: readonly string[],
  environment: Readonly<Record<string, string>> | undefined,
): Promise<ProcessResult | undefined> {
  const empty = Deno.build.os === "windows" ? "NUL" : "/dev/null";
  const args = ["-std=c++20", "-dM", "-E", "-x", "c++", empty];
  try {
    return await runProcess([...command, ...args], "/", environment);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Reads `#define NAME value` lines. */
function parseMacros(text: string): ReadonlyMap<string, string> {
  const macros = new Map<string, string>();
  for (const [, name, value] of text.matchAll(/^#define (\w+) (.*)$/gm)) {
    if (name !== undefined && value !== undefined) macros.set(name, value);
  }
  return macros;
}

function checkCompiler(
  command: readonly string[],
  probe: ProcessResult,
  platform: Platform,
): Compiler {
  const name = command.join(" ");
  const macros = parseMacros(probe.output);
  // GCC 10 and 11 report the draft's number, but implement the required parts of C++20.
  if (!probe.ok || !(parseInt(macros.get("__cplusplus") ?? "0") >= 201709)) {
    const reason = probe.errors.trim().split("\n")[0];
    throw new ForgeError(
      "not_found",
      `the compiler "${name}" cannot compile C++20${reason ? ` (${reason})` : ""}; ` +
        `forge needs g++ 10, clang++ 12 or newer:\n${howToInstall}`,
    );
  }
  const arch = macros.has("__x86_64__")
    ? "x86_64"
    : macros.has("__aarch64__")
    ? "aarch64"
    : "another processor";
  if (arch !== platform.arch) {
    throw new ForgeError(
      "usage",
      `the compiler "${name}" compiles for ${arch}, not for ${platform.arch}; ` +
        `name another in the variable CXX, or unset it`,
    );
  }
  const version = macros.get("__VERSION__")?.replaceAll('"', "") ?? "unknown version";
  return { command, identity: `${name} ${version} ${arch}` };
}

/** Options of `findCompiler`. */
interface FindCompilerOptions {
  /** The variable CXX. */
  readonly cxx?: string | undefined;
  /** Environment of the compiler. @default that of this process */
  readonly environment?: Readonly<Record<string, string>> | undefined;
}

/**
 * Finds the compiler for a platform: CXX if set, otherwise the first available of c++, g++ and
 * clang++, or of the platform's cross compilers.
 *
 * @throws {ForgeError} `not_found` with installation instructions if there is none or it is too
 * old; `usage` if CXX compiles for another processor
 */
export async function findCompiler(
  platform: Platform,
  options: FindCompilerOptions = {},
): Promise<Compiler> {
  const cxx = options.cxx?.trim();
  const isCross = platformName(platform) !== platformName(hostPlatform());
  const cross = isCross ? crossCompilers[platform.os][platform.arch] : undefined;
  const names = cxx ? [cxx] : cross ? [cross.command] : defaultCompilers;
  for (const name of names) {
    const command = name.split(/\s+/);
    const probe = await builtInMacros(command, options.environment);
    if (probe !== undefined) return checkCompiler(command, probe, platform);
  }
  if (cxx) {
    throw new ForgeError("not_found", `no compiler "${cxx}" found, named by the variable CXX`);
  }
  if (cross) {
    throw new ForgeError(
      "not_found",
      `no compiler for ${platformName(platform)} found (tried ${cross.command}); ` +
        cross.howToInstall,
    );
  }
  throw new ForgeError(
    "not_found",
    `no C++ compiler found (tried ${names.join(", ")}); forge compiles its libraries once, ` +
      `and needs one:\n${howToInstall}`,
  );
}
