/** Reports of `--verbose`. */
import {
  type ConstraintCost,
  describeSampling,
  type GenerateOptions,
  type GenerationEnd,
  type Model,
} from "../../mod.ts";
import { quoteList } from "../../formats/quote.ts";
import { formatBytes, formatCount, formatRows, formatSpeed, plural } from "./format.ts";

const MAX_UNUSED = 5;

type Row = readonly [label: string, text: string];

/** Returns rows about model, device and memory. */
export function describeDevice(model: Model): Row[] {
  const { checkpoint, devices, memory, unusedTensors } = model;
  const rows: Row[] = [
    ["model", `${checkpoint.path} (${checkpoint.modelType}, ${weightTypes(model)})`],
    ["tokenizer", model.tokenizer.description],
    ...devices.map(({ name, kernels, threads }, i): Row => [
      i === 0 ? "device" : "",
      `${name}, ${kernels} kernels, ${plural(threads, "thread")}`,
    ]),
    ["context", plural(model.contextLength, "token")],
    [
      "memory",
      `${formatBytes(memory.weights)} weights, ${formatBytes(memory.kvCache)} KV cache, ` +
      (memory.states === 0 ? "" : `${formatBytes(memory.states)} recurrent states, `) +
      `${formatBytes(memory.activations)} activations`,
    ],
  ];
  if (unusedTensors.length > 0) rows.push(["warning", describeUnused(unusedTensors)]);
  return rows;
}

/**
 * Returns the rows of {@linkcode describeDevice}, the sampling chain, and the size of the prompt.
 */
export function describeSession(model: Model, prompt: string, request: GenerateOptions): string {
  const { tokens } = model.encodePrompt(prompt, request);
  return formatRows([
    ...describeDevice(model),
    ["sampling", describeSampling(model.resolveSampling(request), request)],
    ["prompt", plural(tokens.length, "token")],
  ], Deno.stderr);
}

/** Describes the speed, the reused part of the prompt, and the cost of a constraint. */
export function describeSpeed(end: GenerationEnd, cost?: ConstraintCost): string {
  const { timings, promptTokens, cachedPromptTokens, completionTokens, finishReason } = end;
  return formatRows([
    ["reused", `${cachedPromptTokens} of ${plural(promptTokens, "prompt token")}`],
    ["prefill", formatSpeed(promptTokens - cachedPromptTokens, timings.prefillMs)],
    ["decode", formatSpeed(Math.max(0, completionTokens - 1), timings.decodeMs)],
    ...(timings.drafted === 0 ? [] : [["drafted", describeDrafts(timings)] as const]),
    ...(cost === undefined ? [] : [["constraint", describeCost(cost, timings)] as const]),
    ["ended", finishReason],
  ], Deno.stderr);
}

function describeDrafts({ drafted, accepted }: GenerationEnd["timings"]): string {
  const share = (100 * accepted / drafted).toFixed(0);
  return `${plural(drafted, "token")}, ${accepted} accepted (${share}%)`;
}

/** Describes the cost of masks, which may overlap with the steps. */
function describeCost(cost: ConstraintCost, timings: GenerationEnd["timings"]): string {
  const steps = timings.prefillMs + timings.decodeMs;
  const each = cost.masks === 0 ? 0 : cost.maskMs / cost.masks;
  const share = steps === 0 ? 0 : 100 * cost.maskMs / steps;
  return `compiled in ${cost.compileMs.toFixed(1)} ms, ${plural(cost.masks, "mask")} of ` +
    `${each.toFixed(3)} ms, ${share.toFixed(1)}% of the steps`;
}

function weightTypes({ checkpoint }: Model): string {
  const tensors = [...checkpoint.tensors.values()];
  const parameters = tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const types = [...new Set(tensors.map(({ type }) => type))];
  return `${formatCount(parameters)} parameters, ${types.join(" ")}`;
}

function describeUnused(names: readonly string[]): string {
  const shown = quoteList(names, MAX_UNUSED);
  return `${plural(names.length, "tensor")} of the files not used: ${shown}`;
}
