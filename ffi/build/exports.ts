/**
 * Exported symbols of libraries: only the functions of the C header. Otherwise the statically
 * linked C++ runtime would take part in the symbol resolution of the whole process.
 */
import { dirname, join } from "node:path";
import type { Platform } from "./targets.ts";

/** Returns the text of a header with its relative includes expanded, each at its first place. */
export function headerText(path: string, included: Set<string> = new Set()): string {
  if (included.has(path)) return "";
  included.add(path);
  return Deno.readTextFileSync(path).replace(
    /^#include "(.+)".*$/gm,
    (_, name: string) => headerText(join(dirname(path), name), included),
  );
}

/** Returns the names of functions declared with `FORGE_API` or `FLASH_ATTN_API`, in order. */
export function exportedFunctions(header: string): string[] {
  const code = header
    .replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, " ")
    .replace(/^[ \t]*#(?:[^\n]*\\\n)*[^\n]*/gm, " ");
  return Array.from(
    code.matchAll(/\b(?:FORGE|FLASH_ATTN)_API\b[\w\s*]*?\b(\w+)\s*\(/g),
    (match) => match[1] ?? "",
  );
}

/** Returns the linker's list of exported symbols. */
export function exportList(platform: Platform, names: readonly string[]): string {
  if (platform.os === "darwin") return names.map((name) => `_${name}\n`).join("");
  if (platform.os === "windows") return `EXPORTS\n${names.map((name) => `  ${name}\n`).join("")}`;
  return `{\n  global:\n${names.map((name) => `    ${name};\n`).join("")}  local: *;\n};\n`;
}

/** Returns the linker flag that applies an export list. */
export function exportFlag(platform: Platform, path: string): string {
  const flags = {
    linux: "-Wl,--version-script=",
    darwin: "-Wl,-exported_symbols_list,",
    // A file that ends in .def is the linker's list.
    windows: "",
  };
  return `${flags[platform.os]}${path}`;
}
