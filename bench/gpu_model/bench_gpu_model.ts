/** `deno task bench gpu-model`: expected speeds on GPUs, without one. */
import { ForgeError } from "../../src/errors.ts";
import type { BenchOptions } from "../bench_options.ts";
import { KernelCompiler } from "./compiled_kernels.ts";
import {
  type FlashDecodePrediction,
  type FlashPrediction,
  predictFlash,
  predictFlashDecode,
} from "./flash_model.ts";
import { goalOf } from "./goals.ts";
import { APPLE_GPUS, type ApplePrediction, predictApple } from "./metal.ts";
import { type ModelledModel, MODELS, STEPS, TYPES } from "./models.ts";
import { H100, NVIDIA_GPUS, type NvidiaGpu } from "./nvidia.ts";
import {
  PERSISTENT_GPUS,
  PERSISTENT_MODELS,
  type PersistentPrediction,
  predictPersistent,
} from "./persistent.ts";
import { type PredictedStep, type Prediction, predictSteps } from "./predictions.ts";
import { drawRoofline, ridge } from "./roofline.ts";
import {
  DIVIDED_GOAL,
  DIVIDED_MODELS,
  type DividedPrediction,
  predictDivided,
} from "./tensor_parallel.ts";

/** cuBLASLt and libflash_attn, as on most machines with a GPU. */
const WITH_LIBRARIES = { flash: true, cublaslt: true };

/** Predictions of one model on one GPU. */
interface Subject {
  readonly gpu: NvidiaGpu;
  readonly model: string;
  readonly type: string;
  readonly steps: readonly PredictedStep[];
}

/** Prompts without cuBLASLt, by the kernels of forge alone. */
const WITHOUT_CUBLASLT = { flash: true, cublaslt: false };
const PROMPTS = STEPS.filter(({ tokens }) => tokens > 1);

/** Prints the expected times of all steps, and writes the roofline that `--plot` names. */
export async function benchGpuModel(options: BenchOptions): Promise<void> {
  const devices = chosen([...NVIDIA_GPUS, ...APPLE_GPUS], options.device, "--device");
  const names = new Set(
    [...MODELS, ...DIVIDED_MODELS, ...PERSISTENT_MODELS].map(({ name }) => name),
  );
  const named = chosen([...names].map((name) => ({ name })), options.model, "--model");
  const isNamed = ({ name }: { readonly name: string }) => named.some((one) => one.name === name);
  const models = MODELS.filter(isNamed);
  const subjects = await predictAll(NVIDIA_GPUS.filter((gpu) => devices.includes(gpu)), models);
  if (options.plot !== undefined) writePlot(options.plot, subjects);
  const predictions = subjects.flatMap(({ steps }) => steps.flatMap((step) => step.predictions));
  const whole = options.model === undefined;
  const flash = whole && devices.includes(H100) ? await predictFlash() ?? [] : [];
  const flashDecode = whole && devices.includes(H100) ? await predictFlashDecode() ?? [] : [];
  const apple = whole
    ? predictApple().filter(({ device }) => devices.some(({ name }) => name === device))
    : [];
  if (options.output === "json") {
    const all = [...predictions, ...flash, ...flashDecode, ...apple];
    return console.log(JSON.stringify(all.map(fields), undefined, 2));
  }
  const divided = devices.includes(H100)
    ? await predictAllDivided(DIVIDED_MODELS.filter(isNamed))
    : [];
  const persistent = await predictAllPersistent(
    PERSISTENT_GPUS.filter((gpu) => devices.includes(gpu)),
    PERSISTENT_MODELS.filter(isNamed),
  );
  for (const gpu of new Set(subjects.map((subject) => subject.gpu))) {
    console.log(describeGpu(gpu, predictions.filter(({ device }) => device === gpu.name)));
  }
  if (divided.length > 0) console.log(describeDivided(divided));
  if (persistent.length > 0) console.log(describePersistent(persistent));
  if (flash.length > 0) console.log(describeFlash(flash, flashDecode));
  if (apple.length > 0) console.log(describeApple(apple));
  if (options.kernels) { for (const subject of subjects) console.log(describeKernels(subject)); }
}

