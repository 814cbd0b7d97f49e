import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { ForgeError } from "../../../src/errors.ts";
import { canCompile, FakeTree } from "./fake_tree.ts";

const ignore = !canCompile;
const reference = ["csrc/common/one.cpp", "csrc/reference/sum.cpp"];

Deno.test({
  name: "build: a second build compiles and links nothing",
  ignore,
  async fn() {
    using tree = new FakeTree();
    const first = await tree.build();
    assertEquals(first.libraries.map(({ name, built }) => [name, built]), [
      ["cpu", true],
      ["reference", true],
    ]);
    assert(first.compiled > 4);
    const second = await tree.build();
    assertEquals(second.labels, []);
    assertEquals(second.libraries.map(({ built }) => built), [false, false]);
  },
});

Deno.test({
  name: "build: a changed header recompiles the files that include it, and no others",
  ignore,
  async fn() {
    using tree = new FakeTree();
    await tree.build();
    tree.touch("csrc/forge.h");
    assertEquals((await tree.build()).labels, ["csrc/cpu/sum.cpp", "csrc/reference/sum.cpp"]);

    tree.touch("csrc/common/numbers.h");
    const { labels, libraries } = await tree.build({ only: ["reference"] });
    assertEquals(labels, reference);
    assertEquals(libraries.map(({ name, built }) => [name, built]), [["reference", true]]);
  },
});

Deno.test({
  name: "build: a changed function changes the behaviour of the library",
  ignore,
  async fn() {
    using tree = new FakeTree();
    const call = async () => {
      const [library] = (await tree.build({ only: ["reference"] })).libraries;
      const opened = Deno.dlopen(library?.path ?? "", {
        forge_sum: { parameters: ["i32", "i32"], result: "i32" },
      });
      const sum = opened.symbols.forge_sum(20, 3);
      opened.close();
      return sum;
    };
    assertEquals(await call(), 23);
    tree.write("csrc/common/one.cpp", '#include "numbers.h"\nint forge::one() { return 2; }\n');
    assertEquals(await call(), 43);
  },
});

Deno.test({
  name:
    "build: files compiled together are compiled again when one of them, or its header, changes",
  ignore,
  async fn() {
    using tree = new FakeTree();
    tree.write("csrc/common/three.h", "inline int three() { return 3; }\n");
    tree.write("csrc/common/three.cpp", '#include "three.h"\nint nine() { return 3 * three(); }\n');
    const build = async () => (await tree.build({ only: ["reference"] })).labels;
    assertEquals(await build(), ["csrc/common/one.cpp to three.cpp", "csrc/reference/sum.cpp"]);
    for (const name of ["one.cpp", "three.cpp", "three.h", "numbers.h"]) {
      tree.touch(`csrc/common/${name}`);
      assert((await build()).includes("csrc/common/one.cpp to three.cpp"), name);
    }
    assertEquals(await build(), []);
  },
});

Deno.test({
  name: "build: added and removed files relink the library",
  ignore,
  async fn() {
    using tree = new FakeTree();
    const build = () => tree.build({ only: ["reference"] });
    await build();
    tree.write("csrc/reference/more/extra.cpp", "int extra_value = 7;\n");
    assertEquals((await build()).labels, ["csrc/reference/more/extra.cpp"]);
    Deno.removeSync(join(tree.root, "csrc/reference/more/extra.cpp"));
    const { labels, libraries } = await build();
    assertEquals(labels, []);
    assertEquals(libraries.map(({ built }) => built), [true]);
  },
});

Deno.test({
  name: "build: a lost object, library or record is made again",
  ignore,
  async fn() {
    using tree = new FakeTree();
    const build = () => tree.build({ only: ["reference"] });
    const { folder } = await build();
    const objects = join(tree.root, "build", "obj", folder.split("/").at(-1) ?? "", "shared");

    Deno.removeSync(join(objects, "common", "one.cpp.o"));
    assertEquals((await build()).labels, ["csrc/common/one.cpp"]);

    Deno.writeTextFileSync(join(objects, "common", "one.cpp.o.json"), '{"command": [');
    assertEquals((await build()).labels, ["csrc/common/one.cpp"]);

    Deno.truncateSync(join(folder, Array.from(Deno.readDirSync(folder))[0]?.name ?? ""));
    const { labels, libraries } = await build();
    assertEquals(labels, []);
    assertEquals(libraries.map(({ built }) => built), [true]);
  },
});

