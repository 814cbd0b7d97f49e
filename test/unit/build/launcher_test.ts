import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { dirname, join } from "@std/path";
import { denoArguments } from "../../../src/npm/launcher.ts";
import { launcherPath, linkLauncher } from "../../../ffi/build/install.ts";
import { ForgeError } from "../../../src/errors.ts";
import { programPath } from "./fake_tree.ts";
import { ROOT } from "../../support/checkout.ts";

/** A tree with the launcher, and a folder of programs used as PATH. */
class LauncherFixture {
  readonly folder = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "forge launcher " }));
  readonly tree = join(this.folder, "tree");
  readonly path = join(this.folder, "path");
  readonly launcher = join(this.tree, launcherPath);

  constructor() {
    for (const folder of [dirname(this.launcher), join(this.tree, "bin"), this.path]) {
      Deno.mkdirSync(folder, { recursive: true });
    }
    Deno.copyFileSync(join(ROOT, launcherPath), this.launcher);
    for (const tool of ["sh", "dirname", "readlink"]) {
      Deno.symlinkSync(programPath(tool), join(this.path, tool));
    }
  }

  /** Adds a fake Deno of a version, which prints its name and then one argument per line. */
  addProgram(path: string, version: string): void {
    const script = `#!/bin/sh
      if [ "$1" = --version ]; then echo "deno ${version} (stable)"; exit; fi
      echo "\${0##*/}"; for a; do echo "$a"; done; exit 7
    `;
    Deno.writeTextFileSync(path, script, { mode: 0o755 });
  }

  async run(command: string, args: readonly string[], variables: Record<string, string> = {}) {
    const { code, stdout, stderr } = await new Deno.Command(command, {
      args: [...args],
      clearEnv: true,
      env: { PATH: this.path, ...variables },
    }).output();
    const decoder = new TextDecoder();
    return { code, lines: decoder.decode(stdout).split("\n"), errors: decoder.decode(stderr) };
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.folder, { recursive: true });
  }
}

Deno.test("the launcher: the first command of the README downloads nothing", async () => {
  const readme = Deno.readTextFileSync(join(ROOT, "README.md"));
  assertStringIncludes(readme, `${launcherPath} run -p "Once upon a time"`);
  using fixture = new LauncherFixture();
  Deno.symlinkSync(Deno.execPath(), join(fixture.path, "deno"));
  const variables = { HOME: fixture.folder, HTTPS_PROXY: "http://127.0.0.1:1" };
  const launcher = join(ROOT, launcherPath);
  const { code, lines, errors } = await fixture.run(launcher, ["--version"], variables);
  assertEquals([code, errors], [0, ""]);
  assertStringIncludes(lines[0]!, "forge ");
});

Deno.test("the launcher: runs main.ts with the permission set of deno.json", async () => {
  using fixture = new LauncherFixture();
  fixture.addProgram(join(fixture.path, "deno"), "2.9.6");
  const { code, lines, errors } = await fixture.run(fixture.launcher, ["run", "-p", "two words"]);
  assertEquals(errors, "");
  assertEquals(code, 7);
  assertEquals(lines, [
    "deno",
    "run",
    "--quiet",
    "--no-prompt",
    "--no-lock",
    "--config",
    `${fixture.tree}/deno.json`,
    "--permission-set=forge",
    `${fixture.tree}/main.ts`,
    "run",
    "-p",
    "two words",
    "",
  ]);
});

Deno.test("the launcher: finds its tree through links, absolute and relative", async () => {
  using fixture = new LauncherFixture();
  fixture.addProgram(join(fixture.path, "deno"), "2.10.0");
  linkLauncher(fixture.tree, fixture.path, false);
  Deno.symlinkSync("path/forge", join(fixture.folder, "again"));
  for (const command of ["forge", join(fixture.folder, "again")]) {
    const { lines } = await fixture.run(command, []);
    assert(lines.includes(`${fixture.tree}/main.ts`), lines.join("\n"));
  }
});

Deno.test("the launcher: a chosen folder of libraries is permitted too", async () => {
  using fixture = new LauncherFixture();
  fixture.addProgram(join(fixture.path, "deno"), "3.0.0");
  const { lines } = await fixture.run(fixture.launcher, [], {
    FORGE_LIBRARY_PATH: "/some where",
  });
  const { tree } = fixture;
  const position = lines.indexOf("--permission-set=forge");
  assertEquals(lines.slice(position + 1, -1), [
    `--allow-ffi=${tree}/build,${tree}/lib,/some where`,
    `${tree}/main.ts`,
  ]);
});

