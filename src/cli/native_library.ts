import { hasLibrary, neededLibraries } from "../engine/open_backend.ts";
import { writeStderr } from "./output.ts";
import type { Progress } from "./progress.ts";

/**
 * Builds the libraries of a device where there are none yet. A prebuilt one is used as it is.
 *
 * @throws {ForgeError} `usage` for an unknown device; `not_found` without a C++ compiler, saying what
 * to install; `device` with the compiler's words where it fails.
 */
export async function ensureLibrary(device: string, progress: Progress): Promise<void> {
  const missing = neededLibraries(device).filter((kind) => !hasLibrary(kind));
  if (missing.length === 0) return;
  const { buildLibraries } = await import("../../build.ts");
  let notice: Promise<void> | undefined;
  await buildLibraries({
    only: missing,
    log: (line) => {
      notice ??= writeStderr(`forge: building the ${missing.join(" and ")} library, this once\n`);
      progress.update(line);
    },
  });
  await notice;
  progress.clear();
}
