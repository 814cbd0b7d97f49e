/**
 * The npm packages: installed from a registry on this machine into empty folders, with nothing on
 * PATH but Node. Deno's package for this platform is replaced by one with a script that starts the
 * Deno which runs the tests.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes, assertThrows } from "@std/assert";
import { basename, join } from "@std/path";
import {
  DENO_VERSION,
  denoPackage,
  libraryPackages,
  NAME,
  pack,
  type WrittenPackage,
} from "../../ffi/build/release/pack_npm.ts";
import { buildLibraries } from "../../ffi/build/build.ts";
import { compileOneFile } from "../../ffi/build/release/compile.ts";
import { prepareRelease } from "../../ffi/build/release/release.ts";
import { writeSyntheticModel } from "../../src/bench/synthetic/model.ts";
import type { ModelShape } from "../../src/bench/synthetic/shapes.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { hostPlatform, platformName } from "../../ffi/build/targets.ts";
import config from "../../deno.json" with { type: "json" };
import { filesBelow, ROOT } from "../support/checkout.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { within } from "../support/wait.ts";
import { programPath, toolAvailable } from "../unit/build/fake_tree.ts";
import { forge } from "./forge.ts";

const canInstall = Deno.build.os !== "windows" && await toolAvailable("npm") &&
  await toolAvailable("tar");
if (!canInstall) console.log("npm packages: skipped on Windows, and where npm or tar is missing");

const PROMPT = ["run", "-p", "Once upon a time", "--temp", "0", "-n", "12"];

async function tool(program: string, args: readonly string[], cwd: string): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(program, { args: [...args], cwd })
    .output();
  assert(success, `${program} ${args.join(" ")}: ${new TextDecoder().decode(stderr)}`);
  return new TextDecoder().decode(stdout);
}

function writeTinyGguf(path: string): void {
  const shape: ModelShape = {
    architecture: "llama",
    nLayers: 2,
    hiddenSize: 64,
    intermediateSize: 128,
    nHeads: 4,
    nKvHeads: 2,
    headDim: 16,
    vocabSize: 512,
    contextLength: 256,
    ropeTheta: 10000,
    tied: true,
  };
  const device = openBackend("reference");
  try {
    writeSyntheticModel(path, { name: "tiny", shape, type: "Q8_0" }, device);
  } finally {
    device.close();
  }
}

/** The read parts of a package.json. */
interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
}

/** A registry with forge's packages of this machine, and folders to install them into. */
class Registry implements AsyncDisposable {
  readonly folder = new TempFolder();
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  readonly #documents = new Map<string, unknown>();
  packages: readonly WrittenPackage[] = [];

