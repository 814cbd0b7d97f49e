/**
 * What a library lets the world see: the functions its C header declares, and nothing else. The C++
 * runtime that is linked into a library would otherwise take part in the symbol resolution of the
 * whole process.
 */
import { dirname, join } from "@std/path";
import type { Platform } from "./targets.ts";

/**
 * The text of a header, with that of each header it includes by a relative name in its place: where
 * it is included first, as guards have it.
 */
export function headerText(path: string, included: Set<string> = new Set()): string {
  if (included.has(path)) return "";
  included.add(path);
  return Deno.readTextFileSync(path).replace(
    /^#include "(.+)".*$/gm,
    (_, name: string) => headerText(join(dirname(path), name), included),
  );
}

/** The names of the functions that a header's text declares with `FORGE_API` or alike, in its order. */
export function exportedFunctions(header: string): string[] {
  const code = header
    .replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, " ")
    .replace(/^[ \t]*#(?:[^\n]*\\\n)*[^\n]*/gm, " ");
  return Array.from(
    code.matchAll(/\b(?:FORGE|FLASH_ATTN)_API\b[\w\s*]*?\b(\w+)\s*\(/g),
    (match) => match[1] ?? "",
  );
}

/** The text of the linker's list of exported symbols. */
export function exportList(platform: Platform, names: readonly string[]): string {
  if (platform.os === "darwin") return names.map((name) => `_${name}\n`).join("");
  return `{\n  global:\n${names.map((name) => `    ${name};\n`).join("")}  local: *;\n};\n`;
}

/** The linker flag that applies an export list. */
export function exportFlag(platform: Platform, path: string): string {
  return platform.os === "darwin"
    ? `-Wl,-exported_symbols_list,${path}`
    : `-Wl,--version-script=${path}`;
}
