import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { libraries } from "../../../ffi/build/libraries.ts";
import { findNvcc } from "../../../ffi/build/nvcc.ts";
import { nvccGraph } from "../../../ffi/build/nvcc.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { ROOT } from "../../support/checkout.ts";

Deno.test({
  name: "findNvcc: the first toolkit whose nvcc runs, before that of PATH",
  ignore: Deno.build.os === "windows",
  async fn() {
    using folder = new TempFolder();
    const nvcc = folder.write(
      "toolkit/bin/nvcc",
      "#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.99'\n",
    );
    Deno.chmodSync(nvcc, 0o755);
    const broken = folder.write("broken/bin/nvcc", "#!/bin/sh\necho release 1.2, V1.2.3\nexit 1\n");
    Deno.chmodSync(broken, 0o755);
    const folders = ["missing", "broken", "toolkit"].map((name) => folder.at(name));
    const toolkits = [undefined, "", ...folders];
    assertEquals(await findNvcc({ toolkits }), {
      command: [nvcc],
      identity: `${nvcc} release 12.4, V12.4.99`,
    });
  },
});

Deno.test("nvccGraph: only SM90's folder has its own instructions; the rest is also PTX", () => {
  const library = libraries.find(({ name }) => name === "flash_attn");
  assert(library !== undefined);
  const { compiles, link, exports } = nvccGraph(
    ROOT,
    library,
    { os: "linux", arch: "x86_64" },
    { debug: false, sanitizers: [], strict: false },
    { command: ["nvcc"], identity: "nvcc 13" },
  );
  const kernels = compiles.filter(({ label }) => label.endsWith(".cu"));
  assert(kernels.length > 0);
  for (const { label, command } of kernels) {
    const codes = command.filter((flag) => flag.startsWith("-gencode="));
    const below = (folder: string) => label.startsWith(`csrc/flash_attn/${folder}/`);
    // Decoding is compiled for each architecture, the rest for one.
    assertEquals(codes.length, below("decode") ? 2 : 1, label);
    assertEquals(codes[0]?.includes("sm_90a"), below("sm90"), label);
    assertEquals(/,compute_[89]0\]$/.test(codes.at(-1) ?? ""), !below("sm90"), label);
  }
  assertEquals(link.inputs, [...compiles.map(({ output }) => output), exports.path]);
  assertEquals(link.output, join("build", "linux-x86_64", "libflash_attn.so"));
  assert(exports.text.includes("flash_attn_decode;") && exports.text.includes("local: *;"));
});