Deno.test("the launcher: a chosen hub is permitted, and no other host", async () => {
  using fixture = new LauncherFixture();
  fixture.addProgram(join(fixture.path, "deno"), "2.9.6");
  const set =
    "huggingface.co,*.huggingface.co,*.hf.co,modelscope.cn,*.modelscope.cn,127.0.0.1,localhost,[::1]";
  const granted = async (env: Record<string, string>, ...args: string[]) =>
    (await fixture.run(fixture.launcher, args, env)).lines
      .filter((line) => line.startsWith("--allow-net"));
  const cases: readonly (readonly [string, string | undefined])[] = [
    ["https://hub.example", "hub.example,*.hub.example"],
    ["https://user:secret@hub.example:8443/path?a=b", "hub.example:8443,*.hub.example:8443"],
    ["http://127.0.0.1:9000/", "127.0.0.1:9000"],
    ["hub.example", "hub.example,*.hub.example"],
    ["https://a,b.example", undefined],
    ["https://*", undefined],
    ["https://", undefined],
  ];
  for (const [endpoint, hosts] of cases) {
    assertEquals(
      await granted({ HF_ENDPOINT: endpoint }, "run"),
      hosts === undefined ? [] : [`--allow-net=${set},${hosts}`],
      endpoint,
    );
  }
  assertEquals(await granted({ FORGE_HUB_HOSTS: "cdn.example,*.cdn.example" }, "pull"), [
    `--allow-net=${set},cdn.example,*.cdn.example`,
  ]);
  assertEquals(await granted({ FORGE_HUB_HOSTS: "a b" }, "pull"), []);
  assertEquals(
    await granted({ HF_ENDPOINT: "https://hub.example" }, "serve", "--host", "0.0.0.0"),
    [`--allow-net=${set},hub.example,*.hub.example,0.0.0.0`],
  );
});

Deno.test("the launcher: the listening address is permitted, but only for serve", async () => {
  using fixture = new LauncherFixture();
  fixture.addProgram(join(fixture.path, "deno"), "2.9.6");
  const hosts =
    "huggingface.co,*.huggingface.co,*.hf.co,modelscope.cn,*.modelscope.cn,127.0.0.1,localhost,[::1]";
  const granted = async (...args: string[]) =>
    (await fixture.run(fixture.launcher, args)).lines.find((line) =>
      line.startsWith("--allow-net")
    );
  assertEquals(await granted("serve", "--host", "0.0.0.0"), `--allow-net=${hosts},0.0.0.0`);
  assertEquals(await granted("serve", "-n", "1", "--host=::"), `--allow-net=${hosts},[::]`);
  assertEquals(await granted("serve", "--host", "[::]"), `--allow-net=${hosts},[::]`);
  assertEquals(await granted("serve", "--host", "a,example.com"), undefined);
  assertEquals(await granted("serve"), undefined);
  assertEquals(await granted("run", "--host", "0.0.0.0"), undefined);
  assertEquals(await granted("serve", "--host", "0.0.0.0", "--distributed"), "--allow-net");
});

Deno.test("the launcher: gives Deno the same arguments as that of the npm package", async () => {
  using fixture = new LauncherFixture();
  fixture.addProgram(join(fixture.path, "deno"), "2.9.6");
  const cases: readonly (readonly [readonly string[], Record<string, string>])[] = [
    [["run", "-p", "two words", ""], {}],
    [["run", "--batch", "in.jsonl"], { FORGE_LIBRARY_PATH: "/some where" }],
    [["run", "--batch=in.jsonl"], { HF_ENDPOINT: "https://a:b@hub.example:8443/path?x=y" }],
    [["serve", "--host=::"], { HF_ENDPOINT: "http://127.0.0.1:9000" }],
    [["serve", "--host", "0.0.0.0", "--host", "[::]"], { FORGE_HUB_HOSTS: "cdn.example" }],
    [["serve", "--host", "a,b"], { FORGE_HUB_HOSTS: "a b", HF_ENDPOINT: "https://a,b" }],
    [["run", "--host", "0.0.0.0"], { HF_ENDPOINT: "" }],
    [["run", "--distributed"], { HF_ENDPOINT: "https://hub.example" }],
    [["pull"], { MODELSCOPE_ENDPOINT: "https://modelscope.ai", HF_ENDPOINT: "http://a.example/" }],
    [["pull"], { MODELSCOPE_ENDPOINT: "http://127.0.0.1:9/", HF_ENDPOINT: "https://a,b" }],
    [[], {}],
  ];
  // The shell script permits its own folders of libraries, the npm package those of other packages.
  const general = (lines: readonly string[], root: string) =>
    lines.map((line) => line.replace(root, "ROOT").replace(/main\.(js|ts)$/, "main"))
      .map((line) => line.replace(/^--allow-ffi=.*?,(?=\/some)/, "--allow-ffi="));
  for (const [args, variables] of cases) {
    const { lines } = await fixture.run(fixture.launcher, args, variables);
    assertEquals(
      general(denoArguments(args, variables, []), ROOT),
      general(lines.slice(1, -1), fixture.tree),
      JSON.stringify([args, variables]),
    );
  }
});