  constructor() {
    this.#server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, (request) => {
      const name = decodeURIComponent(new URL(request.url).pathname.slice(1));
      const document = this.#documents.get(name);
      if (document !== undefined) return Response.json(document);
      try {
        return new Response(Deno.readFileSync(this.folder.at("packages", basename(name))));
      } catch {
        return new Response("no such package", { status: 404 });
      }
    });
  }

  get url(): string {
    return `http://127.0.0.1:${this.#server.addr.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
    this.folder[Symbol.dispose]();
  }

  async publish(): Promise<void> {
    this.packages = await pack({
      root: ROOT,
      platform: hostPlatform(),
      only: ["cpu"],
      output: this.folder.at("packages"),
      log: () => {},
    });
    for (const { path } of this.packages) {
      this.#add(JSON.parse(await tool("tar", ["-xzOf", path, "package/package.json"], "/")), path);
    }
    for (const { name, fits: { os, cpu } } of libraryPackages) {
      if (this.#documents.has(name)) continue;
      await this.#publish({ name, version: config.version, os, cpu }, "");
    }
    const script = `#!/bin/sh\nexec "${Deno.execPath()}" "$@"\n`;
    for (const { platform, fits: { os, cpu } } of libraryPackages) {
      await this.#publish({ name: denoPackage(platform), version: DENO_VERSION, os, cpu }, script);
    }
  }

  /** Publishes a package with a program `deno`. */
  async #publish(manifest: Manifest, program: string): Promise<void> {
    const folder = this.folder.at(manifest.name);
    Deno.mkdirSync(join(folder, "package"), { recursive: true });
    Deno.writeTextFileSync(join(folder, "package", "package.json"), JSON.stringify(manifest));
    Deno.writeTextFileSync(join(folder, "package", "deno"), program, { mode: 0o755 });
    const archive = this.folder.at("packages", `${manifest.name.replace("/", "-")}.tgz`);
    await tool("tar", ["-czf", archive, "package"], folder);
    this.#add(manifest, archive);
  }

  #add(manifest: Manifest, path: string): void {
    const { name, version } = manifest;
    const dist = { tarball: `${this.url}/${basename(path)}` };
    const versions = { [version]: { ...manifest, dist } };
    this.#documents.set(name, { name, "dist-tags": { latest: version }, versions });
  }

  /** Prepares a program with no other program on PATH but Node and a shell. */
  #command(program: string, args: readonly string[], cwd: string, variables = {}): Deno.Command {
    const path = this.folder.at("path");
    Deno.mkdirSync(path, { recursive: true });
    for (const name of ["node", "sh"]) {
      try {
        Deno.symlinkSync(programPath(name), join(path, name));
      } catch (error) {
        if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
      }
    }
    return new Deno.Command(program, {
      args: [...args],
      cwd,
      clearEnv: true,
      env: {
        PATH: path,
        HOME: this.folder.at("home"),
        NO_COLOR: "1",
        npm_config_registry: this.url,
        NPM_CONFIG_REGISTRY: this.url,
        npm_config_cache: this.folder.at("npm"),
        DENO_DIR: this.folder.at("deno_dir"),
        ...variables,
      },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    });
  }

  /** Runs a program in a folder. */
  async run(program: string, args: readonly string[], cwd: string, variables = {}) {
    const command = this.#command(program, args, cwd, variables);
    const { code, stdout, stderr } = await command.output();
    const decoder = new TextDecoder();
    return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
  }

  /** Starts a program in a folder. */
  start(program: string, args: readonly string[], cwd: string): Deno.ChildProcess {
    return this.#command(program, args, cwd).spawn();
  }

  /** Creates an empty project. */
  project(name: string): string {
    const folder = this.folder.at(name);
    Deno.mkdirSync(folder);
    Deno.writeTextFileSync(join(folder, "package.json"), "{}");
    return folder;
  }
}

