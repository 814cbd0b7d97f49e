/**
 * `deno task bench [NAME…] [options]`: measures this machine and forge on it, for work on forge.
 * `forge bench` compares models.
 */
import { buildLibraries } from "../build.ts";
import { errorText, exitCode } from "../src/cli/output/error_text.ts";
import { ForgeError } from "../src/errors.ts";
import { benchAmxModel } from "./amx_model.ts";
import { benchAttention } from "./attention.ts";
import { benchBatch } from "./batch.ts";
import { type BenchOptions, OPTIONS_HELP, parseBenchOptions } from "./bench_options.ts";
import { benchConstraints } from "./constraints.ts";
import { benchFlashAttention } from "./flash_attn.ts";
import { benchGpuModel } from "./gpu_model/bench_gpu_model.ts";
import { describeLimits, type Machine, measureLimits } from "./limits.ts";
import { benchNumaModel } from "./numa_model.ts";
import { benchOverhead } from "./overhead.ts";
import { benchPeers } from "./peers.ts";
import { benchProducts } from "./products.ts";
import { benchSpeculation } from "./speculation.ts";
import { benchSpeed } from "./speed.ts";
import { benchStartup } from "./startup.ts";
import { benchTokenizer } from "./tokenizer.ts";

/** A benchmark. */
interface Benchmark {
  readonly help: string;
  readonly run: (options: BenchOptions, machine: Machine) => Promise<void>;
}

/** In the order of running; the limits run first. */
const BENCHMARKS: Readonly<Record<string, Benchmark>> = {
  products: { help: "products with weights of every type", run: benchProducts },
  speed: { help: "prefill and decode of a model", run: benchSpeed },
  attention: { help: "attention alone, over caches as large as a model's", run: benchAttention },
  overhead: { help: "cost of a token outside of the native library", run: benchOverhead },
  batch: { help: "many requests at once, compared with one by one", run: benchBatch },
  constraints: {
    help: "compiling constraints, and the cost of their masks per step",
    run: benchConstraints,
  },
  speculation: { help: "speculative decoding: gain and cost", run: benchSpeculation },
  flash_attn: {
    help: "libflash_attn against PyTorch's FlashAttention-2 and cuDNN, on a GPU",
    run: benchFlashAttention,
  },
  "gpu-model": {
    help: "expected speed on an A100, H100 and H200, without a GPU",
    run: benchGpuModel,
  },
  "amx-model": {
    help: "share of the peak of Intel's AMX, without such a processor",
    run: benchAmxModel,
  },
  "numa-model": {
    help: "decoding on many cores and several NUMA nodes, without such a machine",
    run: benchNumaModel,
  },
  startup: { help: "from the start of the process, for every way in", run: benchStartup },
  tokenizer: { help: "loading, encoding, decoding", run: benchTokenizer },
  peers: { help: "against llama.cpp, downloaded by npm", run: benchPeers },
};

const LIMITS = "limits";

async function main(args: readonly string[]): Promise<number> {
  if (args.length === 0 || args.includes("--help") || args.includes("-h")) {
    console.log(help());
    return args.length === 0 ? 2 : 0;
  }
  try {
    const options = parseBenchOptions(args);
    const unknown = options.names.find((name) =>
      name !== LIMITS && !Object.hasOwn(BENCHMARKS, name)
    );
    if (unknown !== undefined || options.names.length === 0) {
      const valid = [LIMITS, ...Object.keys(BENCHMARKS)].join(", ");
      const problem = unknown === undefined ? "no benchmark is named" : `unknown "${unknown}"`;
      throw new ForgeError("usage", `${problem}; valid are ${valid}`);
    }
    await buildLibraries({ log: (line) => console.error(line) });
    const limits = options.names.includes(LIMITS)
      ? await measureLimits(options.threads)
      : undefined;
    if (limits !== undefined) console.log(describeLimits(limits));
    for (const [name, benchmark] of Object.entries(BENCHMARKS)) {
      if (options.names.includes(name)) await benchmark.run(options, { limits });
    }
    return 0;
  } catch (error) {
    console.error(errorText(error, false).trimEnd());
    return exitCode(error);
  }
}

function help(): string {
  const rows = Object.entries(BENCHMARKS).map(([name, row]) => `  ${name.padEnd(11)} ${row.help}`);
  return [
    "Usage: deno task bench NAME... [options]",
    "",
    `  ${LIMITS.padEnd(11)} read bandwidth and arithmetic peaks of this machine; with other names,`,
    `  ${"".padEnd(11)} results are also shown as shares of it`,
    ...rows,
    "",
    OPTIONS_HELP,
  ].join("\n");
}

if (import.meta.main) Deno.exit(await main(Deno.args));