/** Returns the entry of a name, or all entries without one. @throws {ForgeError} `usage` */
function chosen<T extends { readonly name: string }>(
  list: readonly T[],
  name: string | undefined,
  option: string,
): readonly T[] {
  if (name === undefined || name === "auto") return list;
  const found = list.filter((one) => one.name.toLowerCase() === name.toLowerCase());
  if (found.length > 0) return found;
  const valid = list.map((one) => one.name).join(", ");
  throw new ForgeError("usage", `${option} is "${name}"; valid are ${valid}`);
}

/** Predicts the steps of models on GPUs. @throws {ForgeError} `not_found` without a compiler */
async function predictAll(
  gpus: readonly NvidiaGpu[],
  models: readonly ModelledModel[],
): Promise<Subject[]> {
  if (gpus.length === 0) return [];
  using compiler = await openCompiler();
  const subjects: Subject[] = [];
  for (const gpu of gpus) {
    for (const model of models) {
      for (const type of TYPES) {
        const steps = await predictSteps(compiler, gpu, model, type, WITH_LIBRARIES);
        subjects.push({ gpu, model: model.name, type, steps });
      }
      const own = { ...model, name: `${model.name} own` };
      for (const type of TYPES) {
        const steps = await predictSteps(compiler, gpu, own, type, WITHOUT_CUBLASLT, PROMPTS);
        subjects.push({ gpu, model: own.name, type, steps });
      }
    }
  }
  return subjects;
}

/** @throws {ForgeError} "not_found" if there is no compiler or disassembler */
async function openCompiler(): Promise<KernelCompiler> {
  const compiler = await KernelCompiler.open();
  if (typeof compiler === "string") throw new ForgeError("not_found", compiler);
  return compiler;
}

/** Predicts models divided among several H100. */
async function predictAllDivided(
  models: typeof DIVIDED_MODELS,
): Promise<readonly DividedPrediction[]> {
  using compiler = await openCompiler();
  const predictions: DividedPrediction[] = [];
  for (const model of models) {
    predictions.push(...await predictDivided(compiler, WITH_LIBRARIES, model));
  }
  return predictions;
}

/** Predicts steps of small models by one kernel each. */
async function predictAllPersistent(
  gpus: readonly NvidiaGpu[],
  models: typeof PERSISTENT_MODELS,
): Promise<readonly PersistentPrediction[]> {
  if (gpus.length === 0 || models.length === 0) return [];
  using compiler = await openCompiler();
  const predictions: PersistentPrediction[] = [];
  for (const gpu of gpus) {
    for (const model of models) {
      predictions.push(...await predictPersistent(compiler, WITH_LIBRARIES, gpu, model));
    }
  }
  return predictions;
}

/** Returns the fields of the JSON report. */
function fields(prediction: Prediction): Prediction {
  const { device, model, type, workload, batch, depth, time_us, limit_us, share } = prediction;
  return { device, model, type, workload, batch, depth, time_us, limit_us, share };
}

