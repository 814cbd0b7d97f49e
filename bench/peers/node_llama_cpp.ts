/** Installs node-llama-cpp, which brings a prebuilt llama.cpp, where only this benchmark sees it. */
import { join } from "@std/path";
import { ForgeError } from "../../src/errors.ts";
import { root } from "../root.ts";

/** The version that is compared with. */
export const PEER_VERSION = "3.22.1";

/** The packages with llama.cpp itself, for processors alone. */
const PREBUILT: Readonly<Record<string, string>> = {
  "linux-x86_64": "linux-x64",
  "linux-aarch64": "linux-arm64",
  "darwin-x86_64": "mac-x64",
  "darwin-aarch64": "mac-arm64-metal",
};

/** The build of llama.cpp that has the instructions of a set of forge's kernels, and no more. */
const BUILDS: Readonly<Record<string, string>> = {
  "cpu:avx2": "haswell",
  "cpu:avx2_vnni": "alderlake",
};

/**
 * Installs the package into a folder of `build/bench` unless it is there.
 *
 * @param device `auto`, for the build of llama.cpp that fits this processor best, or a device of forge
 * that there is a build for
 * @returns the path of its module
 * @throws {ForgeError} `usage` for another device; `not_found` without Node, npm or its registry;
 * `unsupported` on a system that it has no llama.cpp for
 */
export async function installPeer(device: string): Promise<string> {
  const build = BUILDS[device];
  if (build === undefined && device !== "auto") {
    const valid = ["auto", ...Object.keys(BUILDS)].join(", ");
    throw new ForgeError(
      "usage",
      `peers has no llama.cpp for --device ${device}; valid is ${valid}`,
    );
  }
  const folder = join(root, "build", "bench", build === undefined ? "peers" : `peers-${build}`);
  const installed = join(folder, "node_modules", "node-llama-cpp");
  const module = join(installed, "dist", "index.js");
  const prebuilt = PREBUILT[`${Deno.build.os}-${Deno.build.arch}`];
  if (prebuilt === undefined) {
    throw new ForgeError("unsupported", `no llama.cpp for ${Deno.build.os} ${Deno.build.arch}`);
  }
  if (versionOf(installed) !== PEER_VERSION) await installInto(folder, prebuilt);
  // Each time, lest an interrupted installation be compared with.
  if (build !== undefined) {
    keepBuild(build, join(folder, "node_modules", "@node-llama-cpp", prebuilt, "bins", prebuilt));
  }
  return module;
}

async function installInto(folder: string, prebuilt: string): Promise<void> {
  Deno.mkdirSync(folder, { recursive: true });
  Deno.writeTextFileSync(join(folder, "package.json"), '{"private": true}\n');
  const packages = [
    `node-llama-cpp@${PEER_VERSION}`,
    `@node-llama-cpp/${prebuilt}@${PEER_VERSION}`,
  ];
  await runNpm(
    ["install", "--no-audit", "--no-fund", "--omit=optional", "--ignore-scripts", ...packages],
    folder,
  );
}

/** Leaves llama.cpp, which takes the best of its builds for processors, no choice. */
function keepBuild(build: string, folder: string): void {
  for (const { name } of Array.from(Deno.readDirSync(folder))) {
    if (name.startsWith("libggml-cpu-") && name !== `libggml-cpu-${build}.so`) {
      Deno.removeSync(join(folder, name));
    }
  }
}

/** The version of a package, or `undefined` where there is none. */
function versionOf(folder: string): string | undefined {
  try {
    return JSON.parse(Deno.readTextFileSync(join(folder, "package.json"))).version;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

async function runNpm(args: readonly string[], cwd: string): Promise<void> {
  try {
    const { success, stderr } = await new Deno.Command("npm", {
      args: [...args],
      cwd,
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).output();
    if (success) return;
    const reason = firstLines(new TextDecoder().decode(stderr));
    throw new ForgeError("not_found", `npm could not install node-llama-cpp: ${reason}`);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new ForgeError("not_found", "comparing with llama.cpp needs Node and npm on the PATH");
  }
}

/** What npm says first of its error: the code and what it means. */
function firstLines(text: string): string {
  const lines = [...text.matchAll(/^npm (?:error|ERR!) (.*\S)/gm)].map(([, line]) => line);
  return lines.slice(0, 4).join("; ");
}
