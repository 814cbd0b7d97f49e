/** `forge inspect`: shows facts about a model. */
import type { EmbeddingRecipe } from "../../engine/embedding/pooling.ts";
import { asLoaded } from "../../engine/load/options.ts";
import { type DevicePlan, planReplicas } from "../../engine/load/plan_replicas.ts";
import { ForgeError } from "../../errors.ts";
import { type Adapter, isAdapter, openAdapter } from "../../formats/adapter.ts";
import { type Checkpoint, openCheckpoint, type TensorInfo } from "../../mod.ts";
import type { Context } from "../command.ts";
import { formatBytes, formatCount, formatRows, plural, printable } from "../output/format.ts";
import { columnsOf, formatTable } from "../output/terminal_text.ts";
import {
  type ConfigFacts,
  type ModelFacts,
  modelFacts,
  type SpecialToken,
} from "../model/model_facts.ts";
import { resolveModel } from "../model/model_path.ts";
import { ensureLibrary } from "../model/open_model.ts";
import type { ReplicaFlags } from "../options/flags.ts";
import { replicaOptions } from "../options/library_options.ts";
import type { Options } from "../options/options.ts";
import { Progress } from "../output/progress.ts";
import { writeStdout } from "../output/streams.ts";

const TEMPLATE_LINES = 8;

type Row = readonly [label: string, text: string];

type InspectFlags =
  & Options<"model" | "quantize" | "tensors" | "template" | "json" | "verbose">
  & ReplicaFlags;

export async function run(
  options: InspectFlags,
  [operand]: readonly string[],
  context: Context,
): Promise<number> {
  if (operand !== undefined && options.model !== undefined) {
    throw new ForgeError("usage", "give the model once: as an argument or with -m");
  }
  const path = await resolveModel(operand ?? options.model, context.interruptSignal());
  if (isAdapter(path)) {
    await writeStdout(describeAdapter(openAdapter(path), options.json));
    return 0;
  }
  const checkpoint = asLoaded(openCheckpoint(path), options);
  if (options.template) {
    const { chatTemplate } = checkpoint;
    if (chatTemplate === undefined) {
      throw new ForgeError("bad_input", `${checkpoint.path} has no chat template`);
    }
    await writeStdout(chatTemplate);
    return 0;
  }
  const facts = modelFacts(checkpoint);
  const replicas = await replicasOf(checkpoint, options);
  const tensors = [...checkpoint.tensors.values()];
  if (options.json) {
    const more = {
      tensors: options.tensors ? tensors : undefined,
      replicas: replicas?.map(jsonOf),
    };
    await writeStdout(`${JSON.stringify({ ...facts, ...more })}\n`);
    return 0;
  }
  const sections = [
    formatRows(overview(facts)),
    `Tensors\n${describeTensors(options.tensors ? tensors.map(tensorRow) : tensorGroups(tensors))}`,
    `Tokenizer\n${formatRows(tokenizerRows(facts))}`,
    `Chat template\n${templateExcerpt(facts.chat_template)}`,
    `Memory\n${formatRows([...memoryRows(facts), ...replicaRows(replicas ?? [])])}`,
  ];
  await writeStdout(sections.join("\n"));
  return 0;
}

/** Plans the replicas that flags ask for; `undefined` without such flags. */
async function replicasOf(
  checkpoint: Checkpoint,
  flags: ReplicaFlags,
): Promise<readonly DevicePlan[] | undefined> {
  const options = replicaOptions(flags);
  if (Object.values(options).every((option) => option === undefined)) return undefined;
  using progress = new Progress();
  await ensureLibrary(options.devices?.[0] ?? "auto", progress);
  return planReplicas(checkpoint, options);
}

/** Returns a replica with the keys of `--json`. */
function jsonOf({ kvTokens: kv_tokens, ...plan }: DevicePlan) {
  return { ...plan, kv_tokens };
}

