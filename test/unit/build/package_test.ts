import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { launcherPath } from "../../../ffi/build/install.ts";
import { writePackage } from "../../../ffi/build/package.ts";
import { hostPlatform, platformName } from "../../../ffi/build/targets.ts";
import { ForgeError } from "../../../src/errors.ts";
import { canCompile, FakeTree, programPath, toolAvailable } from "./fake_tree.ts";
import { ROOT } from "../../support/checkout.ts";

const platform = hostPlatform();
const hasTar = await toolAvailable("tar");

/** Uses an npm package and a prebuilt library, both of which a package must contain. */
const mainText = `
  import { marked } from "marked";
  const path = import.meta.dirname + "/" + Deno.args[0];
  const library = Deno.dlopen(path, { forge_sum: { parameters: ["i32", "i32"], result: "i32" } });
  console.log(marked.parseInline("sum"), library.symbols.forge_sum(40, 2));
  library.close();
`;

/** The fake tree with all files of a package. */
class PackageTree extends FakeTree {
  constructor() {
    super();
    for (const path of ["deno.json", "deno.lock", launcherPath]) {
      this.write(path, Deno.readTextFileSync(join(ROOT, path)));
    }
    for (const path of ["LICENSE", "README.md", "build.ts", "ffi/x.ts", "src/x.ts"]) {
      this.write(path, "// nothing\n");
    }
    this.write("main.ts", mainText);
    this.write("models/demo/model.gguf", "weights");
    this.write("models/demo/train/model.py", "not for users");
  }

  async pack(name: string): Promise<string> {
    const output = join(this.root, "dist", name);
    await writePackage({ root: this.root, platform, output, withDeno: false, log: () => {} });
    return output;
  }
}

function listFolder(folder: string): string[] {
  return Array.from(Deno.readDirSync(folder), (entry) => entry.name).sort();
}

Deno.test({
  name: "package: runs elsewhere, without a compiler, a network or a cache",
  ignore: !canCompile || !hasTar,
  async fn() {
    using tree = new PackageTree();
    const archive = await tree.pack("forge.tar.gz");
    const folder = Deno.makeTempDirSync({ prefix: "forge-unpacked-" });
    try {
      await new Deno.Command("tar", { args: ["-xzf", archive, "-C", folder] }).output();
      const name = platformName(platform);
      const top = join(folder, `forge-${name}`);
      assertEquals(listFolder(join(top, "models", "demo")), ["model.gguf"]);
      const [library] = listFolder(join(top, "lib", name)).filter((file) => file.includes("_cpu"));

      const path = join(folder, "path");
      Deno.mkdirSync(path);
      Deno.symlinkSync(Deno.execPath(), join(path, "deno"));
      for (const tool of ["sh", "dirname", "readlink"]) {
        Deno.symlinkSync(programPath(tool), join(path, tool));
      }
      const { success, stdout, stderr } = await new Deno.Command(join(top, "bin", "forge"), {
        args: [`lib/${name}/${library}`],
        cwd: "/",
        clearEnv: true,
        env: {
          PATH: path,
          DENO_DIR: join(folder, "empty"),
          HTTPS_PROXY: "http://127.0.0.1:9",
          HTTP_PROXY: "http://127.0.0.1:9",
        },
      }).output();
      const decoder = new TextDecoder();
      assertEquals(decoder.decode(stderr), "");
      assertEquals(decoder.decode(stdout), "sum 42\n");
      assert(success);
    } finally {
      Deno.removeSync(folder, { recursive: true });
    }
  },
});

Deno.test({
  name: "package: the same sources give the same bytes",
  ignore: !canCompile,
  async fn() {
    using tree = new PackageTree();
    const first = Deno.readFileSync(await tree.pack("first.tar.gz"));
    tree.touch("main.ts");
    const second = Deno.readFileSync(await tree.pack("second.tar.gz"));
    assert(first.length === second.length && first.every((byte, i) => byte === second[i]));
  },
});

Deno.test("package: an incomplete tree is rejected", async () => {
  using tree = new PackageTree();
  Deno.removeSync(join(tree.root, "models"), { recursive: true });
  const expected = "models/demo is missing in";
  const error = await assertRejects(() => tree.pack("x.tar.gz"), ForgeError, expected);
  assertEquals(error.code, "not_found");
});
