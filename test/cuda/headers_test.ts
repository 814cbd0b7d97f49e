/**
 * csrc/cuda's declarations of NVIDIA's libraries, compared with NVIDIA's headers where they are
 * installed: otherwise only a GPU would show a wrong parameter.
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { findNvcc } from "../../ffi/build/nvcc.ts";
import { Nvrtc } from "../emulator/nvrtc.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { ROOT } from "../support/checkout.ts";

const nvcc = await findNvcc();
if (nvcc === undefined) console.error("skipping: no nvcc, which comes with cuda.h");
const compiler = await Nvrtc.install();
const nvrtcHeaders = join(ROOT, "build", "nvrtc", "nvidia", "cu13", "include");
if (typeof compiler === "string") console.error(`skipping: no nvrtc.h (${compiler})`);

/** Returns the compiler's messages for a file; empty if it compiles. */
async function compile(file: string, ours: string, headers?: string): Promise<string> {
  const [program = "", ...before] = headers === undefined ? nvcc?.command ?? [] : ["c++"];
  const theirs = headers === undefined ? [] : [`-I${headers}`];
  const { success, stderr } = await new Deno.Command(program, {
    args: [
      // NVIDIA's folder first: both contain a file nvrtc.h.
      ...[...before, "-std=c++20", ...theirs, `-I${ours}`, "-c", "-o", "/dev/null"],
      join(ROOT, "test", "cuda", "headers", file),
    ],
  }).output();
  const text = new TextDecoder().decode(stderr);
  assertEquals(success, !text.includes("error"), text);
  return success ? "" : text;
}

const cuda = join(ROOT, "csrc", "cuda");

/** True if the toolkit has a header: nvcc may be installed without cuBLAS. */
async function toolkitHas(header: string): Promise<boolean> {
  using folder = new TempFolder();
  const path = folder.write("header.cpp", `#include <${header}>\n`);
  const [program = "", ...before] = nvcc?.command ?? [];
  const args = [...before, "-E", "-o", "/dev/null", path];
  const found = program !== "" && (await new Deno.Command(program, { args }).output()).success;
  if (!found) console.error(`skipping: no ${header}`);
  return found;
}

Deno.test({
  name: "CUDA: cublaslt_api.h declares what cublasLt.h declares",
  ignore: !await toolkitHas("cublasLt.h"),
  fn: async () => assertEquals(await compile("cublaslt.cpp", cuda), ""),
});

Deno.test({
  name: "CUDA: nccl_api.h declares what nccl.h declares",
  ignore: !await toolkitHas("nccl.h"),
  fn: async () => assertEquals(await compile("nccl.cpp", cuda), ""),
});

Deno.test({
  name: "CUDA: driver_api.h declares what cuda.h declares",
  ignore: nvcc === undefined,
  fn: async () => assertEquals(await compile("driver.cpp", cuda), ""),
});

Deno.test({
  name: "CUDA: nvrtc_api.h declares what nvrtc.h declares",
  ignore: typeof compiler === "string",
  fn: async () => assertEquals(await compile("nvrtc.cpp", cuda, nvrtcHeaders), ""),
});

Deno.test({
  name: "CUDA: a wrong parameter, constant or member of driver_api.h is noticed",
  ignore: nvcc === undefined,
  fn: async () => {
    const text = Deno.readTextFileSync(join(cuda, "driver_api.h"));
    const mistakes: readonly (readonly [string, string, string])[] = [
      [
        "unsigned char value, size_t bytes",
        "unsigned char value, uint32_t bytes",
        "cuMemsetD8Async",
      ],
      ["(Stream stream, int mode)", "(Stream stream)", "cuStreamBeginCapture_v2"],
      ["cuMemAlloc_v2, (DevicePointer * pointer", "cuMemAlloc_v2, (void* pointer", "cuMemAlloc_v2"],
      ["max_shared_per_block_optin = 97", "max_shared_per_block_optin = 81", "OPTIN"],
      ["size_t src_pitch;\n", "", "srcPitch|src_pitch"],
    ];
    for (const [right, wrong, said] of mistakes) {
      using folder = new TempFolder();
      assert(text.includes(right), right);
      Deno.writeTextFileSync(folder.at("driver_api.h"), text.replace(right, wrong));
      const problem = await compile("driver.cpp", folder.path);
      assert(new RegExp(said).test(problem), `${wrong}: ${problem}`);
    }
  },
});
