/**
 * Prints what the machine code of kernels says about their speed: `deno run -A
 * bench/gpu_model/kernel.ts FILE [INSTANCE...]`, such as `decode_gemm 'Q4_0, f16, 1>'`. An
 * instance may be a part of its name.
 */
import { parseArgs } from "node:util";
import { deviceSources } from "../../test/emulator/nvrtc.ts";
import { KernelCompiler } from "./compiled_kernels.ts";
import { measureKernel, streamCaps } from "./kernel_measures.ts";
import type { LoopMeasures } from "./loop_measures.ts";
import { NVIDIA_GPUS, type NvidiaGpu, PIPES } from "./nvidia.ts";

const HELP = `Usage: deno run -A bench/gpu_model/kernel.ts FILE [INSTANCE...] [options]

Compiles instances of kernels/cuda/FILE.cu with NVRTC and prints, per loop and iteration of a warp:
instructions, clocks of each pipe, bytes streamed from memory, waits for loads, and the bandwidth
that they allow.

Options:
      --gpu NAME      ${NVIDIA_GPUS.map(({ name }) => name).join(", ")} (default: H100)
      --threads N     threads per block (default: the launch bounds)
      --shared BYTES  dynamic shared memory per block (default: 0)
      --all           print loops that stream nothing, too
      --code          print the machine code
`;

async function main(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      gpu: { type: "string", default: "H100" },
      threads: { type: "string" },
      shared: { type: "string" },
      all: { type: "boolean", default: false },
      code: { type: "boolean", default: false },
      help: { type: "boolean", short: "h" },
    },
  });
  const [name, ...parts] = positionals;
  const gpu = NVIDIA_GPUS.find((one) => one.name.toLowerCase() === values.gpu.toLowerCase());
  if (name === undefined || gpu === undefined || values.help) {
    console.log(HELP);
    return values.help ? 0 : 2;
  }
  const file = name.endsWith(".cu") ? name : `${name}.cu`;
  const source = deviceSources().find((one) => one.name === file);
  if (source === undefined) throw new Error(`no kernels/cuda/${file}`);
  const instances = source.instances.filter((instance) =>
    parts.length === 0 || parts.some((part) => instance.includes(part))
  );
  using compiler = await opened();
  const kernels = instances.map((instance) => ({ file, instance }));
  const compiled = await compiler.compile(kernels, gpu.architecture.name);
  for (const instance of instances) {
    const kernel = compiled.get(instance)!;
    if (values.code) console.log(kernel.code);
    console.log(describe(kernel, gpu, values));
  }
  return 0;
}

async function opened(): Promise<KernelCompiler> {
  const compiler = await KernelCompiler.open();
  if (typeof compiler === "string") throw new Error(compiler);
  return compiler;
}

function describe(
  kernel: Parameters<typeof measureKernel>[0],
  gpu: NvidiaGpu,
  options: { readonly threads?: string; readonly shared?: string; readonly all: boolean },
): string {
  const measures = measureKernel(kernel, gpu, {
    ...(options.threads !== undefined && { threads: Number(options.threads) }),
    dynamicShared: Number(options.shared ?? 0),
  });
  const { instance, registers, spillBytes, threads, sharedBytes, blocks, warps, start } = measures;
  const lines = [
    `${instance} on ${gpu.name}: ${registers} registers, ${spillBytes} bytes spilled, ` +
    `${threads} threads and ${sharedBytes} bytes of shared memory a block, ` +
    `${blocks} blocks (${warps} warps) a multiprocessor`,
  ];
  if (start !== undefined) {
    lines.push(
      `  first streamed load: after ${start.hops} dependent loads and ${start.instructions} instructions`,
    );
  }
  for (const loop of measures.loops) {
    if (loop.streamed > 0 || options.all) lines.push(...describeLoop(loop, warps, gpu));
  }
  return lines.join("\n");
}

function describeLoop(loop: LoopMeasures, warps: number, gpu: NvidiaGpu): string[] {
  const caps = streamCaps(loop, warps, gpu);
  const pipes = PIPES.map((pipe) => `${pipe} ${loop.pipes[pipe].toFixed(1)}`).join(", ");
  const tb = (value: number) => (value / 1e3).toFixed(2);
  const lines = [
    `  loop of depth ${loop.depth}: ${loop.instructions} instructions, ${loop.streamed} bytes streamed, ` +
    `${loop.loads} global loads, ${loop.roundTrips.toFixed(1)} waits (${
      loop.latency.toFixed(0)
    } clocks)`,
    `    clocks: ${pipes}`,
    `    mix: ${loop.mix.slice(0, 14).map(([name, count]) => `${name} ${count}`).join(", ")}`,
  ];
  if (loop.streamed > 0) {
    lines.push(
      `    allows, TB/s: issue ${tb(caps.issue)}, ${caps.busiest} ${tb(caps.pipe)}, latency ${
        tb(caps.latency)
      }; ${(loop.instructions * 32 / loop.streamed).toFixed(2)} instructions a byte, ` +
        `${(caps.inFlight / 1024).toFixed(1)} KB in flight a multiprocessor`,
    );
  }
  return lines;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
