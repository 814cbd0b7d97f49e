/**
 * Expected times of the steps that `decode.ts` measures, under the same names, and of those of
 * `launches.ts`, by launches and by one kernel: `model.ts [--emulated] [TYPE...]`. Prints the lines
 * of `lines.ts`.
 */
import type { SyntheticType } from "../../src/bench/synthetic/shapes.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { KernelCompiler } from "../gpu_model/compiled_kernels.ts";
import { modelOf, type Step } from "../gpu_model/models.ts";
import { H100, NVIDIA_GPUS, type NvidiaGpu } from "../gpu_model/nvidia.ts";
import { PERSISTENT_MODELS, predictPersistent } from "../gpu_model/persistent.ts";
import { predictSteps } from "../gpu_model/predictions.ts";
import { plans, promptName, stepName } from "./decode.ts";
import { LAUNCHED, MODEL, RESIDENT } from "./launches.ts";
import { say } from "./lines.ts";
import { SKIPPED } from "./parts.ts";

async function main(args: readonly string[]): Promise<void> {
  const backend = openBackend("cuda");
  const { name } = backend.info;
  const hasFlash = backend.info.details?.some((line) => line.startsWith("flash")) ?? false;
  backend.close();
  const known = NVIDIA_GPUS.find((gpu) => name.includes(gpu.name));
  const gpu = known ?? (args.includes("--emulated") ? H100 : undefined);
  if (gpu === undefined) skip(`bench/gpu_model/nvidia.ts has no constants of ${name}`);
  const compiler = await KernelCompiler.open();
  if (typeof compiler === "string") skip(compiler);
  using _ = compiler;
  await predictLaunches(compiler, gpu, args.includes("--emulated"));
  for (const { spec, batches, prompts, depth } of plans(args)) {
    const steps: Step[] = [
      ...batches.map((batch) => ({ batch, tokens: 1, depth })),
      ...prompts.map((tokens) => ({ batch: 1, tokens, depth: 0 })),
    ];
    const libraries = { flash: hasFlash, cublaslt: !args.includes("--emulated") };
    const predicted = await predictSteps(
      ...[compiler, gpu, modelOf(spec), spec.type, libraries, steps] as const,
      () => 1, // decode.ts waits for each step
    );
    for (const { step, predictions } of predicted) {
      const { tokens, batch } = step;
      say({
        kind: "speed",
        group: tokens > 1 ? "prefill" : "decode step",
        name: tokens > 1 ? promptName(spec.name, tokens) : stepName(spec.name, batch, depth),
        by: "model",
        microseconds: predictions[0]!.time_us,
      });
    }
  }
}

/** Predicts a token of the model of `launches.ts`, or of the smallest. */
async function predictLaunches(
  compiler: KernelCompiler,
  gpu: NvidiaGpu,
  isEmulated: boolean,
): Promise<void> {
  const spec = isEmulated ? "135M:Q8_0" : MODEL.replace("llama-3.2-1b", "1B");
  const [name, type] = spec.split(":") as [string, SyntheticType];
  const model = PERSISTENT_MODELS.find((one) => one.name === name)!;
  const libraries = { flash: false, cublaslt: false };
  const [step] = await predictPersistent(compiler, libraries, gpu, model, [type]);
  const { launched_us, counted_us } = step!;
  for (const [way, microseconds] of [[LAUNCHED, launched_us], [RESIDENT, counted_us]] as const) {
    const group = "launches of a step";
    say({ kind: "speed", group, name: `${spec}, ${way}`, by: "model", microseconds });
  }
}

/** Ends the part without a failure. */
function skip(reason: string): never {
  console.error(reason);
  Deno.exit(SKIPPED);
}

if (import.meta.main) await main(Deno.args);
