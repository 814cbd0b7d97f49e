/**
 * NUMA nodes of a processor: the division of threads on machines that exist on paper only, and
 * products with weights that are divided among nodes, which change no bit.
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path";
import { compileSimulation, jobsOf, MACHINES } from "../../bench/numa_model.ts";
import { findCompiler } from "../../ffi/build/compiler.ts";
import { hostPlatform } from "../../ffi/build/targets.ts";
import type { NativeBackend } from "../../ffi/native_backend.ts";
import { SHAPES } from "../../src/bench/synthetic/shapes.ts";
import type { TensorType } from "../../src/formats/tensor_info.ts";
import { ForgeError } from "../../src/mod.ts";
import { ROOT } from "../support/checkout.ts";
import { devices, deviceTest, openDevice, referenceDevice } from "../support/devices.ts";
import { assertSameBits, type Matrix, randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { runStep, StepGraph, tokenInputs } from "../support/step_graph.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { randomWeight, type TestWeight } from "../support/weights.ts";
import { attentionCase, runAttention } from "./attention_cases.ts";
import { run } from "./product_cases.ts";

/** A machine: the cores of each node, and the hardware threads of a core. */
interface Machine {
  readonly cores: readonly number[];
  readonly threadsPerCore: number;
}

/**
 * Returns the hardware threads of a core, numbered as Linux does on servers: core by core, twice.
 */
function cpusOf({ cores, threadsPerCore }: Machine, core: number): number[] {
  const all = cores.reduce((sum, n) => sum + n, 0);
  return Array.from({ length: threadsPerCore }, (_, i) => core + i * all);
}

/** Writes the files in which Linux describes a machine. */
function writeMachine(folder: string, machine: Machine): void {
  const write = (text: string, ...path: readonly string[]) => {
    Deno.mkdirSync(join(folder, ...path.slice(0, -1)), { recursive: true });
    Deno.writeTextFileSync(join(folder, ...path), `${text}\n`);
  };
  write(machine.cores.length > 1 ? `0-${machine.cores.length - 1}` : "0", "node", "online");
  let core = 0;
  machine.cores.forEach((count, node) => {
    const own = Array.from({ length: count }, () => cpusOf(machine, core++));
    const ranges = own.length === 0
      ? []
      : Array.from({ length: machine.threadsPerCore }, (_, i) => `${own[0]![i]}-${own.at(-1)![i]}`);
    write(ranges.join(","), "node", `node${node}`, "cpulist");
    for (const cpus of own) {
      for (const cpu of cpus) {
        write(cpus.join(","), "cpu", `cpu${cpu}`, "topology", "thread_siblings_list");
      }
    }
  });
}

interface Divided {
  /** The number, cores and CPUs of each node. */
  readonly nodes: readonly (readonly [id: number, cores: number, cpus: number])[];
  readonly threads: readonly number[];
  readonly text: string;
}

/** Compiles a program of this folder with files of `csrc/cpu/host`; returns its path. */
async function compile(
  folder: TempFolder,
  name: string,
  host: readonly string[],
): Promise<string> {
  const { command: [compiler, ...flags] } = await findCompiler(hostPlatform());
  const program = folder.at(name);
  await run(compiler!, [
    ...flags,
    ...["-std=c++20", "-O0", "-pthread", "-Wall", "-Wextra", "-Werror"],
    join(import.meta.dirname!, `${name}.cpp`),
    ...host.map((file) => join(ROOT, "csrc", "cpu", "host", `${file}.cpp`)),
    ...["-o", program],
  ]);
  return program;
}

Deno.test({
  name: "a pool of threads computes each index once, and passes on the failure of any thread",
  ignore: Deno.build.os !== "linux",
  async fn() {
    using programs = new TempFolder();
    const program = await compile(programs, "thread_pool_program", ["thread_pool", "topology"]);
    const output = await run(program, [`${new Random("pool").u32()}`]);
    assertEquals(new TextDecoder().decode(output), "agrees\n");
  },
});

