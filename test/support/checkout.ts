/** The files of this checkout. */
import { join, resolve } from "@std/path";

export const ROOT = resolve(import.meta.dirname ?? ".", "..", "..");

/** Returns the files below a folder that end in `ending`, as paths relative to the checkout. */
export function filesBelow(folder: string, ending: string): string[] {
  return Array.from(Deno.readDirSync(join(ROOT, folder))).flatMap(({ name, isDirectory }) => {
    const path = `${folder}/${name}`;
    if (isDirectory) return filesBelow(path, ending);
    return name.endsWith(ending) ? [path] : [];
  }).sort();
}
