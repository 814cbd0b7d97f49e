/**
 * Tests that nothing is left over. Every exported name of `src/` and `ffi/` is part of the public
 * API or imported by another module; an import by a test counts only if the name is also used in
 * its own module. Every module, header, script and data file has a reader, too.
 */
import { assert, assertEquals } from "@std/assert";
import { basename, dirname, join } from "@std/path";
import { filesBelow, ROOT } from "../support/checkout.ts";

/** Entry points; their exports are the public API. */
const ENTRIES = [
  ...["src/mod.ts", "src/serve/mod.ts", "main.ts", "build.ts"],
  // Of the npm package.
  ...["src/npm/launcher.ts", "src/npm/client.ts"],
];

const checked = ["src", "ffi"].flatMap((folder) => filesBelow(folder, ".ts"));
const importers = ["src", "ffi", "bench", "test"].flatMap((folder) => filesBelow(folder, ".ts"))
  .concat("main.ts", "build.ts");

/** Names in the braces of an import or export: `a, type B, c as d` are a, B and c. */
function namesIn(list: string): string[] {
  return list.split(",")
    .map((item) => item.trim().replace(/^type /, "").split(/ as |:/)[0]!.trim())
    .filter((name) => name !== "");
}

/** Names that a module declares with `export`. */
function declaredIn(text: string): string[] {
  const declarations = text.matchAll(
    /^export (?:declare )?(?:abstract )?(?:async )?(?:class|const|enum|function\*?|interface|let|type) (\w+)/gm,
  );
  return Array.from(declarations, ([, name = ""]) => name);
}

