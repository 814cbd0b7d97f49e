/** Imports follow the directions of ARCHITECTURE.md, and no import circles exist. */
import { assert, assertEquals } from "@std/assert";
import { dirname, join } from "@std/path";
import { filesBelow, ROOT } from "../support/checkout.ts";

const sources = ["main.ts", "build.ts", ...["src", "ffi"].flatMap((at) => filesBelow(at, ".ts"))];

interface Import {
  readonly from: string;
  readonly to: string;
  /** Time of the import: never (types only), when the module is loaded, or by `import()` later. */
  readonly kind: "types" | "load" | "later";
}

function importsOf(from: string): Import[] {
  const text = Deno.readTextFileSync(join(ROOT, from));
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

/** Returns the room of a file. The rules hold between rooms. */
function roomOf(path: string): string {
  const [first = "", second = ""] = path.split("/");
  if (first !== "src") return first;
  return `src/${second.replace(/^backend\.ts$/, "backend")}`;
}

const values = ["src/errors.ts", "src/formats"];
const engine = [...values, "src/backend", "src/tokenizer", "src/constrain", "src/engine"];

/** Rooms that each room may import. */
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
  "src/npm": [],
  "main.ts": ["src/cli"],
  "ffi": [...values, "src/backend", "deno.json"],
  "build.ts": ["ffi", "src/errors.ts"],
};

/** Exceptions with their reasons. */
const exceptions = [
  // Opening a device; reporting on libraries and their ABI, and building a missing one.
  "src/engine/load/open_backend.ts -> ffi",
  "src/cli/commands/doctor.ts -> ffi",
  "src/cli/version.ts -> ffi",
  "src/cli/model/open_model.ts -> build.ts",
  // The engine defines the interface of constraints.
  "src/constrain/compiled_constraint.ts -> src/engine",
  "src/constrain/constraints.ts -> src/engine",
  "src/constrain/scoped_constraint.ts -> src/engine",
];

Deno.test("imports: rooms import only the rooms that they may", () => {
  const across = imports
    .map(({ from, to }) => ({ from, room: roomOf(from), to: roomOf(to) }))
    .filter(({ room, to }) => room !== to);
  assert(across.length > 500);
  const against = across
    .filter(({ room, to }) => allowed[room]?.includes(to) !== true)
    .map(({ from, to }) => `${from} -> ${to}`);
  assertEquals([...new Set(against)].sort(), exceptions.toSorted());
});

Deno.test("imports: constraints are loaded on use, and import only types of the engine", () => {
  for (const { from, to, kind } of imports) {
    if (roomOf(from) === "src/constrain" && roomOf(to) === "src/engine") {
      assertEquals(kind, "types", `${from} -> ${to}`);
    }
    if (roomOf(from) === "src/engine" && roomOf(to) === "src/constrain" && kind === "load") {
      assert(to.endsWith("spec.ts"), `${from} -> ${to}`);
    }
  }
});

Deno.test("imports: there are no circles of values, not even by import()", () => {
  const values = Map.groupBy(imports.filter(({ kind }) => kind !== "types"), ({ from }) => from);
  const done = new Set<string>();
  const visit = (path: string, way: readonly string[]): void => {
    assert(!way.includes(path), [...way, path].join(" -> "));
    if (done.has(path)) return;
    for (const { to } of values.get(path) ?? []) visit(to, [...way, path]);
    done.add(path);
  };
  for (const path of sources) visit(path, []);
});

Deno.test("imports: the library needs no names that only deno.json of this clone knows", () => {
  for (const path of sources.filter((path) => !path.startsWith("src/cli/"))) {
    const text = Deno.readTextFileSync(join(ROOT, path));
    const names = Array.from(text.matchAll(/^(?:import|export) [^"';]*? ?from "([^"]*)"/gm));
    const unknown = names.map(([, name = ""]) => name)
      .filter((name) => !/^(\.|node:)/.test(name) && name !== "marked");
    assertEquals(unknown, [], path);
  }
});