function replicaRows(replicas: readonly DevicePlan[]): Row[] {
  const hasStages = replicas.some(({ stage }) => stage > 0);
  const hasParts = replicas.some(({ rank }) => rank > 0);
  return replicas.map(({ replica, stage, rank, name, total, free, fits, ...plan }) => {
    const weights = formatBytes(plan.weights);
    return [
      `replica ${replica + 1}${hasStages ? `, stage ${stage + 1}` : ""}` +
      (hasParts ? `, part ${rank + 1}` : ""),
      `${printable(name)}, ${formatBytes(free)} of ${formatBytes(total)} free: ` +
      (fits
        ? `${weights} of weights and a KV cache of ${plural(plan.kvTokens, "token")} fit`
        : `${weights} of weights and ${formatBytes(plan.context)} of one context do not fit`),
    ];
  });
}

/** Returns facts about a low-rank adapter, as JSON or as lines. */
function describeAdapter(adapter: Adapter, asJson: boolean): string {
  const { path, kind, architecture = null, baseModel = null, pairs } = adapter;
  const ranks = [...new Set(pairs.map(({ rank }) => rank))].sort((a, b) => a - b);
  const bytes = pairs.reduce((sum, { a, b }) => sum + a.bytes + b.bytes, 0);
  const modules = [
    ...new Set(pairs.map(({ target }) => target.split(".").at(-2) ?? target)),
  ].sort();
  if (asJson) {
    const facts = { path, adapter: "lora", format: kind, architecture, base_model: baseModel };
    return `${JSON.stringify({ ...facts, matrices: pairs.length, ranks, modules, bytes })}\n`;
  }
  return formatRows(present([
    ["adapter", printable(path)],
    ["kind", `LoRA, ${kind === "gguf" ? "GGUF" : "peft"}, ${formatBytes(bytes)} of tensors`],
    ["architecture", architecture && printable(architecture)],
    ["trained on", baseModel && printable(baseModel)],
    ["matrices", `${pairs.length}: ${modules.map(printable).join(", ")}`],
    ["ranks", ranks.join(", ")],
    ["use", "forge run -m MODEL --lora PATH"],
  ]));
}

function overview(facts: ModelFacts): Row[] {
  const { config: c } = facts;
  const files = facts.files.length === 1 ? "" : `, ${facts.files.length} files`;
  const types = Object.entries(facts.types)
    .map(([type, { tensors, bytes }]) => `${type} ${formatBytes(bytes)} in ${tensors}`);
  return present([
    ["model", printable(facts.path)],
    ["name", facts.name && printable(facts.name)],
    ["format", `${facts.format}${files}, ${formatBytes(facts.bytes)} of tensors`],
    ["architecture", printable(facts.architecture)],
    ["part of", facts.multimodal === null ? null : describeMultimodal(facts.multimodal)],
    ["forge can run it", facts.problem === null ? "yes" : `no: ${facts.problem}`],
    ["parameters", `${formatCount(facts.parameters)} (${facts.parameters})`],
    ["layers", c.layers],
    ["hidden size", c.hidden_size],
    ["MLP size", c.intermediate_size],
    ["attention", describeAttention(c)],
    ["experts", c.experts && `${c.experts}, ${c.experts_used ?? "?"} used for each token`],
    ["context", c.context_length && `${c.context_length} tokens`],
    ["sliding window", c.sliding_window && `${c.sliding_window} tokens`],
    ["RoPE", describeRope(c)],
    [
      "draft tokens",
      facts.multi_token_prediction ? "by a layer for multi-token prediction" : null,
    ],
    ["embeds by", facts.embedding && describeEmbedding(facts.embedding)],
    ["types", types.join(", ")],
  ]);
}

function describeMultimodal(architecture: string): string {
  return `${printable(architecture)}: text part of a multimodal model; images are not supported`;
}

function describeAttention(c: ConfigFacts): string | null {
  if (c.heads === null) return null;
  const kv = c.kv_heads === null ? "" : `, ${c.kv_heads} of keys and values`;
  return `${plural(c.heads, "head")}${kv}${c.head_dim === null ? "" : `, ${c.head_dim} wide`}`;
}

function describeRope(c: ConfigFacts): string | null {
  if (c.rope_theta === null && c.rope_scaling === null) return null;
  const scaling = c.rope_scaling === null || c.rope_scaling === "default"
    ? ""
    : `, ${printable(c.rope_scaling)} scaling`;
  return `base ${c.rope_theta ?? "by default"}${scaling}`;
}

