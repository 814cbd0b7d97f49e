/**
 * Inputs that the CUDA device rejects and other devices accept, with the error texts. Run in a
 * separate process.
 */
import { assertRejects, assertThrows } from "@std/assert";
import type { Recorder, StepLimits } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { openDevice } from "./devices.ts";
import { matrixOf } from "./matrix.ts";
import { StepGraph } from "./step_graph.ts";
import { f32Vector, f32Weight } from "./weights.ts";

const limits: StepLimits = { maxTokens: 4, maxOutputs: 1, maxSequences: 1, maxPages: 1 };

using device = openDevice({ name: "cuda", kind: "cuda", selector: "" });

/** Expects a step to be rejected at the end of its recording, before it allocates memory. */
async function assertRefused(
  message: string,
  change: Partial<StepLimits>,
  record: (graph: StepGraph, recorder: Recorder) => void,
): Promise<void> {
  const recorder = device.record({ ...limits, ...change });
  record(new StepGraph(device, recorder), recorder);
  await assertRejects(() => recorder.finish(), ForgeError, message);
}

const ones = (rows: number, cols: number) => f32Weight(matrixOf(rows, cols, () => 1));

await assertRefused(
  "a step of 65536 tokens; the CUDA device takes up to 65535",
  { maxTokens: 65536 },
  (graph, recorder) => recorder.keep(recorder.embed(graph.weight(ones(1, 4)))),
);

// A tile of 8 pairs per block, and blocks along y of a grid.
const nExperts = 32, topK = 16;
await assertRefused(
  "moe_matmul: 65535 tokens with 16 experts each are too many for one step of the CUDA device",
  { maxTokens: 65535 },
  (graph, recorder) => {
    const logits = recorder.embed(graph.weight(ones(1, nExperts)));
    const route = recorder.moeRoute(logits, { topK, normalize: true });
    const weight = graph.weight(ones(2 * nExperts, nExperts));
    recorder.keep(recorder.moeMatmul(logits, route, weight, nExperts));
  },
);

await assertRefused(
  "head_matmul: 65535 tokens with 32 heads each are too many for one step of the CUDA device",
  { maxTokens: 65535 },
  (graph, recorder) => {
    const x = recorder.embed(graph.weight(ones(1, 2 * nExperts)));
    recorder.keep(recorder.headMatmul(x, graph.weight(ones(nExperts, 2)), nExperts));
  },
);

{
  // 15 heads and 34,944 tokens have 65,535 tiles, the most of a grid.
  const nHeads = 15;
  const recorder = device.record({ ...limits, maxTokens: 34_944 });
  const graph = new StepGraph(device, recorder);
  const x = recorder.embed(graph.weight(ones(1, 2 * nHeads)));
  recorder.keep(recorder.headMatmul(x, graph.weight(ones(nHeads, 2)), nHeads));
  (await recorder.finish()).release();
}

const kDim = 264, vDim = 8;
await assertRefused(
  "gated_delta_rule: keys of 264 numbers; the CUDA device takes up to 256",
  {},
  (graph, recorder) => {
    const state = device.createState({ nSlots: 1, rows: kDim, cols: vDim });
    recorder.keep(
      recorder.gatedDeltaRule(
        recorder.embed(graph.weight(ones(1, 2 * kDim + vDim))),
        recorder.embed(graph.weight(ones(1, 2))),
        state,
        {
          rate: graph.weight(f32Vector(Float32Array.of(-1))),
          dtBias: graph.weight(f32Vector(Float32Array.of(0))),
          nKHeads: 1,
          headOrder: "grouped",
          scale: 1,
          eps: 1e-6,
        },
      ),
    );
  },
);

await assertRefused(
  "selective_scan: states of 264 numbers a column; a GPU takes up to 256",
  {},
  (graph, recorder) => {
    const state = device.createState({ nSlots: 1, rows: kDim, cols: vDim });
    const one = graph.weight(f32Vector(Float32Array.of(-1)));
    recorder.keep(
      recorder.selectiveScan(
        recorder.embed(graph.weight(ones(1, 2 * kDim + vDim))),
        recorder.embed(graph.weight(ones(1, 1))),
        state,
        { rate: one, dtBias: one, skip: one, nGroups: 1 },
      ),
    );
  },
);

// The emulated GPU has 8 GiB.
assertThrows(
  () => device.createState({ nSlots: 2 ** 16, rows: 512, cols: 128 }),
  ForgeError,
  "recurrent state of 65536 slots of 262144 bytes passes the 8.0 GiB of CUDA device 0",
);
const kv = { type: "F16", pageTokens: 64, nKvHeads: 8, kHeadDim: 128, vHeadDim: 128 } as const;
assertThrows(
  () => device.createKv({ ...kv, nPages: 2 ** 20 }),
  ForgeError,
  "a KV cache of 1048576 pages of 262144 bytes passes the 8.0 GiB of CUDA device 0",
);
console.log("refused");
