/** Opening of a model for a command, after building the native library if necessary. */
import { lacksBuild, neededLibraries } from "../../engine/load/open_backend.ts";
import { ForgeError } from "../../errors.ts";
import { formatBytes } from "../output/format.ts";
import { writeStderr } from "../output/streams.ts";
import { load, type LoadOptions, type Model } from "../../mod.ts";
import type { Progress } from "../output/progress.ts";

/**
 * Loads a model for a command. Builds the library first if it is missing.
 *
 * @throws {ForgeError} as `load` and {@linkcode ensureLibrary}
 */
export async function openModel(
  path: string,
  options: LoadOptions,
  progress: Progress,
): Promise<Model> {
  await ensureLibrary(options.devices?.[0] ?? options.device ?? "auto", progress);
  progress.update(`loading ${path}`);
  const onWarning = (line: string) => void writeStderr(`forge: ${line}\n`);
  const model = await load(path, { onWarning, ...options });
  progress.clear();
  const { all, perToken } = model.streamedBytes;
  if (all > 0) {
    const total = formatBytes(model.memory.weights);
    await writeStderr(
      `forge: ${
        formatBytes(all)
      } of ${total} of weights do not fit the memory and stay in the file; ` +
        `a token reads ${formatBytes(perToken)} of them\n`,
    );
  }
  return model;
}

/**
 * Builds the libraries of a device if they are missing or outdated. Prebuilt libraries are used as
 * they are.
 *
 * @throws {ForgeError} `usage` for an unknown device; `not_found` without a C++ compiler, naming
 * the packages to install; `device` with the compiler's message if it fails.
 */
export async function ensureLibrary(device: string, progress: Progress): Promise<void> {
  const lacking = neededLibraries(device).flatMap((kind) => {
    const reason = lacksBuild(kind);
    return reason === undefined ? [] : [{ kind, reason }];
  });
  if (lacking.length === 0) return;
  const only = lacking.map(({ kind }) => kind);
  const what = `the ${only.join(" and ")} ${only.length === 1 ? "library" : "libraries"}`;
  const isOutdated = lacking.some(({ reason }) => reason === "outdated");
  const { buildLibraries } = await import("../../../build.ts");
  let notice: Promise<void> | undefined;
  try {
    await buildLibraries({
      only,
      log: (line) => {
        notice ??= writeStderr(
          isOutdated
            ? `forge: rebuilding ${what}, because forge has changed; this takes a few minutes\n`
            : `forge: building ${what} once; this takes a few minutes\n`,
        );
        progress.update(line);
      },
    });
  } catch (error) {
    if (!isOutdated || !(error instanceof ForgeError)) throw error;
    throw new ForgeError(
      error.code,
      `${what} was built for another version of forge and must be rebuilt: ${error.message}`,
      { cause: error },
    );
  }
  await notice;
  progress.clear();
}