Deno.test({
  name: "npm packages: the command, the client, and the library from Deno",
  ignore: !canInstall,
  async fn(t) {
    await using registry = new Registry();
    await registry.publish();
    const expected = await forge(PROMPT);
    assertEquals(expected.stderr, "");
    const npm = programPath("npm");
    const folder = registry.project("installed");
    const command = join(folder, "node_modules", ".bin", "forge");

    await t.step("they are small", () => {
      const bytes = registry.packages.reduce((sum, each) => sum + each.bytes, 0);
      const sizes = registry.packages.map((each) => `${basename(each.path)} ${each.bytes}`);
      console.log(`${sizes.join(", ")}: ${(bytes / 1e6).toFixed(2)} MB together`);
      assertEquals(registry.packages.length, 2);
      for (const { name, bytes } of registry.packages) assert(bytes < 6e6, name);
    });
    await t.step("a release has checksums, contents and installers", async () => {
      const release = registry.folder.at("release");
      Deno.mkdirSync(join(release, "npm"), { recursive: true });
      for (const { path } of registry.packages) {
        Deno.copyFileSync(path, join(release, "npm", basename(path)));
      }
      prepareRelease({ folder: release, address: "https://releases.example" });
      const sums = Deno.readTextFileSync(join(release, "SHA256SUMS"));
      const digest = await crypto.subtle.digest(
        "SHA-256",
        Deno.readFileSync(registry.packages[0]!.path),
      );
      assertStringIncludes(
        sums,
        `${new Uint8Array(digest).toHex()}  ${basename(registry.packages[0]!.path)}\n`,
      );
      const { packages } = JSON.parse(Deno.readTextFileSync(join(release, "sbom.spdx.json")));
      const names = packages.map(({ name }: { name: string }) => name);
      for (const name of [`${NAME}.tgz`, "deno", "marked"]) assert(names.includes(name), name);
      const installer = Deno.readTextFileSync(join(release, "install.sh"));
      assertStringIncludes(installer, "release=${FORGE_RELEASE-https://releases.example}");
      assertThrows(
        () => prepareRelease({ folder: release, address: "", tag: "v9.9.9" }),
        ForgeError,
        "these packages are missing",
      );
    });
    await t.step("npx runs the demo model", async () => {
      const cwd = registry.project("npx");
      const args = ["exec", "-y", "--", NAME, ...PROMPT];
      assertEquals(await registry.run(npm, args, cwd), expected);
    });
    await t.step("npm installs the libraries of this platform only", async () => {
      const { code, stderr } = await registry.run(npm, ["install", NAME], folder);
      assertEquals([code, stderr], [0, ""]);
      const scope = join(folder, "node_modules", `@${NAME}`);
      assertEquals(
        Array.from(Deno.readDirSync(scope), ({ name }) => name).sort(),
        libraryPackages.filter(({ platform }) =>
          platformName(platform) === platformName(hostPlatform())
        ).map(({ name }) => basename(name)),
      );
    });
    await t.step("the version has a commit and the ABI", async () => {
      const { stdout } = await registry.run(command, ["--version"], "/");
      assertMatch(stdout, /^forge \d+\.\d+\.\d+ \(commit [0-9a-f]{10}\+?, ABI \d+\)\n$/);
    });
    await t.step("errors and exit codes pass through", async () => {
      const { code, stderr } = await registry.run(command, ["run", "--no-such"], "/");
      assertEquals(code, 2);
      assertStringIncludes(stderr, "unknown option");
    });
    await t.step("the command runs a GGUF file", async () => {
      const path = registry.folder.at("model.gguf");
      writeTinyGguf(path);
      const args = ["run", "-m", path, "-p", "Hello", "--temp", "0", "-n", "8"];
      const outcome = await registry.run(command, args, "/");
      assertEquals(outcome, await forge(args));
      assert(outcome.stdout.length > 0);
    });
    await t.step("the command serves, and ends with SIGTERM", async () => {
      const args = ["serve", "--port", "0", "--device", "cpu"];
      const server = registry.start(command, args, "/");
      let log = "";
      let address: string | undefined;
      const lines = server.stderr.pipeThrough(new TextDecoderStream()).getReader();
      while (address === undefined) {
        const { value, done } = await within(lines.read(), () => `address in ${log}`);
        assert(!done, log);
        log += value;
        address = /listening on (http:\S+) /.exec(log)?.[1];
      }
      const messages = [{ role: "user", content: "Once upon a time" }];
      const body = { messages, max_tokens: 12, temperature: 0 };
      const response = await fetch(`${address}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      assertEquals((await response.json()).choices[0].message.content, expected.stdout);
      for (const path of ["", "/page/main.ts", "/page/marked.js"]) {
        const page = await fetch(address + path);
        assert(page.ok && (await page.text()).length > 1000, path);
      }
      server.kill("SIGTERM");
      while (!(await within(lines.read(), () => "end of the server")).done);
      await server.stdout.cancel();
      assertEquals((await server.status).code, 0);
    });
    await t.step("Node starts a server and asks it", async () => {
      Deno.writeTextFileSync(
        join(folder, "ask.mjs"),
        `import { connect } from "${NAME}/client";
        const forge = await connect({ args: ["--device", "cpu"] });
        const options = { temperature: 0, max_tokens: 4 };
        console.log(await forge.chat([{ role: "user", content: "Hi" }], options));
        await forge.close();
        await connect({ model: "./no-such.gguf" }).catch((error) => console.log(error.message));
        await import("${NAME}").catch((error) => console.log(error.message));`,
      );
      const { code, stdout, stderr } = await registry.run("node", ["ask.mjs"], folder);
      assertEquals([code, stderr], [0, ""]);
      const [answer, missing, onlyOnDeno] = stdout.trim().split("\n");
      assertMatch(answer!, /\w/);
      assertStringIncludes(missing!, "no such file or folder");
      assertStringIncludes(onlyOnDeno!, "runs on Deno");
    });
    await t.step(
      "the server ends with the program that started it, even if that is killed",
      async () => {
        Deno.writeTextFileSync(
          join(folder, "killed.mjs"),
          `import { connect } from "${NAME}/client";
        const { baseURL } = await connect({ args: ["--device", "cpu"] });
        process.stdout.write(baseURL, () => process.kill(process.pid, "SIGKILL"));`,
        );
        const { stdout } = await registry.run("node", ["killed.mjs"], folder);
        assertMatch(stdout, /^http:/);
        const answers = () =>
          fetch(`${stdout}/models`).then((response) => response.body?.cancel(), () => "ended");
        for (let tries = 0; await answers() !== "ended"; tries++) {
          assert(tries < 100, "the server goes on");
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      },
    );
    await t.step("the client has types", async () => {
      Deno.writeTextFileSync(
        join(folder, "types.ts"),
        `import { connect, type Connection, type Message } from "${NAME}/client";
        const messages: Message[] = [{ role: "user", content: "Hi" }];
        const forge: Connection = await connect({ model: "model.gguf" });
        const text: string = await forge.chat(messages);
        // @ts-expect-error: messages are a list
        await forge.chat(text);`,
      );
      const args = ["check", "--quiet", "types.ts"];
      const { code, stderr } = await registry.run(Deno.execPath(), args, folder);
      assertEquals([code, stderr], [0, ""]);
    });
    await t.step("Deno imports the library", async () => {
      Deno.writeTextFileSync(
        join(folder, "library.mjs"),
        `import { load } from "${NAME}";
        await using model = await load(Deno.args[0]);
        const { text } = await model.complete("Hi", { temperature: 0, maxTokens: 4 });
        console.log(text.length > 0);`,
      );
      const args = ["run", "-A", "library.mjs", join(ROOT, "models", "demo")];
      const { code, stdout, stderr } = await registry.run(Deno.execPath(), args, folder);
      assertEquals([code, stdout], [0, "true\n"], stderr);
    });
    await t.step("Deno runs the command without an installation", async () => {
      const cwd = registry.folder.at("anywhere");
      Deno.mkdirSync(cwd);
      const args = ["run", "-A", "--quiet", `npm:${NAME}/cli`, ...PROMPT];
      const outcome = await registry.run(Deno.execPath(), args, cwd);
      assertEquals(outcome, expected, outcome.stderr);
    });
    await t.step("sources from the network use the libraries of npm", async () => {
      const files = new Set([...filesBelow("src", ".ts"), ...filesBelow("ffi", ".ts")]);
      await using server = Deno.serve(
        { hostname: "127.0.0.1", port: 0, onListen: () => {} },
        (request) => {
          const path = new URL(request.url).pathname.slice(1);
          if (!files.has(path) && path !== "deno.json") return new Response("", { status: 404 });
          const type = path.endsWith(".ts") ? "text/typescript" : "application/json";
          const text = Deno.readTextFileSync(join(ROOT, path));
          return new Response(text, { headers: { "content-type": type } });
        },
      );
      const cwd = registry.folder.at("anywhere");
      Deno.writeTextFileSync(
        join(cwd, "library.ts"),
        `import { load } from "http://127.0.0.1:${server.addr.port}/src/mod.ts";
        await using model = await load(Deno.args[0]!);
        const { text } = await model.complete("Hi", { temperature: 0, maxTokens: 4 });
        console.log(text.length > 0);`,
      );
      const args = ["run", "-A", "--quiet", "library.ts", join(ROOT, "models", "demo")];
      const { code, stdout, stderr } = await registry.run(Deno.execPath(), args, cwd);
      assertEquals([code, stdout], [0, "true\n"], stderr);
    });
    await t.step("musl and missing packages are named", async () => {
      // Node's report on a system with musl.
      const musl = registry.folder.at("musl.cjs");
      Deno.writeTextFileSync(
        musl,
        `process.report.getReport = () => ({ sharedObjects: ["/lib/ld-musl-x86_64.so.1"] });`,
      );
      const onMusl = { NODE_OPTIONS: `--require ${musl}` };
      const refused = async () => {
        const { code, stdout, stderr } = await registry.run(command, PROMPT, "/", onMusl);
        assertEquals([code, stdout], [1, ""]);
        assertMatch(stderr, /^forge: error: the C library of this system is musl; .* glibc 2.28/);
      };
      // A loader that is missing, as that of glibc is there.
      const program = join(folder, "node_modules", denoPackage(hostPlatform()), "deno");
      Deno.writeTextFileSync(program, "#!/no-such-loader\n");
      await refused();
      Deno.removeSync(join(folder, "node_modules", `@${NAME}`), { recursive: true });
      await refused();
      const { code, stdout, stderr } = await registry.run(command, PROMPT, "/");
      assertEquals([code, stdout], [1, ""]);
      assertMatch(
        stderr,
        /^forge: error: the package @\S+ is missing; install it with: npm install/,
      );
      assertEquals(stderr.trim().split("\n").length, 1);
    });
  },
});

/** True if a file contains the bytes of another. */
function contains(path: string, part: string): boolean {
  // Latin-1 has a character for every byte.
  const latin1 = (file: string) => new TextDecoder("latin1").decode(Deno.readFileSync(file));
  return latin1(path).includes(latin1(part));
}

Deno.test({
  name: "one file: contains the libraries, the model, the page and the sources",
  ignore: Deno.build.os === "windows",
  async fn() {
    using folder = new TempFolder();
    // The runtime is not a package of any registry. Deno itself stands in for it, and cannot run
    // the contents, which are appended to it.
    const before = Deno.env.get("DENORT_BIN");
    Deno.env.set("DENORT_BIN", before ?? Deno.execPath());
    try {
      const platform = hostPlatform();
      const options = { root: ROOT, platform, output: folder.path, log: () => {} };
      const file = await compileOneFile({ ...options, only: ["cpu"] });
      const added = Deno.statSync(file).size - Deno.statSync(Deno.env.get("DENORT_BIN")!).size;
      console.log(`forge adds ${(added / 1e6).toFixed(1)} MB to the runtime of Deno`);
      const { libraries } = await buildLibraries({ root: ROOT, only: ["cpu"] });
      const demo = join(ROOT, "models", "demo");
      const page = join(ROOT, "src", "serve", "page");
      for (
        const part of [
          ...libraries.map(({ path }) => path),
          join(demo, "model.safetensors"),
          join(page, "index.html"),
          join(page, "main.ts"),
        ]
      ) {
        assert(contains(file, part), part);
      }
      if (before === undefined) return;
      const { success, stdout } = await new Deno.Command(file, { args: PROMPT }).output();
      assert(success);
      assertEquals(new TextDecoder().decode(stdout), (await forge(PROMPT)).stdout);
    } finally {
      if (before === undefined) Deno.env.delete("DENORT_BIN");
      else Deno.env.set("DENORT_BIN", before);
    }
  },
});

Deno.test("the library outside the clone: imported by path, without deno.json", async () => {
  using folder = new TempFolder();
  const script = folder.write(
    "script.ts",
    `import { load } from ${JSON.stringify(join(ROOT, "src", "mod.ts"))};
    await using model = await load(${JSON.stringify(join(ROOT, "models", "demo"))});
    const { text } = await model.complete("Hi", { temperature: 0, maxTokens: 4 });
    console.log(text.length > 0);`,
  );
  assertEquals(
    await tool(Deno.execPath(), ["run", "-A", "--quiet", script], folder.path),
    "true\n",
  );
});

Deno.test("the library outside the clone: ready for JSR, without slow types", async () => {
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["publish", "--dry-run", "--allow-dirty"],
    cwd: ROOT,
    env: { NO_COLOR: "1" },
  }).output();
  const text = new TextDecoder().decode(stderr);
  assert(success, text);
  for (const path of ["main.ts", "src/mod.ts", "ffi/library.ts"]) {
    assertStringIncludes(text, `${ROOT}/${path} (`);
  }
  assert(!text.includes("/test/"), text);
});
