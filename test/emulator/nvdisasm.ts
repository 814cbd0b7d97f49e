/**
 * NVIDIA's disassemblers of compiled kernels: from the PATH, or from pip's `triton`, of which only
 * these programs are kept under `build/`.
 */
import { join } from "@std/path";
import { ROOT } from "../support/checkout.ts";
import { makeOnce } from "../support/make_once.ts";

const folder = join(ROOT, "build", "nvdisasm");

// Downloads the wheel to the folder argv[1], keeps its programs argv[2:], and deletes the wheel.
const fetchScript = `
import glob, os, subprocess, sys, zipfile
folder, programs = sys.argv[1], sys.argv[2:]
subprocess.check_call([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                       "--only-binary", ":all:", "--retries", "0", "--dest", folder, "triton"])
for path in glob.glob(os.path.join(folder, "*.whl")):
    with zipfile.ZipFile(path) as wheel:
        for program in programs:
            name = next(n for n in wheel.namelist() if n.endswith("/bin/" + program))
            with open(os.path.join(folder, program), "wb") as out:
                out.write(wheel.read(name))
            os.chmod(os.path.join(folder, program), 0o755)
    os.remove(path)
`;

/** The disassemblers of one kernel image, and of a file with several. */
const PROGRAMS = ["nvdisasm", "cuobjdump"] as const;

async function runs(program: string): Promise<boolean> {
  try {
    return (await new Deno.Command(program, { args: ["--version"] }).output()).success;
  } catch {
    return false;
  }
}

/** Returns a program's path, or undefined if it is not available. */
async function find(name: typeof PROGRAMS[number]): Promise<string | undefined> {
  const kept = join(folder, name);
  for (const program of [name, kept]) {
    if (await runs(program)) return program;
  }
  try {
    await makeOnce(folder, async (unfinished) => {
      await Deno.mkdir(unfinished);
      const args = ["-c", fetchScript, unfinished, ...PROGRAMS];
      const { success, stderr } = await new Deno.Command("python3", { args }).output();
      if (!success) throw new Error(new TextDecoder().decode(stderr));
    });
  } catch {
    return undefined;
  }
  return await runs(kept) ? kept : undefined;
}

/** Returns the disassembler of kernel images. */
export async function findNvdisasm(): Promise<string | undefined> {
  return await find("nvdisasm");
}

/** The machine code of one kernel for one architecture. */
export interface KernelCode {
  /** Mangled. */
  readonly symbol: string;
  /** Such as `sm_90a`. */
  readonly architecture: string;
  /** In nvdisasm's format. */
  readonly text: string;
}

/** Kernels of object files, by path, time and size. */
const disassembled = new Map<string, Promise<KernelCode[] | undefined>>();

/**
 * Returns all kernels of an object file, or undefined without the disassemblers. A process
 * disassembles a file once, which takes seconds.
 */
export function disassembleObject(path: string): Promise<KernelCode[] | undefined> {
  const { mtime, size } = Deno.statSync(path);
  const key = `${path} ${mtime?.getTime()} ${size}`;
  const found = disassembled.get(key) ?? extractKernels(path);
  disassembled.set(key, found);
  return found;
}

async function extractKernels(path: string): Promise<KernelCode[] | undefined> {
  const nvdisasm = await find("nvdisasm"), cuobjdump = await find("cuobjdump");
  if (nvdisasm === undefined || cuobjdump === undefined) return undefined;
  const extracted = await Deno.makeTempDir();
  try {
    const args = ["-xelf", "all", path];
    const { success, stderr } = await new Deno.Command(cuobjdump, { args, cwd: extracted })
      .output();
    if (!success) throw new Error(new TextDecoder().decode(stderr));
    const kernels: KernelCode[] = [];
    for (const { name } of Deno.readDirSync(extracted)) {
      const cubin = await Deno.readFile(join(extracted, name));
      const architecture = /\.(sm_\w+)\.cubin$/.exec(name)?.[1] ?? "";
      for (const [symbol, text] of await disassemble(nvdisasm, cubin)) {
        kernels.push({ symbol, architecture, text });
      }
    }
    return kernels;
  } finally {
    await Deno.remove(extracted, { recursive: true });
  }
}

/**
 * Returns the instructions of each function of a cubin, by symbol; one per line, without encodings.
 */
export async function disassemble(
  nvdisasm: string,
  cubin: Uint8Array,
): Promise<Map<string, string>> {
  const path = await Deno.makeTempFile({ suffix: ".cubin" });
  try {
    await Deno.writeFile(path, cubin);
    const { success, stdout, stderr } = await new Deno.Command(nvdisasm, {
      args: ["--print-code", path],
    }).output();
    if (!success) throw new Error(new TextDecoder().decode(stderr));
    const parts = new TextDecoder().decode(stdout).split(/^\s*\.section\s+\.text\./m);
    return new Map(parts.slice(1).map((part) => [/^[^\s,"]+/.exec(part)?.[0] ?? "", part]));
  } finally {
    await Deno.remove(path);
  }
}
