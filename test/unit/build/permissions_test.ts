/**
 * The permissions forge runs with are the set "forge" in deno.json: everything that starts forge
 * names that set, and the sources need no more than it grants.
 */
import { assert, assertEquals } from "@std/assert";
import { launcherPath } from "../../../ffi/build/install.ts";
import { join } from "@std/path";
import { compilerVariables, defaultCompilers } from "../../../ffi/build/compiler.ts";
import { canCompile, FakeTree } from "./fake_tree.ts";
import { ROOT } from "../../support/checkout.ts";

/** The tested part of deno.json. */
interface Config {
  readonly permissions: {
    readonly forge: {
      readonly env: { readonly allow: readonly string[]; readonly ignore: boolean };
      readonly sys: readonly string[];
      readonly run: readonly string[];
      readonly ffi: readonly string[];
      readonly net: readonly string[];
    };
  };
  readonly tasks: Readonly<Record<string, { readonly command: string }>>;
}

const config: Config = JSON.parse(Deno.readTextFileSync(join(ROOT, "deno.json")));
const granted = config.permissions.forge;

/** Returns the arguments with which the launcher starts a program. */
const withPermissions = [
  "run",
  "--quiet",
  "--no-prompt",
  "--config",
  join(ROOT, "deno.json"),
  "--permission-set=forge",
];

/** Returns the text of every source file of forge. */
function* sourceTexts(): Generator<string> {
  const folders = ["src", "ffi"];
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for (const entry of Deno.readDirSync(join(ROOT, folder))) {
      const path = join(folder, entry.name);
      // A release is made with the permissions of its task.
      if (path === "ffi/build/release") continue;
      if (entry.isDirectory) folders.push(path);
      else if (path.endsWith(".ts")) yield Deno.readTextFileSync(join(ROOT, path));
    }
  }
}

function isVariableGranted(name: string): boolean {
  return granted.env.allow.some((pattern) =>
    pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern
  );
}

Deno.test("permissions: tasks and launcher start forge with the set", () => {
  for (const name of ["forge", "demo"]) {
    const command = config.tasks[name]?.command ?? "";
    assert(command.includes(" --permission-set=forge main.ts"), command);
    assert(!/--allow|-A\b/.test(command), command);
  }
  const launcher = Deno.readTextFileSync(join(ROOT, launcherPath));
  assert(launcher.includes("--permission-set=forge"));
});

Deno.test("permissions: every environment variable the sources read is granted", () => {
  const uses = /(?:\benv\.(?:get|has)\(\s*|\b[A-Z_]+_VARIABLE = )"(\w+)"/g;
  const names = [...sourceTexts()].flatMap((text) =>
    Array.from(text.matchAll(uses), (match) => match[1] ?? "")
  );
  assert(names.includes("CXX") && names.includes("FORGE_LIBRARY_PATH"), names.join(" "));
  for (const name of [...names, ...compilerVariables]) assert(isVariableGranted(name), name);
});

Deno.test("permissions: every system information that the sources read is granted", () => {
  const needs: readonly (readonly [RegExp, string])[] = [
    [/\bDeno\.systemMemoryInfo\b/, "systemMemoryInfo"],
    [/\bDeno\.osRelease\b/, "osRelease"],
    [/\bDeno\.hostname\b/, "hostname"],
    [/\bDeno\.loadavg\b/, "loadavg"],
    [/\bDeno\.uid\b/, "uid"],
  ];
  for (const text of sourceTexts()) {
    assert(!/from "(node:)?os"/.test(text), "node:os asks for more than Deno's own functions");
    for (const [use, name] of needs) assert(!use.test(text) || granted.sys.includes(name), name);
  }
});

Deno.test("permissions: the compilers and the commands that open a page may be run", () => {
  assertEquals(granted.run, [...defaultCompilers, "xdg-open", "open", "explorer"]);
});

Deno.test("permissions: the launcher grants an address in addition to the hosts of the set", () => {
  const launcher = Deno.readTextFileSync(join(ROOT, launcherPath));
  assert(launcher.includes(`--allow-net=${granted.net.join(",")},$added`));
});

Deno.test("permissions: libraries outside of build/ and lib/, other programs and hosts are denied", async () => {
  const folder = Deno.makeTempDirSync({ prefix: "forge-permissions-" });
  try {
    const script = join(folder, "try.ts");
    Deno.writeTextFileSync(
      script,
      `
      const state = async (descriptor) => (await Deno.permissions.query(descriptor)).state;
      const ROOT = ${JSON.stringify(ROOT)};
      console.log(JSON.stringify({
        build: await state({ name: "ffi", path: ROOT + "/build/linux-x86_64/libforge_cpu.so" }),
        lib: await state({ name: "ffi", path: ROOT + "/lib/linux-x86_64/libforge_cpu.so" }),
        elsewhere: await state({ name: "ffi", path: "/tmp/libforge_cpu.so" }),
        shell: await state({ name: "run", command: "sh" }),
        hub: await state({ name: "net", host: "huggingface.co" }),
        host: await state({ name: "net", host: "example.com" }),
        here: await state({ name: "net", host: "127.0.0.1:8080" }),
        everywhere: await state({ name: "net", host: "0.0.0.0:8080" }),
        secret: Deno.env.get("UNLISTED_VARIABLE") ?? "hidden",
        listed: Deno.env.get("FORGE_LISTED_VARIABLE"),
      }));
      `,
    );
    const { stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [...withPermissions, script],
      cwd: folder,
      env: { UNLISTED_VARIABLE: "seen", FORGE_LISTED_VARIABLE: "seen" },
    }).output();
    assertEquals(new TextDecoder().decode(stderr), "");
    assertEquals(JSON.parse(new TextDecoder().decode(stdout)), {
      build: "granted",
      lib: "granted",
      elsewhere: "prompt",
      shell: "prompt",
      hub: "granted",
      host: "prompt",
      here: "granted",
      everywhere: "prompt",
      secret: "hidden",
      listed: "seen",
    });
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
});

Deno.test({
  name: "permissions: they suffice to build a library, with any LD_LIBRARY_PATH",
  ignore: !canCompile,
  async fn() {
    using tree = new FakeTree();
    tree.write(
      "build_it.ts",
      `
      import { buildLibraries } from ${JSON.stringify(import.meta.resolve("../../../build.ts"))};
      const { compiled } = await buildLibraries({ root: import.meta.dirname, only: ["reference"] });
      console.log(compiled);
      `,
    );
    const { stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [...withPermissions, join(tree.root, "build_it.ts")],
      env: { LD_LIBRARY_PATH: tree.root, CXX: "" },
    }).output();
    assertEquals(new TextDecoder().decode(stderr), "");
    assertEquals(new TextDecoder().decode(stdout), "2\n");
  },
});
