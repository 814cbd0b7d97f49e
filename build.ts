/**
 * Builds the shared libraries that changed into `build/<os>-<arch>/`. Run by `deno task build`,
 * and, as a module, by the command line when the library it needs is missing.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { buildLibraries, type BuildReport, forgeRoot } from "./ffi/build/build.ts";
import { runCommand } from "./ffi/build/command.ts";
import { sanitizers } from "./ffi/build/graph.ts";
import { libraries } from "./ffi/build/libraries.ts";
import { targetPlatform } from "./ffi/build/targets.ts";
import { ForgeError } from "./src/errors.ts";

export {
  buildLibraries,
  type BuildOptions,
  type BuildReport,
  type BuiltLibrary,
} from "./ffi/build/build.ts";
export type { LibraryName } from "./ffi/build/libraries.ts";

const libraryNames = libraries.map((library) => library.name);

const help = `Usage: deno task build [options]

Builds the shared libraries that changed into build/<os>-<arch>/.

  --only LIST        libraries to build: ${libraryNames.join(", ")}
  --target TARGET    build for x86_64, aarch64 or windows, with a cross compiler where needed
  --debug            no optimisation, debug information; into build/<os>-<arch>-debug/
  --sanitize LIST    ${sanitizers.join(", ")}; into build/<os>-<arch>-<list>/
  --strict           warnings are errors
  --jobs N           compilers to run at a time (default: one per core)
  --clean            remove everything that was built
  --help             show this

The variable CXX names the compiler (default: c++, g++ or clang++, whichever is found first).
`;

/** Parses the list `a,b`, each name of which must be in `valid`. */
function parseNames<T extends string>(option: string, text: string, valid: readonly T[]): T[] {
  return text.split(",").map((part) => {
    const name = valid.find((name) => name === part.trim());
    if (name !== undefined) return name;
    throw new ForgeError(
      "usage",
      `${option}: unknown name "${part.trim()}"; valid are ${valid.join(", ")}`,
    );
  });
}

function ifGiven<T>(text: string | undefined, parse: (text: string) => T): T | undefined {
  return text === undefined ? undefined : parse(text);
}

function parseJobs(text: string): number {
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text);
  throw new ForgeError("usage", `--jobs "${text}" is not a number from 1 to 9999`);
}

function clean(): void {
  try {
    Deno.removeSync(join(forgeRoot(), "build"), { recursive: true });
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

function describe(report: BuildReport): string {
  const built = report.libraries.filter((library) => library.built).map((library) => library.name);
  if (report.libraries.length === 0) return "nothing to build: csrc/ contains no library sources";
  return built.length === 0
    ? `up to date: ${report.folder}`
    : `built ${built.join(", ")} in ${report.folder} (${report.compiled} files compiled)`;
}

/** Runs `deno task build` with its arguments; prints progress to stderr. */
async function main(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      only: { type: "string" },
      target: { type: "string" },
      debug: { type: "boolean", default: false },
      sanitize: { type: "string" },
      strict: { type: "boolean", default: false },
      jobs: { type: "string" },
      clean: { type: "boolean" },
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    console.log(help.trimEnd());
    return;
  }
  if (values.clean) return clean();
  const report = await buildLibraries({
    only: ifGiven(values.only, (text) => parseNames("--only", text, libraryNames)),
    platform: ifGiven(values.target, targetPlatform),
    jobs: ifGiven(values.jobs, parseJobs),
    sanitizers: ifGiven(values.sanitize, (text) => parseNames("--sanitize", text, sanitizers)),
    debug: values.debug,
    strict: values.strict,
    log: (line) => console.error(line),
  });
  console.error(describe(report));
}

if (import.meta.main) await runCommand(main);
