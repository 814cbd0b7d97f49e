import type { Backend, DeviceGroup } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { openCheckpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import type { CausalLm } from "../../models/causal_lm.ts";
import { loadModel } from "../../models/registry.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import { MAX_BRANCHES, MAX_DRAFTED, MAX_TREE_WIDTH } from "../limits.ts";
import type { LoadOptions } from "../load/options.ts";
import type { MemoryUse } from "../cache/memory.ts";
import { openRunner, type SessionShape } from "../load/open_runner.ts";
import { openTokenizer } from "../load/tokenizer.ts";
import type { Runner } from "../runner.ts";
import { checkWholeNumber } from "../../formats/arguments.ts";
import { HeadDrafter } from "./head_drafter.ts";
import { DraftModel } from "./draft_model.ts";
import { Speculator } from "./speculator.ts";

/** Model that the drafts are for. */
interface Target extends SessionShape {
  readonly backend: Backend | DeviceGroup;
  readonly runner: Runner;
  /** Bytes of the model's weights on each device. */
  readonly weightBytes: readonly number[];
  readonly tokenizer: Tokenizer;
}

/** Speculator, if any, and the memory of its draft model. */
export interface OpenSpeculator {
  readonly speculator: Speculator | undefined;
  readonly memory: MemoryUse;
}

const NO_MEMORY: MemoryUse = { weights: 0, kvCache: 0, states: 0, activations: 0 };

/**
 * Opens the speculator that `speculate` and `draftModel` ask for. A draft model is loaded onto the
 * model's device.
 *
 * @throws {ForgeError} `usage` for an unknown mode, a model that cannot speculate, or a draft model
 * with another vocabulary; as `load` for one that cannot be loaded
 */
export async function openSpeculator(
  options: Pick<LoadOptions, "speculate" | "draftModel" | "draftTree">,
  target: Target,
): Promise<OpenSpeculator> {
  const { speculate = "auto", draftModel, draftTree = "auto" } = options;
  checkSpeculation(speculate);
  if (speculate === "off" && draftModel !== undefined) {
    throw new ForgeError("usage", "speculate is off, but a draft model is given; give one of them");
  }
  if (!draftsTokens(options, target.backend)) return { speculator: undefined, memory: NO_MEMORY };
  const length = typeof speculate === "number" ? speculate : undefined;
  if (draftModel === undefined || target.runner.hasDraftHead) {
    const model = target.runner.hasDraftHead ? new HeadDrafter(target.runner) : undefined;
    const treeWidth = draftTree === "auto" ? undefined : draftTree;
    return { speculator: new Speculator({ length, model, treeWidth }), memory: NO_MEMORY };
  }
  const { model, memory } = await openDraftModel(draftModel, target);
  return { speculator: new Speculator({ length, model }), memory };
}

/**
 * True if a model may compute draft tokens: if asked to, and on a processor, where they change no
 * digit.
 */
export function draftsTokens(
  { speculate = "auto", draftModel }: Pick<LoadOptions, "speculate" | "draftModel">,
  { kind }: Pick<Backend, "kind">,
): boolean {
  return draftModel !== undefined || (speculate === "auto" ? kind === "cpu" : speculate !== "off");
}

/**
 * Returns the most branches of draft trees in one step: none if the model has no head that drafts,
 * or a recurrent state, which belongs to one chain of tokens.
 *
 * @throws {ForgeError} `usage` for an invalid width
 */
export function maxBranches(
  { draftTree = "auto" }: Pick<LoadOptions, "draftTree">,
  { draft, stateLayers }: Pick<CausalLm, "draft" | "stateLayers">,
): number {
  if (draftTree !== "auto") checkWholeNumber("draftTree", draftTree, 1, MAX_TREE_WIDTH);
  return draft === undefined || stateLayers.length > 0 || draftTree === 1 ? 0 : MAX_BRANCHES;
}

function checkSpeculation(asked: NonNullable<LoadOptions["speculate"]>): void {
  if (typeof asked === "number") checkWholeNumber("speculate", asked, 1, MAX_DRAFTED);
  else if (!["auto", "on", "off"].includes(asked)) {
    throw new ForgeError(
      "usage",
      `speculate is ${quote(asked)}; valid is auto, on, off or a whole number from 1 to ` +
        MAX_DRAFTED,
    );
  }
}

async function openDraftModel(path: string, target: Target) {
  const { backend, tokenizer, ...shape } = target;
  const checkpoint = openCheckpoint(path);
  checkSameVocabulary(tokenizer, openTokenizer(checkpoint), path);
  const { lm, loaders } = loadModel(backend, checkpoint, {
    sessionLength: shape.contextLength,
  });
  if (lm.stateLayers.length > 0) throw hasRecurrentState(path);
  const contextLength = Math.min(shape.contextLength, lm.contextLength);
  const { kvType, maxSequences } = shape;
  // A GPU counts the model's weights as taken by now; a processor counts no weights.
  const isGpu = backend.kind === "cuda" || backend.kind === "metal";
  const own = loaders.map(({ mappedBytes }) => mappedBytes);
  const weightBytes = own.map((bytes, i) => bytes + (isGpu ? 0 : target.weightBytes[i]!));
  const draftShape = { contextLength, kvType, maxSequences };
  const runner = await openRunner(backend, lm, draftShape, weightBytes);
  const memory: MemoryUse = {
    weights: own.reduce((sum, bytes) => sum + bytes, 0),
    kvCache: runner.kvBytes,
    states: 0,
    activations: runner.scratchBytes,
  };
  return { model: new DraftModel(runner), memory };
}

function hasRecurrentState(path: string): ForgeError {
  return new ForgeError(
    "usage",
    `the draft model ${quote(path)} has a recurrent state, which would have to be computed again ` +
      "after each rejected token; valid is a model with attention in all layers",
  );
}

/** Vocabularies may differ by this many tokens at their end, mostly control tokens. */
const MOST_MORE = 256;

/**
 * Checks that a draft model's tokens are those of the model.
 *
 * @throws {ForgeError} `usage`, naming the first token that differs
 */
function checkSameVocabulary(model: Tokenizer, draft: Tokenizer, path: string): void {
  const problem = difference(model, draft);
  if (problem === undefined) return;
  throw new ForgeError(
    "usage",
    `the draft model ${quote(path)} has another vocabulary than the model: ${problem}`,
  );
}

function difference(model: Tokenizer, draft: Tokenizer): string | undefined {
  const common = Math.min(model.vocabSize, draft.vocabSize);
  if (Math.max(model.vocabSize, draft.vocabSize) > common + MOST_MORE) {
    return `${draft.vocabSize} tokens, not ${model.vocabSize}`;
  }
  for (let id = 0; id < common; id++) {
    const expected = model.tokenText(id), actual = draft.tokenText(id);
    if (actual !== expected) return `token ${id} is ${quote(actual)}, not ${quote(expected)}`;
  }
  return undefined;
}
