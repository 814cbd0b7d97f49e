import type { Backend, KvType } from "../../backend.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import type { CausalLm } from "../../models/causal_lm.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import { cacheTokens, stateSlots } from "../cache/memory.ts";
import { openTokenizer } from "./tokenizer.ts";
import { Runner } from "../runner.ts";

/** How large a model is opened. */
export interface SessionShape {
  /** Positions a sequence can have. */
  readonly contextLength: number;
  readonly kvType: KvType;
  /** Sequences that one run can take. */
  readonly maxSequences: number;
}

/** Opens a runner whose KV cache and recurrent states are as large as the machine's memory allows. */
export async function openRunner(
  backend: Backend,
  lm: CausalLm,
  shape: SessionShape,
): Promise<Runner> {
  return await Runner.open(backend, lm, {
    ...shape,
    cacheTokens: cacheTokens({ ...shape, layers: lm.kvLayers }),
    nSlots: stateSlots(shape.maxSequences, lm.stateLayers),
  });
}

/** Opens a runner, and the model's tokenizer while the device prepares the step. */
export async function openSession(
  backend: Backend,
  lm: CausalLm,
  shape: SessionShape,
  checkpoint: Checkpoint,
): Promise<readonly [Runner, Tokenizer]> {
  const opening = openRunner(backend, lm, shape);
  const reading = Promise.try(openTokenizer, checkpoint);
  const [tokenizer, runner] = await Promise.all([reading, opening]);
  return [runner, tokenizer];
}