Deno.test({
  name: "build: a normal build reuses a strict one, but not the reverse",
  ignore,
  async fn() {
    using tree = new FakeTree();
    const only = ["reference"] as const;
    await tree.build({ only });
    assertEquals((await tree.build({ only, strict: true })).labels, reference);
    assertEquals((await tree.build({ only })).labels, []);
  },
});

Deno.test({
  name: "build: a strict build fails on a warning, a normal one does not",
  ignore,
  async fn() {
    using tree = new FakeTree();
    const only = ["reference"] as const;
    tree.write("csrc/reference/sum.cpp", "static int unused_value = 1;\n");
    await tree.build({ only });
    const error = await assertRejects(() => tree.build({ only, strict: true }), ForgeError);
    assertStringIncludes(error.message, "unused_value");
  },
});

Deno.test({
  name: "build: variants are independent",
  ignore,
  async fn() {
    using tree = new FakeTree();
    const only = ["reference"] as const;
    const plain = await tree.build({ only });
    const debug = await tree.build({ only, debug: true });
    assertEquals(debug.folder, `${plain.folder}-debug`);
    assertEquals(debug.labels, reference);
    assertEquals((await tree.build({ only })).labels, []);
  },
});

Deno.test({
  name:
    "build: a failing compilation shows the command and the compiler's words, and spares the rest",
  ignore,
  async fn() {
    using tree = new FakeTree();
    const only = ["reference"] as const;
    const { libraries: [library] } = await tree.build({ only });
    tree.write("csrc/reference/sum.cpp", "int broken = no_such_name;\n");
    const error = await assertRejects(() => tree.build({ only }), ForgeError);
    assertEquals(error.code, "device");
    assertStringIncludes(error.message, "cannot build csrc/reference/sum.cpp:\n");
    assertStringIncludes(error.message, " -c csrc/reference/sum.cpp ");
    assertStringIncludes(error.message, "no_such_name");
    assert(Deno.statSync(library?.path ?? "").isFile);
    assertStringIncludes(
      (await assertRejects(() => tree.build({ only }), ForgeError)).message,
      "no_such_name",
    );
  },
});

Deno.test({
  name: "build: compiler output is truncated after 40 lines",
  ignore,
  async fn() {
    using tree = new FakeTree();
    tree.write("csrc/reference/sum.cpp", "#warning this is a line\n".repeat(100) + "#error end\n");
    const error = await assertRejects(() => tree.build({ only: ["reference"] }), ForgeError);
    assertEquals(error.message.split("\n").length, 43);
    assert(/\(\d+ more lines\)$/.test(error.message));
  },
});

Deno.test({
  name: "build: concurrent builds of one tree produce a correct library",
  ignore,
  async fn() {
    using tree = new FakeTree();
    const script = `
      import { buildLibraries } from ${JSON.stringify(import.meta.resolve("../../../build.ts"))};
      const report = await buildLibraries({ root: Deno.args[0], jobs: 2 });
      console.log(report.compiled);
    `;
    const builds = Array.from({ length: 3 }, () =>
      new Deno.Command(Deno.execPath(), {
        args: ["eval", "--quiet", script, tree.root],
        stdout: "piped",
        stderr: "piped",
      }).output());
    const outputs = await Promise.all(builds);
    const decoder = new TextDecoder();
    for (const { success, stderr } of outputs) assert(success, decoder.decode(stderr));
    const compiled = outputs.map(({ stdout }) => parseInt(decoder.decode(stdout)));
    assertEquals(compiled.filter((count) => count > 0).length, 1);
    assertEquals((await tree.build()).labels, []);
    const left = Array.from(Deno.readDirSync(join(tree.root, "build", "obj")));
    assertEquals(left.map(({ name }) => name).filter((name) => name.endsWith(".tmp")), []);
  },
});

Deno.test({
  name: "build: a tree that cannot be written is named, with another way",
  ignore,
  async fn() {
    using tree = new FakeTree();
    tree.write("build", "not a folder");
    const error = await assertRejects(() => tree.build(), ForgeError, "cannot build here, since ");
    assertStringIncludes(error.message, `${join(tree.root, "build", "obj")} cannot be written`);
    assertEquals(error.code, "device");
  },
});