function describeFlash(
  forward: readonly FlashPrediction[],
  decode: readonly FlashDecodePrediction[],
): string {
  return [
    "libflash_attn, 16,384 tokens or one sequence, 2,048 columns of heads; varlen: packed sequences " +
    "of 128 to 8,192 tokens; pages: of 16 rows; FlashAttention-2 and -3 as published",
    ...forward.map(({ device, model, depth, time_us, teraflops, published }) =>
      `${device} ${model.padEnd(33)} ${`${depth}`.padStart(7)} ${time(time_us).padStart(10)} ` +
      `${teraflops.toFixed(0).padStart(5)} TFLOP/s` +
      (published === undefined
        ? ""
        : `, ${published.of} ${published.teraflops} (${
          (100 * teraflops / published.teraflops).toFixed(0)
        }%)`)
    ),
    "Decoding; 8, 4, 2 and 1 KV heads are those of a model divided among 1, 2, 4 and 8 GPUs",
    ...decode.map(({ model, type, batch, depth, time_us, start, keys, combine, ...shares }) =>
      `${model.padEnd(26)} ${type.padEnd(4)} batch ${`${batch}`.padStart(3)} ${
        `${depth}`.padStart(7)
      } ` +
      `${time(time_us).padStart(10)}, ${(100 * shares.share).toFixed(0)}% of the bandwidth, ` +
      `${(100 * shares.readShare).toFixed(0)}% of what can be read; start ${
        start.toFixed(1)
      } us, ` +
      `keys ${keys.toFixed(1)}, combining ${combine.toFixed(1)}`
    ),
    "",
  ].join("\n");
}

function describeDivided(predictions: readonly DividedPrediction[]): string {
  const goal = DIVIDED_GOAL;
  return [
    "Decoding in BF16 on several H100 that divide each layer, with the time of their all-reduces and " +
    "the share of all bandwidths (on paper)",
    ...predictions.map(({ model, devices, link, batch, time_us, all_reduce_us, share, fits }) => {
      const hasGoal = model === goal.model && devices === goal.devices && link === goal.link &&
        batch === goal.batch;
      return `${model.padEnd(4)} ${devices} x H100 ${link.padEnd(6)} batch ${
        `${batch}`.padStart(2)
      } ` +
        `${time(time_us).padStart(9)}, all-reduces ${time(all_reduce_us).padStart(8)}, ` +
        `${(100 * share).toFixed(0)}%${hasGoal ? `, goal ${(100 * goal.share).toFixed(0)}%` : ""}` +
        (fits ? "" : ", does not fit");
    }),
    "",
  ].join("\n");
}

function describePersistent(predictions: readonly PersistentPrediction[]): string {
  const change = (to: number, from: number) =>
    `${time(to).padStart(9)} (${to < from ? "" : "+"}${(100 * (to / from - 1)).toFixed(0)}%)`;
  return [
    "A decoded step at a depth of 512 by the launches of the plan, and by one kernel " +
    "(FORGE_CUDA_PERSISTENT=1) whose blocks wait for a counter before each operation, or at a barrier",
    ...predictions.map(({ device, model, type, batch, launches, ...times }) =>
      `${device} ${model.padEnd(4)} ${type.padEnd(4)} batch ${batch}: ${
        `${launches}`.padStart(3)
      } ` +
      `launches ${time(times.launched_us).padStart(9)}, ` +
      `counters ${change(times.counted_us, times.launched_us)}, ` +
      `barriers ${change(times.barrier_us, times.launched_us)}`
    ),
    "",
  ].join("\n");
}

function describeApple(predictions: readonly ApplePrediction[]): string {
  const limits = {
    decode: "the nominal bandwidth",
    decode_attention: "the nominal bandwidth",
    prefill: "all lanes",
    sampling: "the nominal bandwidth",
  };
  return [
    "Apple's GPUs: a decoded token, its attention alone at a depth of 4,096, a prompt of 512",
    ...predictions.map(({ device, model, type, workload, depth, time_us, share, goal }) => {
      const tokens = workload === "prefill" ? depth : 1;
      return `${device.padEnd(9)} ${model.padEnd(13)} ${type.padEnd(5)} ${workload.padEnd(17)} ` +
        `${time(time_us).padStart(10)} ${(1e6 * tokens / time_us).toFixed(0).padStart(6)} ` +
        `tokens/s, ${(100 * share).toFixed(0)}% of ${limits[workload]}` +
        (goal === undefined ? "" : `, goal ${(100 * goal).toFixed(0)}%`);
    }),
    "",
  ].join("\n");
}

