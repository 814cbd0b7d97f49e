/**
 * Tests the documentation: links and named files exist, exports are documented, programs
 * type-check.
 */
import { assert, assertEquals } from "@std/assert";
import { existsSync } from "node:fs";
import { dirname, join } from "@std/path";
import { filesBelow, ROOT } from "../support/checkout.ts";

Deno.test("pages: the map of ARCHITECTURE.md names every folder", () => {
  const map = Deno.readTextFileSync(join(ROOT, "ARCHITECTURE.md"));
  const folders = ["src", "csrc", "kernels", "test", "ffi", "models"].flatMap((parent) =>
    Array.from(Deno.readDirSync(join(ROOT, parent)))
      .filter(({ isDirectory, name }) => isDirectory && !/^[._]/.test(name))
      .map(({ name }) => ({ parent, name }))
  );
  const unnamed = folders.filter(({ parent, name }) =>
    !map.includes(`${parent}/${name}`) && !map.includes(`\`${name}/\``)
  );
  assertEquals(unnamed.map(({ parent, name }) => `${parent}/${name}`), []);
});

const pages = [
  "ARCHITECTURE.md",
  "README.md",
  "STATUS.md",
  ...["bench", "kernels", "src"].flatMap((folder) => filesBelow(folder, "README.md")),
  ...["csrc", "src"].flatMap((folder) => filesBelow(folder, "ARCHITECTURE.md")),
];

/** Returns the text of a page without its code blocks. */
function proseOf(page: string): string {
  return Deno.readTextFileSync(join(ROOT, page)).replaceAll(/^```[^]*?^```/gm, "");
}

/** Returns the anchors that GitHub gives the headings of a page. */
function anchorsOf(page: string): string[] {
  return Array.from(
    proseOf(page).matchAll(/^#+ (.+)$/gm),
    ([, title = ""]) => title.toLowerCase().replaceAll(/[^\w\- ]/g, "").replaceAll(" ", "-"),
  );
}

Deno.test("pages: the targets of links exist", () => {
  for (const page of pages) {
    const links = proseOf(page).matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g);
    for (const [link, path = "", anchor] of links) {
      const target = path === "" ? page : join(dirname(page), path);
      assert(existsSync(join(ROOT, target)), `${page}: ${link}`);
      if (anchor !== undefined) assert(anchorsOf(target).includes(anchor), `${page}: ${link}`);
    }
  }
});

Deno.test("pages: named files exist", () => {
  const folders = ["src", "ffi", "csrc", "kernels", "test", "bench", "models"];
  const files = ["main.ts", "build.ts", ...folders.flatMap((folder) => filesBelow(folder, ""))];
  for (const page of pages) {
    const named = proseOf(page).matchAll(/`([\w./-]+\.(?:ts|h|cpp|mm|cuh|cu|metal))`/g);
    const missing = Array.from(named, ([, path = ""]) => path)
      .filter((path) => !files.some((file) => file === path || file.endsWith(`/${path}`)));
    assertEquals(missing, [], page);
  }
});

/** Runs deno in the checkout and fails with its stderr unless it succeeds. */
async function assertDenoAccepts(...args: string[]): Promise<void> {
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args,
    cwd: ROOT,
    env: { NO_COLOR: "1" },
    stdout: "null",
    stderr: "piped",
  }).output();
  assert(success, new TextDecoder().decode(stderr));
}

Deno.test("pages: every export of the library is documented", () =>
  assertDenoAccepts("doc", "--lint", "src/mod.ts", "src/serve/mod.ts"));

Deno.test("pages: the programs on pages type-check", () =>
  assertDenoAccepts("check", "--quiet", "--doc-only", ...pages));
