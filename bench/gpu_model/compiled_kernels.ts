/**
 * Kernels compiled by NVRTC and disassembled, without a GPU. Results are kept under
 * `build/compiled_kernels` by the text of the sources, so that only changed kernels are compiled
 * again, and the tests and the model of speed share them.
 */
import { createHash } from "node:crypto";
import { join } from "@std/path";
import { disassemble, findNvdisasm } from "../../test/emulator/nvdisasm.ts";
import { type DeviceSource, deviceSources, Nvrtc, targetOf } from "../../test/emulator/nvrtc.ts";
import { writeWhole } from "../../test/support/make_once.ts";
import { root } from "../root.ts";
import { maxThreads } from "./cubin.ts";

/** One instance of a kernel, compiled for one architecture. */
export interface CompiledKernel {
  readonly instance: string;
  /** Its mangled name. */
  readonly symbol: string;
  readonly registers: number;
  readonly spillBytes: number;
  /** Static shared memory. */
  readonly sharedBytes: number;
  /** Threads of its launch bounds, or 1,024. */
  readonly threads: number;
  /** nvdisasm's text. */
  readonly code: string;
  /** ptxas's remarks on the speed of the kernels of its file, such as products that wait. */
  readonly remarks: string;
}

/** A kernel to compile. */
export interface KernelName {
  /** In kernels/cuda, as in `matvec.cu`. */
  readonly file: string;
  /** As in `decode_gemm<FormatQ8_0, f16, 1>`. */
  readonly instance: string;
}

/** NVRTC and nvdisasm, with a cache on disk. */
export class KernelCompiler implements Disposable {
  readonly #nvrtc: Nvrtc;
  readonly #nvdisasm: string;
  readonly #sources: ReadonlyMap<string, DeviceSource>;
  readonly #folder = join(root, "build", "compiled_kernels");

  private constructor(nvrtc: Nvrtc, nvdisasm: string, sources: readonly DeviceSource[]) {
    this.#nvrtc = nvrtc;
    this.#nvdisasm = nvdisasm;
    this.#sources = new Map(sources.map((source) => [source.name, source]));
    Deno.mkdirSync(this.#folder, { recursive: true });
  }

  /** Installs what is needed; returns the reason if that fails. */
  static async open(
    sources: readonly DeviceSource[] = deviceSources(),
  ): Promise<KernelCompiler | string> {
    const nvrtc = await Nvrtc.install();
    if (typeof nvrtc === "string") return `pip cannot install nvidia-cuda-nvrtc (${nvrtc})`;
    const nvdisasm = await findNvdisasm();
    if (nvdisasm !== undefined) return new KernelCompiler(nvrtc, nvdisasm, sources);
    nvrtc[Symbol.dispose]();
    return "nvdisasm is neither on the PATH nor in pip's triton";
  }

  [Symbol.dispose](): void {
    this.#nvrtc[Symbol.dispose]();
  }

  /** Compiles kernels, those of a file together. @throws {Error} for an unknown file or instance */
  async compile(
    kernels: readonly KernelName[],
    architecture: string,
  ): Promise<Map<string, CompiledKernel>> {
    const results = new Map<string, CompiledKernel>();
    const missing = new Map<string, Set<string>>();
    for (const { file, instance } of kernels) {
      const kept = await this.#read(file, instance, architecture);
      if (kept !== undefined) results.set(instance, kept);
      else missing.set(file, (missing.get(file) ?? new Set()).add(instance));
    }
    await Promise.all([...missing].map(async ([file, instances]) => {
      for (const kernel of await this.#compile(file, [...instances], architecture)) {
        results.set(kernel.instance, kernel);
      }
    }));
    return results;
  }

  #source(file: string): DeviceSource {
    const source = this.#sources.get(file);
    if (source === undefined) {
      throw new Error(`no source "${file}"; valid are ${[...this.#sources.keys()].join(", ")}`);
    }
    return source;
  }

  async #compile(file: string, instances: readonly string[], architecture: string) {
    const { cubin, symbols, reports, log } = await this.#nvrtc.compile(
      this.#source(file),
      targetOf(file, architecture) ?? architecture,
      instances,
    );
    const code = await disassemble(this.#nvdisasm, cubin);
    const remarks = log.split("\n").filter((line) => /C\d{4}|serialized|setmaxnreg/.test(line))
      .join("\n");
    return await Promise.all(instances.map(async (instance) => {
      const symbol = symbols.get(instance) ?? "";
      const report = reports.find((one) => one.symbol === symbol);
      if (report === undefined) throw new Error(`no report on ${instance}`);
      const { registers, spillBytes, sharedBytes } = report;
      const threads = maxThreads(cubin, symbol) ?? 1024;
      const text = code.get(symbol) ?? "";
      const sizes = { registers, spillBytes, sharedBytes, threads };
      const kernel = { instance, symbol, ...sizes, code: text, remarks };
      await writeWhole(this.#path(file, instance, architecture), JSON.stringify(kernel));
      return kernel;
    }));
  }

  async #read(file: string, instance: string, architecture: string) {
    try {
      const text = await Deno.readTextFile(this.#path(file, instance, architecture));
      return JSON.parse(text) as CompiledKernel;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return undefined;
      throw error;
    }
  }

  #path(file: string, instance: string, architecture: string): string {
    const { text, headers } = this.#source(file);
    const hash = createHash("sha256");
    for (const part of [text, ...headers.values(), instance, architecture]) {
      hash.update(`${part}\0`);
    }
    return join(this.#folder, `${hash.digest("hex").slice(0, 32)}.json`);
  }
}