Deno.test({
  name: "threads are divided among NUMA nodes by the cores that the process may use",
  ignore: Deno.build.os !== "linux",
  async fn() {
    using programs = new TempFolder();
    const program = await compile(programs, "numa_program", ["topology"]);
    const printed = new TextDecoder().decode(await run(program, [])).trim().split("\n");
    const [, list] = /^Cpus_allowed_list:\s*(.*)$/m.exec(
      Deno.readTextFileSync("/proc/self/status"),
    )!;
    const allowedCpus = list!.split(",").flatMap((range) => {
      const [first, last = first] = range.split("-").map(Number);
      return Array.from({ length: last! - first! + 1 }, (_, i) => first! + i);
    });
    assertEquals(printed.map(Number), allowedCpus);

    const folders = new Map<Machine, string>();
    const divide = async (machine: Machine, threads: number, allowed?: readonly number[]) => {
      let folder = folders.get(machine);
      if (folder === undefined) {
        folder = programs.at(`machine ${folders.size}`);
        folders.set(machine, folder);
        writeMachine(folder, machine);
      }
      const all = machine.cores.flatMap((n) => Array<number>(n).fill(0))
        .flatMap((_, core) => cpusOf(machine, core)).sort((a, b) => a - b);
      const output = await run(program, [
        folder,
        `${threads}`,
        ...(allowed ?? all).map(String),
      ]);
      return JSON.parse(new TextDecoder().decode(output)) as Divided;
    };
    const even = { cores: [16, 16], threadsPerCore: 2 };

    assertEquals(await divide({ cores: [2], threadsPerCore: 1 }, 2), {
      nodes: [[0, 2, 2]],
      threads: [2],
      text: "1 NUMA node",
    });
    assertEquals(await divide(even, 32), {
      nodes: [[0, 16, 32], [1, 16, 32]],
      threads: [16, 16],
      text: "2 NUMA nodes: 16 threads on CPUs 0-15,32-47; 16 threads on CPUs 16-31,48-63",
    });
    // Fewer threads than cores read from all nodes, too; a single one is free to move.
    assertEquals((await divide(even, 9)).threads, [5, 4]);
    assertEquals(await divide(even, 1).then(({ threads, text }) => [threads, text]), [
      [1],
      "1 NUMA node",
    ]);
    assertEquals((await divide(even, 100)).threads, [50, 50]);
    // A container with some CPUs: half of a core counts as the core.
    const allowed = [0, 1, 2, 3, 34, 35, 20, 52].sort((a, b) => a - b);
    assertEquals(await divide(even, 5, allowed), {
      nodes: [[0, 4, 6], [1, 1, 2]],
      threads: [4, 1],
      text: "2 NUMA nodes: 4 threads on CPUs 0-3,34-35; 1 thread on CPUs 20,52",
    });
    assertEquals((await divide(even, 4, [16, 17, 18, 19])).threads, [4]);
    // Uneven nodes, nodes of memory alone, and two sockets of 96 cores as eight nodes.
    assertEquals((await divide({ cores: [24, 0, 8], threadsPerCore: 1 }, 16)).threads, [12, 4]);
    const eight = { cores: Array<number>(8).fill(24), threadsPerCore: 2 };
    const most = await divide(eight, 192);
    assertEquals(most.threads, Array(8).fill(24));
    for (let threads = 1; threads <= 192; threads += 13) {
      const { threads: each } = await divide(eight, threads);
      assertEquals(each.reduce((sum, n) => sum + n, 0), threads);
      assertEquals(Math.max(...each) - Math.min(...each) <= 1, true, `${each}`);
    }
    // A system without such files.
    using empty = new TempFolder();
    const output = await run(program, [empty.path, "3", "0", "1", "5"]);
    assertEquals(JSON.parse(new TextDecoder().decode(output)).nodes, [[0, 3, 3]]);
  },
});