/** Names that a module takes from others, as `path#name`; `path#*` for all names of a module. */
function usedBy(path: string, text: string): string[] {
  const target = (to: string) => join(dirname(path), to);
  const statements = text.matchAll(/^(?:import|export) ([^"';]*?) ?from "(\.[^"]*)"/gm);
  const later = text.matchAll(/(\{[^{}]*\}) = await import\(\s*"(\.[^"]*)"|import\("(\.[^"]*)"\)/g);
  return [
    ...Array.from(statements, ([, what = "", to = ""]) => ({ what, to })),
    ...Array.from(later, ([, what = "*", to, other = ""]) => ({ what, to: to ?? other })),
  ].flatMap(({ what, to }) => {
    const braces = /\{([^]*)\}/.exec(what)?.[1];
    const names = braces === undefined ? ["*"] : namesIn(braces);
    return names.map((name) => `${target(to)}#${name}`);
  });
}

/** True if a module mentions a name in its code more often than to declare it. */
function usesOwn(name: string, text: string): boolean {
  const code = text.replaceAll(/\/\*[^]*?\*\/|\/\/.*/g, "");
  return Array.from(code.matchAll(new RegExp(`\\b${name}\\b`, "g"))).length > 1;
}

/** Returns the exported names of `files` that nothing in `texts` uses, as `path#name`. */
function unusedNames(files: readonly string[], texts: ReadonlyMap<string, string>): string[] {
  const isTest = ([path]: readonly [string, string]) => path.startsWith("test/");
  const usedIn = (some: readonly (readonly [string, string])[]) =>
    new Set(some.flatMap(([path, text]) => usedBy(path, text)));
  const used = usedIn([...texts].filter((file) => !isTest(file)));
  const tested = usedIn([...texts].filter(isTest));
  return files.filter((path) => !ENTRIES.includes(path) && !used.has(`${path}#*`)).flatMap(
    (path) => {
      const text = texts.get(path)!;
      return declaredIn(text).filter((name) =>
        !used.has(`${path}#${name}`) && !(tested.has(`${path}#${name}`) && usesOwn(name, text))
      ).map((name) => `${path}#${name}`);
    },
  );
}

/** Files that are read by their place: tests, and kernels, which are compiled as whole folders. */
const READ_BY_PLACE = /_test\.ts$|^kernels\/metal\/\w+\.metal$/;

/** Paths that the imports of a module lead to. */
function importsOf(path: string, text: string): string[] {
  const targets = text.matchAll(/(?:from|import|URL\()\s*\(?\s*"(\.[^"]*)"/g);
  return Array.from(targets, ([, to = ""]) => join(dirname(path), to));
}

/**
 * Returns the files that nothing uses. A module is used if another one imports it, or if it is a
 * program that another file names: by its path, or from its own or the next folder by its name.
 * Other files are used if another file names them. A script that writes the JSON file of its name
 * is run by hand.
 */
function unusedFiles(files: readonly string[], texts: ReadonlyMap<string, string>): string[] {
  const imported = new Set([...texts].flatMap(([path, text]) => importsOf(path, text)));
  const namers = new Map<string, Set<string>>();
  for (const [path, text] of texts) {
    const modules = text.matchAll(/^(?:import|from) (\w+)/gm);
    const names = [
      ...Array.from(text.matchAll(/[\w./-]+\.(?:ts|py|json|h|cuh|metal)\b/g), ([name]) => name),
      ...path.endsWith(".py") ? Array.from(modules, ([, name]) => `${name}.py`) : [],
    ];
    for (const name of names) {
      for (const key of new Set([name, basename(name)])) {
        if (!namers.has(key)) namers.set(key, new Set());
        namers.get(key)!.add(path);
      }
    }
  }
  const isNamed = (path: string) => {
    const near = [dirname(path), dirname(dirname(path))];
    const others = (name: string) => [...namers.get(name) ?? []].filter((by) => by !== path);
    return others(path).length > 0 ||
      others(basename(path)).some((by) => !path.endsWith(".ts") || near.includes(dirname(by)));
  };
  return files.filter((path) =>
    !READ_BY_PLACE.test(path) && !ENTRIES.includes(path) && !imported.has(path) &&
    !(path.endsWith(".py") && files.includes(path.replace(/py$/, "json"))) && !isNamed(path)
  );
}

Deno.test("exports: unused names are found", () => {
  const texts = new Map([
    ["src/a.ts", "export function one() {}\nexport interface Two {}\nexport const three = 3;"],
    ["src/b.ts", 'import { one } from "./a.ts";\nexport type { Two as Deux } from "./a.ts";'],
    ["src/c.ts", "export class Late {}\nexport type Other = 1;"],
    ["src/d.ts", 'const { Late } = await import("./c.ts");'],
    ["src/e.ts", "export const dead = 1;\nexport const alive = 2;\nconsole.log(alive);"],
    ["test/e_test.ts", 'import { alive, dead } from "../src/e.ts";'],
  ]);
  const found = unusedNames(["src/a.ts", "src/c.ts", "src/e.ts"], texts);
  assertEquals(found, ["src/a.ts#three", "src/c.ts#Other", "src/e.ts#dead"]);
});

Deno.test("exports: every exported name is imported or public", () => {
  const texts = new Map(importers.map((path) => [path, Deno.readTextFileSync(join(ROOT, path))]));
  assert(checked.flatMap((path) => declaredIn(texts.get(path)!)).length > 500);
  assertEquals(unusedNames(checked, texts), []);
});

Deno.test("exports: unused files are found", () => {
  const texts = new Map([
    ["src/a.ts", 'import { b } from "./b.ts";\nconst program = "tool.ts";'],
    ["src/b.ts", "export const b = 1; // src/b.ts"],
    ["src/dead.ts", "// src/dead.ts"],
    ["src/tool.ts", ""],
    ["bench/tool.ts", ""],
    ["csrc/x.h", ""],
    ["csrc/y.h", ""],
    ["csrc/x.cpp", '#include "csrc/x.h"'],
    ["test/vectors.py", ""],
    ["test/vectors.json", ""],
    ["test/other.py", ""],
    ["test/a_test.ts", 'import vectors from "./vectors.json";'],
  ]);
  const found = unusedFiles([...texts.keys()].filter((path) => !path.endsWith(".cpp")), texts);
  assertEquals(found, ["src/a.ts", "src/dead.ts", "bench/tool.ts", "csrc/y.h", "test/other.py"]);
});

Deno.test("exports: every file is imported, included or named", () => {
  const folders = ["src", "ffi", "bench", "test", "csrc", "kernels"];
  const endings = [".ts", ".py", ".json", ".h", ".cuh", ".metal"];
  const files = folders.flatMap((folder) => endings.flatMap((end) => filesBelow(folder, end)));
  const readers = folders.flatMap((folder) =>
    [...endings, ".md", ".cpp", ".cu", ".mm"].flatMap((end) => filesBelow(folder, end))
  ).concat(ENTRIES, "deno.json", "ARCHITECTURE.md", "README.md", "STATUS.md")
    .concat(filesBelow("test/emulator/metal/shim", ""));
  const texts = new Map(readers.map((path) => [path, Deno.readTextFileSync(join(ROOT, path))]));
  assert(files.length > 500);
  assertEquals(unusedFiles(files, texts), []);
});