function describeEmbedding({ pooling, normalize }: EmbeddingRecipe): string {
  const vector = { last: "the last token", mean: "the mean of all tokens", cls: "the first token" };
  const length = normalize === undefined ? "" : normalize ? ", normalised" : ", not normalised";
  return vector[pooling ?? "last"] + length;
}

/** Groups tensors that differ only in the numbers of layer and expert. */
function tensorGroups(tensors: readonly TensorInfo[]): string[][] {
  const groups = new Map<string, { first: TensorInfo; name: string; count: number; sum: number }>();
  for (const tensor of tensors) {
    const name = tensor.name.replace(/\.\d+(?=\.)/g, ".*");
    const key = `${name} ${tensor.type} ${tensor.shape}`;
    const group = groups.get(key) ?? { first: tensor, name, count: 0, sum: 0 };
    groups.set(key, { ...group, count: group.count + 1, sum: group.sum + tensor.bytes });
  }
  return Array.from(groups.values(), ({ first, name, count, sum }) => [
    printable(name),
    count === 1 ? "" : `${count} ×`,
    first.type,
    describeShape(first),
    formatBytes(sum),
  ]);
}

/** Formats a table of tensors, with their sizes to the right. */
function describeTensors(rows: readonly (readonly string[])[]): string {
  const last = (rows[0]?.length ?? 0) - 1;
  return formatTable(rows, (column) => column === last, columnsOf(Deno.stdout));
}

function tensorRow(tensor: TensorInfo): string[] {
  return [printable(tensor.name), tensor.type, describeShape(tensor), formatBytes(tensor.bytes)];
}

function describeShape(tensor: TensorInfo): string {
  return `[${tensor.shape.join(", ")}]`;
}

function tokenizerRows({ tokenizer }: ModelFacts): Row[] {
  if (tokenizer === null) return [["kind", "none that forge supports"]];
  const describe = ({ id, text }: SpecialToken) => `${id} ${printable(JSON.stringify(text))}`;
  const { bos, add_bos, end, add_eos } = tokenizer;
  return present([
    ["kind", printable(tokenizer.description)],
    ["BOS", bos && `${describe(bos)}${add_bos ? ", added before a text" : ""}`],
    ["ends an answer", end.map(describe).join(", ") || null],
    ["EOS", add_eos ? "added after a text" : null],
  ]);
}

function templateExcerpt(template: string | null): string {
  if (template === null) return "none: prompts are continued without a template\n";
  const lines = template.split("\n");
  const shown = lines.slice(0, TEMPLATE_LINES).map((line) => printable(line).slice(0, 100));
  const more = lines.length > TEMPLATE_LINES || shown.some((line) => line.length === 100);
  return `${shown.join("\n")}\n${more ? "… (--template prints all)\n" : ""}`;
}

function memoryRows({ memory }: ModelFacts): Row[] {
  const { weights, kv_per_token, kv_default, default_context, activations } = memory;
  const { state_per_sequence: state } = memory;
  const total = kv_default === null || activations === null
    ? null
    : formatBytes(weights + kv_default + state + activations);
  return present([
    ["weights", `${formatBytes(weights)}, from the mapped file`],
    ["KV cache", kv_per_token && `${formatBytes(1000 * kv_per_token)} for 1000 tokens, as F16`],
    ["state", state && `${formatBytes(state)} for each sequence of any length`],
    ["activations", activations && `about ${formatBytes(activations)}`],
    ["total", total && `about ${total} at the default context of ${default_context} tokens`],
    ["this machine", machineMemory()],
  ]);
}

/** Returns the memory of this machine, if Deno permits to read it. */
function machineMemory(): string | null {
  if (Deno.permissions.querySync({ name: "sys", kind: "systemMemoryInfo" }).state !== "granted") {
    return null;
  }
  const { total, available } = Deno.systemMemoryInfo();
  return `${formatBytes(total)}, ${formatBytes(available)} free`;
}

/** Returns the rows with a value. */
function present(rows: readonly (readonly [string, string | number | null])[]): Row[] {
  return rows.filter(([, text]) => text !== null && text !== 0)
    .map(([label, text]) => [label, String(text)]);
}