Deno.test({
  name: "a decoded token reads its node's memory, on machines that exist on paper",
  ignore: Deno.build.os !== "linux",
  async fn() {
    const { simulate } = await compileSimulation();
    const jobs = jobsOf(SHAPES["llama-3.1-8b"]!, "Q4_0", 4096);
    const one = { ...MACHINES[0]!, nodeGbs: 25, linkGbs: 25 };
    const alone = await simulate(one, 1, jobs);
    // A word for each task, which no other thread has changed.
    assert(alone.time_us >= alone.reading_us && alone.time_us < 1.01 * alone.reading_us);
    assertEquals(alone.remote, 0);
    for (const machine of MACHINES) {
      for (const threads of machine.threads) {
        const { local, remote, time_us, reading_us } = await simulate(machine, threads, jobs);
        const where = `${machine.name}, ${threads} threads`;
        assert(
          local >= 0.95 * (local + remote),
          `${where}: ${remote} of ${local} bytes are remote`,
        );
        assert(local + remote >= alone.local, `${where}: ${local + remote} bytes are read`);
        assert(time_us > reading_us, where);
      }
    }
  },
});

const cpus = devices.filter(({ kind }) => kind === "cpu");

const COLS = 256, EXPERTS = 4, TOP_K = 2, EXPERT_ROWS = 72;

/** Weights of products: rows of several types, gates and ups in one part and in two, experts. */
function randomWeights(random: Random) {
  const weight = (type: TensorType, rows: number) => randomWeight(random, type, rows, COLS);
  return {
    plain: [weight("Q4_0", 1000), weight("BF16", 100), weight("F32", 33), weight("IQ2_XS", 16)],
    gated: [[weight("Q8_0", 2 * 160)], [weight("Q4_K", 224), weight("Q4_K", 224)]],
    router: weight("F32", EXPERTS),
    experts: weight("Q6_K", EXPERTS * EXPERT_ROWS),
  };
}

/** Computes all products, twice: with rows of the files, and packed. */
async function products(
  backend: NativeBackend,
  x: Matrix,
  weights: ReturnType<typeof randomWeights>,
): Promise<Matrix[]> {
  const inputs = tokenInputs(x.rows);
  const recorder = backend.record({
    maxTokens: x.rows,
    maxOutputs: 1,
    maxSequences: 1,
    maxPages: 1,
  });
  const graph = new StepGraph(backend, recorder);
  const value = graph.input(x);
  using folder = new TempFolder();
  const mapped = (parts: readonly TestWeight[]) =>
    backend.mapWeight(
      parts.map(({ type, rows, bytes }, part) => {
        const file = folder.write(`${crypto.randomUUID()}-${part}`, bytes);
        const tensor = { name: file, type, shape: [rows, COLS], file, offset: 0 };
        return { tensor: { ...tensor, bytes: bytes.length } };
      }),
      COLS,
    );
  const kept = weights.plain.map((each) => ({
    value: recorder.matmul(value, graph.weight(each)),
    cols: each.rows,
  }));
  for (const parts of weights.gated) {
    const cols = parts.reduce((sum, { rows }) => sum + rows, 0) / 2;
    const product = recorder.matmul(value, mapped(parts));
    kept.push({ value: recorder.glu(product, cols, "silu"), cols });
  }
  const route = recorder.moeRoute(recorder.matmul(value, graph.weight(weights.router)), {
    topK: TOP_K,
    normalize: true,
  });
  kept.push({
    value: recorder.moeMatmul(value, route, graph.weight(weights.experts), EXPERTS),
    cols: TOP_K * EXPERT_ROWS,
  });
  for (const { value } of kept) recorder.keep(value);
  const step = await recorder.finish();
  const results: Matrix[] = [];
  for (let i = 0; i < 2; i++) {
    await step.run(inputs);
    for (const { value, cols } of kept) {
      const data = Float32Array.from(step.read(value, cols, 0, x.rows));
      results.push({ rows: x.rows, cols, data });
    }
  }
  step.release();
  return results;
}

for (const device of cpus) {
  Deno.test(`products with weights divided among NUMA nodes keep their bits (${device.name})`, async () => {
    const random = new Random("numa");
    const weights = randomWeights(random);
    for (const tokens of [1, 5, 70]) {
      const x = randomMatrix(random, tokens, COLS);
      const compute = async (threads: number, nodes: number, memory?: number) => {
        using backend = openDevice(device, threads);
        backend.setNodes(nodes);
        if (memory !== undefined) backend.setMemory(memory);
        return await products(backend, x, weights);
      };
      const expected = await compute(1, 1);
      for (const [threads, nodes, memory] of [[2, 2], [5, 2], [4, 3], [7, 64], [3, 3, 300_000]]) {
        const actual = await compute(threads!, nodes!, memory);
        actual.forEach((each, i) =>
          assertSameBits(each, expected[i]!, `${nodes} nodes, ${tokens} tokens, product ${i}`)
        );
      }
    }
  });
}

