/** What is written about the code is true: imports point one way, and what pages name and link to exists. */
import { assert, assertEquals } from "@std/assert";
import { existsSync } from "node:fs";
import { dirname, join, resolve } from "@std/path";

const root = resolve(import.meta.dirname ?? ".", "..", "..");

/** All files below a folder of the checkout with such an ending, by their path in it. */
function filesBelow(folder: string, ending: string): string[] {
  return Array.from(Deno.readDirSync(join(root, folder))).flatMap(({ name, isDirectory }) => {
    const path = `${folder}/${name}`;
    if (isDirectory) return filesBelow(path, ending);
    return name.endsWith(ending) ? [path] : [];
  }).sort();
}

const sources = ["main.ts", "build.ts", ...["src", "ffi"].flatMap((at) => filesBelow(at, ".ts"))];

interface Import {
  readonly from: string;
  readonly to: string;
  /** How it is imported: for its types alone, when the module is loaded, or by `import()` later. */
  readonly kind: "types" | "load" | "later";
}

function importsOf(from: string): Import[] {
  const text = Deno.readTextFileSync(join(root, from));
  const statements = text.matchAll(
    /^(?:import|export) (type )?(?:[^"';]*? from )?"(\.[^"]*)"|\bimport\("(\.[^"]*)"\)/gm,
  );
  return Array.from(statements, ([, type, now, later]) => ({
    from,
    to: join(dirname(from), now ?? later ?? ""),
    kind: type !== undefined ? "types" : now !== undefined ? "load" : "later",
  }));
}

const imports = sources.flatMap(importsOf);

/** The room of a file: the rules hold between rooms. */
function roomOf(path: string): string {
  const [first = "", second = ""] = path.split("/");
  if (first !== "src") return first;
  return `src/${second.replace(/^backend\.ts$/, "backend")}`;
}

const values = ["src/errors.ts", "src/formats"];
const engine = [...values, "src/backend", "src/tokenizer", "src/constrain", "src/engine"];

/** What each room may import. */
const allowed: Readonly<Record<string, readonly string[]>> = {
  "src/errors.ts": [],
  "src/formats": values,
  "src/backend": values,
  "src/hub": values,
  "src/tokenizer": values,
  "src/models": [...values, "src/backend"],
  "src/constrain": [...values, "src/tokenizer"],
  "src/engine": [...engine, "src/models"],
  "src/requests": engine,
  "src/serve": [...engine, "src/requests"],
  "src/bench": [...engine, "src/models"],
  "src/mod.ts": engine,
  "src/cli": [
    ...[...engine, "src/models", "src/mod.ts"],
    ...["src/requests", "src/serve", "src/hub", "src/bench", "deno.json"],
  ],
  "main.ts": ["src/cli"],
  "ffi": [...values, "src/backend"],
  "build.ts": ["ffi", "src/errors.ts"],
};

/** The exceptions, each of which has its reason. */
const exceptions = [
  // Who opens a device, and who reports on libraries and builds the missing one.
  "src/engine/open_backend.ts -> ffi",
  "src/cli/doctor.ts -> ffi",
  "src/cli/native_library.ts -> build.ts",
  // What the engine asks of a constraint is for the engine to say.
  "src/constrain/compiled_constraint.ts -> src/engine",
  "src/constrain/constraints.ts -> src/engine",
  "src/constrain/scoped_constraint.ts -> src/engine",
];

Deno.test("architecture: imports point one way", () => {
  const across = imports
    .map(({ from, to }) => ({ from, room: roomOf(from), to: roomOf(to) }))
    .filter(({ room, to }) => room !== to);
  assert(across.length > 500);
  const against = across
    .filter(({ room, to }) => allowed[room]?.includes(to) !== true)
    .map(({ from, to }) => `${from} -> ${to}`);
  assertEquals([...new Set(against)].sort(), exceptions.toSorted());
});

Deno.test("architecture: constraints are loaded when one is used, and know the engine's types alone", () => {
  for (const { from, to, kind } of imports) {
    if (roomOf(from) === "src/constrain" && roomOf(to) === "src/engine") {
      assertEquals(kind, "types", `${from} -> ${to}`);
    }
    if (roomOf(from) === "src/engine" && roomOf(to) === "src/constrain" && kind === "load") {
      assert(["scope.ts", "spec.ts"].some((name) => to.endsWith(name)), `${from} -> ${to}`);
    }
  }
});

Deno.test("architecture: no module loads itself by way of others", () => {
  const loads = Map.groupBy(imports.filter(({ kind }) => kind === "load"), ({ from }) => from);
  const done = new Set<string>();
  const visit = (path: string, way: readonly string[]): void => {
    assert(!way.includes(path), [...way, path].join(" -> "));
    if (done.has(path)) return;
    for (const { to } of loads.get(path) ?? []) visit(to, [...way, path]);
    done.add(path);
  };
  for (const path of sources) visit(path, []);
});

Deno.test("architecture: the map names every folder", () => {
  const map = Deno.readTextFileSync(join(root, "ARCHITECTURE.md"));
  const folders = ["src", "csrc", "kernels", "test", "ffi", "models"].flatMap((parent) =>
    Array.from(Deno.readDirSync(join(root, parent)))
      .filter(({ isDirectory, name }) => isDirectory && !/^[._]/.test(name))
      .map(({ name }) => ({ parent, name }))
  );
  const unnamed = folders.filter(({ parent, name }) =>
    !map.includes(`${parent}/${name}`) && !map.includes(`\`${name}/\``)
  );
  assertEquals(unnamed.map(({ parent, name }) => `${parent}/${name}`), []);
});

const pages = ["ARCHITECTURE.md", "README.md", ...filesBelow("docs", ".md")];

/** The text of a page without its blocks of code. */
function proseOf(page: string): string {
  return Deno.readTextFileSync(join(root, page)).replaceAll(/^```[^]*?^```/gm, "");
}

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(page: string): string[] {
  return Array.from(
    proseOf(page).matchAll(/^#+ (.+)$/gm),
    ([, title = ""]) => title.toLowerCase().replaceAll(/[^\w\- ]/g, "").replaceAll(" ", "-"),
  );
}

Deno.test("architecture: links lead to what is there", () => {
  for (const page of pages) {
    const links = proseOf(page).matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g);
    for (const [link, path = "", anchor] of links) {
      const target = path === "" ? page : join(dirname(page), path);
      assert(existsSync(join(root, target)), `${page}: ${link}`);
      if (anchor !== undefined) assert(anchorsOf(target).includes(anchor), `${page}: ${link}`);
    }
  }
});

Deno.test("architecture: the files that are named exist", () => {
  const folders = ["src", "ffi", "csrc", "kernels", "test", "bench", "models"];
  const files = ["main.ts", "build.ts", ...folders.flatMap((folder) => filesBelow(folder, ""))];
  for (const page of pages) {
    const named = proseOf(page).matchAll(/`([\w./-]+\.(?:ts|h|cpp|mm|cuh|cu|metal))`/g);
    const missing = Array.from(named, ([, path = ""]) => path)
      .filter((path) => !files.some((file) => file === path || file.endsWith(`/${path}`)));
    assertEquals(missing, [], page);
  }
});

Deno.test("architecture: all that the library exports is documented", async () => {
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["doc", "--lint", "src/mod.ts", "src/serve/mod.ts"],
    cwd: root,
    env: { NO_COLOR: "1" },
    stdout: "null",
    stderr: "piped",
  }).output();
  assert(success, new TextDecoder().decode(stderr));
});
