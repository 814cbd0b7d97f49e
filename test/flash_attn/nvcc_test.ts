/**
 * nvcc's output for the kernels: registers, spills and required instructions of each, and a library
 * that exports only its header's functions. Needs no GPU.
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { buildLibraries } from "../../build.ts";
import { findNvcc } from "../../ffi/build/nvcc.ts";
import { FlashAttention } from "./binding.ts";
import { dumpMachineCode } from "../emulator/nvdisasm.ts";
import { productKernels, touchedTooEarly } from "./product_order.ts";
import { describeKernel, type KernelReport, parseKernelReports } from "./kernel_reports.ts";
import { ROOT } from "../support/checkout.ts";

const nvcc = await findNvcc();
if (nvcc === undefined) console.error("skipping: no nvcc found (CUDA_HOME, CUDA_PATH, PATH)");
const ignore = nvcc === undefined;

/** Builds the library unless it is up to date. */
async function build(): Promise<{ library: string; objects: string }> {
  const { libraries, folder } = await buildLibraries({ only: ["flash_attn"] });
  const path = libraries[0]?.path;
  assert(path !== undefined);
  const platform = folder.split("/").at(-1) ?? "";
  return { library: path, objects: join(ROOT, "build", "obj", platform, "flash_attn") };
}

/** Files below the object folder that end in `ending`. */
function objectFiles(folder: string, ending: string): string[] {
  return ["decode", "sm80", "sm90"].flatMap((part) =>
    Array.from(Deno.readDirSync(join(folder, part)), (entry) => join(folder, part, entry.name))
  ).filter((path) => path.endsWith(ending)).sort();
}

Deno.test({
  name: "nvcc: no kernel of head_dim 64 or 128 spills registers, no products wait for each other",
  ignore,
  async fn() {
    const { objects } = await build();
    const texts = objectFiles(objects, ".cu.o.txt").map((path) => Deno.readTextFileSync(path));
    const reports = texts.flatMap(parseKernelReports);
    const count = (test: (report: KernelReport) => boolean) => reports.filter(test).length;
    // Two types and five head_dims; SM80's kernels are also compiled for SM90; decode has two
    // shapes.
    assertEquals(count(({ kernel }) => kernel === "forward_sm80"), 20);
    assertEquals(count(({ kernel }) => kernel === "decode_sm80"), 40);
    assertEquals(count(({ kernel }) => kernel === "combine_sm80"), 4);
    assertEquals(count(({ kernel }) => kernel === "forward_sm90"), 10);
    const spilling = reports.filter(({ spilled }) => spilled > 0);
    const isCommon = ({ numbers }: KernelReport) => numbers[0] === 64 || numbers[0] === 128;
    assertEquals(spilling.filter(isCommon).map(describeKernel), []);
    for (const report of spilling) {
      console.error(`${describeKernel(report)} spills ${report.spilled} bytes`);
    }
    for (const text of texts) {
      // ptxas remarks when it serializes wgmma because of registers or control flow, and when it
      // ignores setmaxnreg because the initial number of registers is unknown.
      assert(!/serialized|C75\d\d|setmaxnreg/.test(text), text);
    }
  },
});

Deno.test({
  name: "nvcc: registers leave room for the intended number of blocks on a multiprocessor",
  ignore,
  async fn() {
    const { objects } = await build();
    const reports = objectFiles(objects, ".cu.o.txt")
      .flatMap((path) => parseKernelReports(Deno.readTextFileSync(path)));
    for (const report of reports) {
      const limits: Record<string, number> = {
        // 128 threads, two blocks; 256 threads, one block.
        forward_sm80: 256,
        decode_sm80: 256,
        combine_sm80: 128,
        // At launch, before setmaxnreg: four warpgroups, or three.
        forward_sm90: report.numbers[0] === 64 ? 128 : 168,
      };
      assert(report.registers <= (limits[report.kernel] ?? 0), describeKernel(report));
    }
  },
});

Deno.test({
  name: "nvcc: nothing touches a product's registers before it is waited for",
  ignore,
  async fn(t) {
    for (const dim of [64, 96, 128, 192, 256]) {
      await t.step(`head_dim ${dim}`, async () => {
        const { success, stdout, stderr } = await new Deno.Command(nvcc?.command[0] ?? "", {
          args: [
            ...["-std=c++20", "-O3", "-gencode=arch=compute_90a,code=compute_90a", "-ptx"],
            ...["-Icsrc/flash_attn", `csrc/flash_attn/sm90/forward_${dim}.cu`, "-o", "-"],
          ],
          cwd: ROOT,
        }).output();
        const decoder = new TextDecoder();
        assert(success, decoder.decode(stderr));
        const kernels = productKernels(decoder.decode(stdout));
        assertEquals(kernels.length, 2);
        for (const kernel of kernels) assertEquals(touchedTooEarly(kernel), []);
      });
    }
  },
});

Deno.test("a read, a write and a missing wait around wgmma are noticed", () => {
  const product =
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2}, %rd1, %rd2, p, 1, 1;";
  const commit = "wgmma.commit_group.sync.aligned;";
  const wait = (pending: number) => `wgmma.wait_group.sync.aligned ${pending};`;
  const read = "add.f32 %f9, %f1, %f3;", other = product.replaceAll("%f", "%f10");
  const touched = (...lines: string[]) => touchedTooEarly(lines.join("\n"));
  assertEquals(touched(product, commit, wait(0), read), []);
  assertEquals(touched(product, commit, read, wait(0)), [read]);
  assertEquals(touched(product, read, commit, wait(0)), [read]);
  // Of two groups, the first is complete, the second is not.
  assertEquals(touched(product, commit, other, commit, wait(1), read), []);
  assertEquals(touched(other, commit, product, commit, wait(1), read), [read]);
  assertEquals(touched(product, commit, wait(1), read), [read]);
});

Deno.test({
  name: "nvcc: kernels use the instructions they are written for",
  ignore,
  async fn(t) {
    const { objects } = await build();
    // Matrix products, the copies that feed them, and setmaxnreg.
    const wanted: Record<string, readonly string[]> = {
      sm90: ["HGMMA", "UTMALDG", "USETMAXREG"],
      sm80: ["HMMA", "LDGSTS", "LDSM"],
      decode: ["HMMA", "LDGSTS", "LDSM"],
    };
    for (const path of objectFiles(objects, ".cu.o")) {
      const [part = "", name = ""] = path.split("/").slice(-2);
      if (name.startsWith("combine")) continue;
      const code = await dumpMachineCode(path);
      if (code === undefined) {
        console.error("skipping: nvdisasm and cuobjdump are not to be had, not even by pip");
        return;
      }
      await t.step(`${part}/${name}`, () => {
        for (const instruction of wanted[part] ?? []) {
          assert(new RegExp(`\\b${instruction}\\b`).test(code), instruction);
        }
        assertEquals(/\barch = sm_90a\b/.test(code), part === "sm90");
      });
    }
  },
});

Deno.test({
  name: "nvcc: the library opens without a GPU, and reports that it finds none",
  ignore,
  async fn() {
    const { library } = await build();
    using flash = FlashAttention.open(library);
    const status = flash.deviceStatus();
    // 0 on a machine with a GPU.
    const said = flash.statusText(status);
    assert(status === 0 || said === "no CUDA device, or a driver too old for this library", said);
  },
});