for (const device of cpus) {
  Deno.test(`attention over caches divided among NUMA nodes keeps its bits (${device.name})`, async () => {
    const random = new Random("attention on nodes");
    const sequences = [[300, 1], [0, 40], [17, 3]] as const;
    for (const [nKvHeads, type] of [[1, "F16"], [3, "Q8_0"], [8, "F32"]] as const) {
      const outline = { sequences, headDim: 16, nKvHeads, group: 2, pageTokens: 16 };
      const inputs = attentionCase(random, outline, { type, prepared: false });
      const compute = async (threads: number, nodes: number, isSpoiled: boolean) => {
        using backend = openDevice(device, threads);
        backend.setNodes(nodes);
        return await runAttention(backend, inputs, isSpoiled);
      };
      const expected = await compute(1, 1, true);
      for (const [threads, nodes] of [[2, 2], [5, 2], [4, 3], [7, 64]] as const) {
        const where = `${nKvHeads} heads in ${type}, ${nodes} nodes`;
        assertSameBits(await compute(threads, nodes, true), expected, where);
        assertSameBits(await compute(threads, nodes, false), expected, `${where}, new pages`);
      }
    }
  });
}

Deno.test(
  "pages of a cache have the same bytes on any NUMA nodes",
  { ignore: cpus.length === 0 },
  async () => {
    const random = new Random("pages");
    const shape = {
      type: "F16",
      nPages: 3,
      pageTokens: 4,
      nKvHeads: 5,
      kHeadDim: 8,
      vHeadDim: 8,
    } as const;
    using one = openDevice(cpus[0]!, 1);
    const kept = one.createKv(shape);
    const page = random.bytes(kept.pageBytes);
    using backend = openDevice(cpus[0]!, 4);
    backend.setNodes(3);
    const kv = backend.createKv(shape);
    kv.writePage(1, page);
    kv.copyPage(1, 2);
    assertEquals(kv.readPage(0), new Uint8Array(page.length));
    assertEquals(kv.readPage(1), page);
    assertEquals(kv.readPage(2), page);
    assertThrows(() => backend.setNodes(2), ForgeError, "before the first cache");

    // Written and copied pages keep their tokens when others follow.
    kept.writePage(1, page);
    kept.copyPage(1, 2);
    const qkv = randomMatrix(random, 1, 3 * 5 * 8);
    for (const [device, cache] of [[one, kept], [backend, kv]] as const) {
      for (const table of [[1], [2]]) {
        await runStep(
          device,
          { ...tokenInputs(1), positions: [3], pageTables: [table] },
          (graph) => {
            const options = { nHeads: 5, eps: 1e-5, ropeLayout: "half" } as const;
            return { value: graph.recorder.ropeAppend(graph.input(qkv), cache, options), cols: 40 };
          },
        );
      }
    }
    for (const index of [1, 2]) assertEquals(kv.readPage(index), kept.readPage(index));
    assert(kv.readPage(1).some((byte, i) => byte !== page[i]));
  },
);

deviceTest(
  "NUMA nodes are chosen before the first step, on a processor",
  async (device) => {
    device.setNodes(2);
    assertEquals(device.info.details, ["2 NUMA nodes: 1 thread; 1 thread"]);
    device.setNodes(1);
    assertEquals(device.info.details, ["1 NUMA node"]);
    const recorder = device.record({ maxTokens: 1, maxOutputs: 1, maxSequences: 1, maxPages: 1 });
    recorder.keep(new StepGraph(device, recorder).input(randomMatrix(new Random("x"), 1, 4)));
    await recorder.finish();
    assertThrows(() => device.setNodes(0), ForgeError, "before the first cache and step");
    using reference = openDevice(referenceDevice);
    assertThrows(() => reference.setNodes(2), ForgeError, "--numa is for cpu");
  },
  cpus.slice(0, 1),
);
