/**
 * NVIDIA's run-time compiler without a GPU: compiles kernels to machine code and returns the
 * assembler's reports on registers and spills. It is pip's `nvidia-cuda-nvrtc`, installed under
 * `build/` by the test that needs it.
 */
import { basename, join, resolve } from "@std/path";
import { ROOT } from "../support/checkout.ts";
import { makeOnce } from "../support/make_once.ts";

const symbols = {
  nvrtcVersion: { parameters: ["buffer", "buffer"], result: "i32" },
  nvrtcGetNumSupportedArchs: { parameters: ["buffer"], result: "i32" },
  nvrtcGetSupportedArchs: { parameters: ["buffer"], result: "i32" },
  nvrtcCreateProgram: {
    parameters: ["buffer", "buffer", "buffer", "i32", "buffer", "buffer"],
    result: "i32",
  },
  nvrtcAddNameExpression: { parameters: ["pointer", "buffer"], result: "i32" },
  // Takes up to a second, so it runs off the main thread and sources compile in parallel.
  nvrtcCompileProgram: {
    parameters: ["pointer", "i32", "buffer"],
    result: "i32",
    nonblocking: true,
  },
  nvrtcGetLoweredName: { parameters: ["pointer", "buffer", "buffer"], result: "i32" },
  nvrtcGetProgramLogSize: { parameters: ["pointer", "buffer"], result: "i32" },
  nvrtcGetProgramLog: { parameters: ["pointer", "buffer"], result: "i32" },
  nvrtcGetCUBINSize: { parameters: ["pointer", "buffer"], result: "i32" },
  nvrtcGetCUBIN: { parameters: ["pointer", "buffer"], result: "i32" },
  nvrtcDestroyProgram: { parameters: ["buffer"], result: "i32" },
} as const;

/** ptxas's report on one kernel. */
export interface KernelReport {
  readonly symbol: string;
  readonly registers: number;
  readonly spillBytes: number;
  /** Static shared memory. */
  readonly sharedBytes: number;
}

/** A compiled source. */
export interface CompiledSource {
  readonly cubin: Uint8Array<ArrayBuffer>;
  /** The mangled name of each name expression. */
  readonly symbols: ReadonlyMap<string, string>;
  readonly reports: readonly KernelReport[];
  /** Of the compiler, with ptxas's remarks. */
  readonly log: string;
}

/** A source with its headers, included by bare name. */
export interface DeviceSource {
  readonly name: string;
  readonly text: string;
  readonly headers: ReadonlyMap<string, string>;
}

function cString(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(`${text}\0`);
}

/** An array of C strings; keep it alive as long as C may read it. */
function cStrings(texts: readonly string[]) {
  const strings = texts.map(cString);
  const addresses = strings.map((bytes) => Deno.UnsafePointer.value(Deno.UnsafePointer.of(bytes)));
  return { strings, array: new BigUint64Array(addresses) };
}

/** Parses ptxas's lines on each kernel. */
function parseReports(log: string): KernelReport[] {
  const reports: KernelReport[] = [];
  for (const part of log.split("Compiling entry function '").slice(1)) {
    const symbol = part.slice(0, part.indexOf("'"));
    const number = (pattern: RegExp) => Number(pattern.exec(part)?.[1] ?? 0);
    reports.push({
      symbol,
      registers: number(/Used (\d+) registers/),
      spillBytes: number(/(\d+) bytes spill stores/) + number(/(\d+) bytes spill loads/),
      sharedBytes: number(/(\d+) bytes smem/),
    });
  }
  return reports;
}

/**
 * Installs the compiler into `build/nvrtc` if needed; returns its folder, or a reason of failure.
 */
export async function installNvrtc(): Promise<{ folder: string; reason?: string }> {
  const target = join(ROOT, "build", "nvrtc");
  const folder = join(target, "nvidia", "cu13", "lib");
  const args = ["-m", "pip", "install", "--quiet", "--retries", "0"];
  try {
    await makeOnce(target, async (unfinished) => {
      const { success, stderr } = await new Deno.Command("python3", {
        args: [...args, "--target", unfinished, "nvidia-cuda-nvrtc==13.*"],
      }).output();
      if (!success) throw new Error(new TextDecoder().decode(stderr).trim().split("\n").at(-1));
    });
    return { folder };
  } catch (error) {
    return { folder, reason: error instanceof Error ? error.message : String(error) };
  }
}

/** The loaded compiler. */
export class Nvrtc {
  readonly #libraries: Disposable[];
  readonly #nvrtc: Deno.DynamicLibrary<typeof symbols>;

  private constructor(folder: string) {
    const names = Array.from(Deno.readDirSync(folder), (entry) => entry.name);
    const find = (pattern: RegExp) => {
      const name = names.find((candidate) => pattern.test(candidate));
      if (name === undefined) throw new Error(`no ${pattern} in ${folder}`);
      return join(folder, name);
    };
    // NVRTC loads its built-ins by bare name, so they must be loaded first.
    const builtins = Deno.dlopen(find(/^libnvrtc-builtins\.so/), {});
    this.#nvrtc = Deno.dlopen(find(/^libnvrtc\.so/), symbols);
    this.#libraries = [{ [Symbol.dispose]: () => builtins.close() }];
  }

  /** Installs the compiler if needed; returns the reason if that fails. */
  static async install(): Promise<Nvrtc | string> {
    const { folder, reason } = await installNvrtc();
    if (reason !== undefined) return reason;
    try {
      return new Nvrtc(folder);
    } catch (error) {
      return String(error);
    }
  }

