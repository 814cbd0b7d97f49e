/** Installs node-llama-cpp, which has a prebuilt llama.cpp, for this benchmark alone. */
import { join } from "@std/path";
import { ForgeError } from "../../src/errors.ts";
import { root } from "../root.ts";

/** The version to compare with. */
export const PEER_VERSION = "3.22.1";

/** The packages with a CPU build of llama.cpp. */
const PREBUILT: Readonly<Record<string, string>> = {
  "linux-x86_64": "linux-x64",
  "linux-aarch64": "linux-arm64",
  "darwin-x86_64": "mac-x64",
  "darwin-aarch64": "mac-arm64-metal",
};

/** The build of llama.cpp with exactly the instructions of a set of forge's kernels. */
const BUILDS: Readonly<Record<string, string>> = {
  "cpu:avx2": "haswell",
  "cpu:avx2_vnni": "alderlake",
};

/**
 * Installs the package into a folder of `build/bench` unless it exists.
 *
 * @param device `auto`, for the best build of llama.cpp for this processor, or a device of forge
 * with a matching build
 * @returns the path of its module
 * @throws {ForgeError} `usage` for another device; `not_found` without Node, npm or its registry;
 * `unsupported` on a system without a prebuilt llama.cpp
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
  // Checked each time, since an installation may have been interrupted.
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

/** Deletes all other CPU builds, since llama.cpp loads the best one. */
function keepBuild(build: string, folder: string): void {
  for (const { name } of Array.from(Deno.readDirSync(folder))) {
    if (name.startsWith("libggml-cpu-") && name !== `libggml-cpu-${build}.so`) {
      Deno.removeSync(join(folder, name));
    }
  }
}

/** Returns the version of an installed package, or `undefined`. */
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

/** Returns the first lines of npm's error: the code and its meaning. */
function firstLines(text: string): string {
  const lines = [...text.matchAll(/^npm (?:error|ERR!) (.*\S)/gm)].map(([, line]) => line);
  return lines.slice(0, 4).join("; ");
}