const COLUMNS = ["model", "type", "workload", "batch", "depth", "time", "limit", "share", "goal"];
const WIDTHS = [11, 5, 17, 6, 7, 11, 11, 7, 6];

function describeGpu(gpu: NvidiaGpu, predictions: readonly Prediction[]): string {
  const rows = predictions.map((prediction) => {
    const { model, type, workload, batch, depth, time_us, limit_us, share } = prediction;
    const goal = goalOf(prediction);
    const percent = (value: number) => `${(100 * value).toFixed(0)}%`;
    return [
      ...[model, type, workload, `${batch}`, `${depth}`, time(time_us), time(limit_us)],
      percent(share),
      goal === undefined ? "" : percent(goal),
    ];
  });
  const line = (cells: readonly string[]) =>
    cells.map((cell, i) => i < 3 ? cell.padEnd(WIDTHS[i]!) : cell.padStart(WIDTHS[i]!)).join(" ");
  return [
    `${gpu.name}: ${gpu.multiprocessors} multiprocessors at ${gpu.clock} GHz, ` +
    `${gpu.bandwidth} GB/s, ${gpu.teraflops} TFLOP/s, ridge at ${
      ridge(gpu).toFixed(0)
    } operations a byte`,
    line(COLUMNS),
    ...rows.map(line),
    "",
  ].join("\n");
}

function time(microseconds: number): string {
  return microseconds < 1000
    ? `${microseconds.toFixed(1)} us`
    : `${(microseconds / 1000).toFixed(2)} ms`;
}

/** Smallest share of a step to be listed. */
const LISTED = 0.01;

function describeKernels({ gpu, model, type, steps }: Subject): string {
  return steps.flatMap(({ step, launches, predictions }) => {
    const total = predictions[0]!.time_us;
    const count = launches.reduce((sum, launch) => sum + launch.count, 0);
    const { batch, tokens, depth } = step;
    const title = `${model} ${type} on ${gpu.name}, ${batch} x ${tokens} tokens at ${depth}: ` +
      `${count} launches, ${time(total)}`;
    const rows = launches.toSorted((a, b) => b.count * b.microseconds - a.count * a.microseconds)
      .filter(({ count, microseconds }) => count * microseconds >= LISTED * total)
      .map(({ count, kernel, matrix, blocks, microseconds, limit, bound, intensity }) =>
        `  ${`${count}`.padStart(4)} x ${kernel.padEnd(42)} ${time(microseconds).padStart(9)}, ` +
        `limit ${time(limit).padStart(9)}, ${
          (100 * count * microseconds / total).toFixed(0)
        }% of the ` +
        `step, ${blocks} blocks, ${intensity.toFixed(1)} operations a byte, bound by ${bound}` +
        `${matrix === "" ? "" : `, ${matrix}`}`
      );
    return [title, ...rows, ""];
  }).join("\n");
}

/** Draws the steps of the H100, or of the first chosen GPU: decoding at each batch, and prefill. */
function writePlot(path: string, subjects: readonly Subject[]): void {
  if (subjects.length === 0) throw new ForgeError("usage", "--plot draws NVIDIA's GPUs");
  const gpu = subjects.find((subject) => subject.gpu === H100)?.gpu ?? subjects[0]!.gpu;
  const drawn = subjects.filter((one) =>
    one.gpu === gpu && (one.model === "8B" || subjects.length < 9)
  );
  const series = drawn.flatMap(({ model, type, steps }) =>
    steps.filter(({ step }) => step.tokens > 1 || (step.depth < 8000 && step.batch !== 8))
      .map(({ step, launches }) => ({
        name: `${model} ${type} ${step.tokens > 1 ? "prefill" : `batch ${step.batch}`}`,
        launches,
      }))
  );
  Deno.writeTextFileSync(path, drawRoofline(gpu, series));
}