  [Symbol.dispose]() {
    this.#nvrtc.close();
    for (const library of this.#libraries) library[Symbol.dispose]();
  }

  /** The architectures that this version supports, such as `sm_80`. */
  architectures(): string[] {
    const count = new Int32Array(1);
    this.#check(this.#nvrtc.symbols.nvrtcGetNumSupportedArchs(count), "nvrtcGetNumSupportedArchs");
    const numbers = new Int32Array(count[0] ?? 0);
    this.#check(this.#nvrtc.symbols.nvrtcGetSupportedArchs(numbers), "nvrtcGetSupportedArchs");
    return Array.from(numbers, (number) => `sm_${number}`);
  }

  /** Compiles the instances of kernels in `names`. @throws with the compiler's log */
  async compile(
    source: DeviceSource,
    architecture: string,
    names: readonly string[],
  ): Promise<CompiledSource> {
    const api = this.#nvrtc.symbols;
    const headers = cStrings([...source.headers.values()]);
    const headerNames = cStrings([...source.headers.keys()]);
    const handle = new BigUint64Array(1);
    this.#check(
      api.nvrtcCreateProgram(
        handle,
        cString(source.text),
        cString(source.name),
        source.headers.size,
        headers.array,
        headerNames.array,
      ),
      "nvrtcCreateProgram",
    );
    const program = Deno.UnsafePointer.create(handle[0] ?? 0n);
    try {
      for (const name of names) {
        this.#check(api.nvrtcAddNameExpression(program, cString(name)), name);
      }
      const options = cStrings([
        `--gpu-architecture=${architecture}`,
        "--std=c++17",
        "-default-device",
        "--ptxas-options=-v",
      ]);
      const count = options.strings.length;
      const status = await api.nvrtcCompileProgram(program, count, options.array);
      const log = this.#text(program, api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog);
      if (status !== 0) throw new Error(`${source.name} for ${architecture}:\n${log}`);
      const cubin = this.#bytes(program, api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN);
      const lowered = names.map((name) => [name, this.#loweredName(program, name)] as const);
      return { cubin, symbols: new Map(lowered), reports: parseReports(log), log };
    } finally {
      api.nvrtcDestroyProgram(handle);
    }
  }

  #loweredName(program: Deno.PointerValue, name: string): string {
    const address = new BigUint64Array(1);
    this.#check(this.#nvrtc.symbols.nvrtcGetLoweredName(program, cString(name), address), name);
    const pointer = Deno.UnsafePointer.create(address[0] ?? 0n);
    return pointer === null ? "" : Deno.UnsafePointerView.getCString(pointer);
  }

  #bytes(
    program: Deno.PointerValue,
    size: (program: Deno.PointerValue, out: BufferSource) => number,
    get: (program: Deno.PointerValue, out: BufferSource) => number,
  ): Uint8Array<ArrayBuffer> {
    const length = new BigUint64Array(1);
    this.#check(size(program, length), "size");
    const bytes = new Uint8Array(Number(length[0] ?? 0n));
    this.#check(get(program, bytes), "contents");
    return bytes;
  }

  #text(
    program: Deno.PointerValue,
    size: (program: Deno.PointerValue, out: BufferSource) => number,
    get: (program: Deno.PointerValue, out: BufferSource) => number,
  ): string {
    return new TextDecoder().decode(this.#bytes(program, size, get)).replace(/\0$/, "");
  }

  #check(status: number, what: string) {
    if (status !== 0) throw new Error(`NVRTC failed with status ${status} at ${what}`);
  }
}

/**
 * Returns the target of a kernel's file on an architecture such as `sm_90`: `sm_90a` with wgmma,
 * and undefined where there is no wgmma.
 */
export function targetOf(file: string, architecture: string): string | undefined {
  if (!file.startsWith("wgmma_")) return architecture;
  return architecture === "sm_90" ? "sm_90a" : undefined;
}

/** The kernels' sources: each file with the instances of its INSTANCE lines. */
export function deviceSources(folder = "kernels/cuda") {
  const path = resolve(ROOT, folder);
  const names = Array.from(Deno.readDirSync(path), (entry) => entry.name).sort();
  const read = (name: string) => Deno.readTextFileSync(join(path, name));
  const shared = ["kernels/arguments", "csrc/flash_attn/device"].map((name) => join(ROOT, name));
  const headers = new Map([
    ...names.filter((name) => name.endsWith(".cuh")).map((name) => [name, read(name)] as const),
    ...shared.flatMap((folder) =>
      Array.from(
        Deno.readDirSync(folder),
        ({ name }) => [name, Deno.readTextFileSync(join(folder, name))] as const,
      )
    ),
  ]);
  return names.filter((name) => name.endsWith(".cu")).map((name) => {
    const text = read(name);
    const instances = Array.from(text.matchAll(/^INSTANCE\((.*)\)$/gm), ([, match]) => match ?? "");
    return { name: basename(name), text, headers, instances };
  });
}

if (import.meta.main) {
  const [only = "", architecture = "sm_80"] = Deno.args;
  const compiler = await Nvrtc.install();
  if (typeof compiler === "string") throw new Error(compiler);
  console.log(compiler.architectures().join(" "));
  for (const source of deviceSources().filter(({ name }) => name.startsWith(only))) {
    const start = performance.now();
    const { reports, symbols } = await compiler.compile(source, architecture, source.instances);
    const names = new Map([...symbols].map(([name, symbol]) => [symbol, name]));
    console.log(`${source.name}: ${Math.round(performance.now() - start)} ms`);
    for (const r of reports) {
      const use = `${r.registers} registers, ${r.sharedBytes} B shared, ${r.spillBytes} B spilled`;
      console.log(`  ${names.get(r.symbol) ?? r.symbol}: ${use}`);
    }
  }
}