Deno.test("the launcher: prefers its own Deno, and uses npx if Deno is too old", async () => {
  using fixture = new LauncherFixture();
  fixture.addProgram(join(fixture.path, "deno"), "2.8.3");
  fixture.addProgram(join(fixture.path, "npx"), "");
  const { lines } = await fixture.run(fixture.launcher, []);
  assertEquals(lines.slice(0, 5), ["npx", "--loglevel=error", "-y", "deno@2.9.6", "run"]);

  fixture.addProgram(join(fixture.tree, "bin", "deno"), "2.9.6");
  assertEquals((await fixture.run(fixture.launcher, [])).lines.slice(0, 2), ["deno", "run"]);
});

Deno.test("the launcher: without Deno and npx, says what to install", async () => {
  using fixture = new LauncherFixture();
  const { code, lines, errors } = await fixture.run(fixture.launcher, ["--version"]);
  assertEquals([code, lines], [1, [""]]);
  assertStringIncludes(errors, "forge: no Deno 2.9 or newer found");
  assertEquals(errors.trim().split("\n").length, 1);
});

Deno.test("linkLauncher: replaces its own link, and nothing else unless forced", () => {
  using fixture = new LauncherFixture();
  const folder = join(fixture.folder, "new", "bin");
  const path = linkLauncher(fixture.tree, folder, false);
  assertEquals(Deno.readLinkSync(path), fixture.launcher);
  assertEquals(linkLauncher("/another/tree", folder, false), path);
  assertEquals(Deno.readLinkSync(path), `/another/tree/${launcherPath}`);

  Deno.removeSync(path);
  Deno.symlinkSync("/opt/forge/bin/forge", path);
  assertThrows(() => linkLauncher(fixture.tree, folder, false), ForgeError, "not a link to forge");
  assertEquals(Deno.readLinkSync(path), "/opt/forge/bin/forge");
  Deno.removeSync(path);
  Deno.writeTextFileSync(path, "someone's own program");
  const error = assertThrows(() => linkLauncher(fixture.tree, folder, false), ForgeError, path);
  assertEquals(error.code, "usage");
  assertEquals(Deno.readTextFileSync(path), "someone's own program");
  linkLauncher(fixture.tree, folder, true);
  assertEquals(Deno.readLinkSync(path), fixture.launcher);
});

Deno.test("the launcher: Deno's folder is in the tree if the home folder is not writable", async () => {
  using fixture = new LauncherFixture();
  const script = '#!/bin/sh\necho "${DENO_DIR-none} ${npm_config_progress-none}"\n';
  Deno.writeTextFileSync(join(fixture.tree, "bin", "deno"), script, { mode: 0o755 });
  const ask = async (variables: Record<string, string>) =>
    (await fixture.run(fixture.launcher, ["list"], variables)).lines[0];
  assertEquals(await ask({ HOME: fixture.folder }), "none none");
  assertEquals(await ask({ HOME: "/nonexistent" }), `${fixture.tree}/build/deno none`);
  assertEquals(await ask({ HOME: "/nonexistent", DENO_DIR: "/d" }), "/d none");
  // Without Deno, npx runs it, and npm prints nothing.
  Deno.removeSync(join(fixture.tree, "bin", "deno"));
  Deno.writeTextFileSync(join(fixture.path, "npx"), script, { mode: 0o755 });
  assertEquals(await ask({ HOME: fixture.folder }), "none false");
});
