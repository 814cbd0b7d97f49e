/**
 * NVIDIA's disassembler: from the PATH, or from pip's `triton`, of which only this program is kept
 * under `build/`.
 */
import { join } from "@std/path";
import { ROOT } from "../support/checkout.ts";

const folder = join(ROOT, "build", "nvdisasm");

// Downloads the wheel to the folder argv[1], keeps its disassembler, and deletes the wheel.
const fetchScript = `
import glob, os, subprocess, sys, zipfile
folder = sys.argv[1]
subprocess.check_call([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                       "--only-binary", ":all:", "--retries", "0", "--dest", folder, "triton"])
for path in glob.glob(os.path.join(folder, "*.whl")):
    with zipfile.ZipFile(path) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith("/bin/nvdisasm"))
        with open(os.path.join(folder, "nvdisasm"), "wb") as out:
            out.write(wheel.read(name))
    os.chmod(os.path.join(folder, "nvdisasm"), 0o755)
    os.remove(path)
`;

async function runs(program: string): Promise<boolean> {
  try {
    return (await new Deno.Command(program, { args: ["--version"] }).output()).success;
  } catch {
    return false;
  }
}

/** The disassembler's path; undefined where there is none to be had. */
export async function findNvdisasm(): Promise<string | undefined> {
  const kept = join(folder, "nvdisasm");
  for (const program of ["nvdisasm", kept]) {
    if (await runs(program)) return program;
  }
  await Deno.mkdir(folder, { recursive: true });
  try {
    await new Deno.Command("python3", { args: ["-c", fetchScript, folder] }).output();
  } catch {
    return undefined;
  }
  return await runs(kept) ? kept : undefined;
}

/** The instructions of each function of a cubin, by symbol; one line each, without encodings. */
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
