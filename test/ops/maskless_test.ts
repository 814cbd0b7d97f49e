/** Masks applied to what a device reports choose the tokens that the device would choose with them. */
import { assert, assertEquals } from "@std/assert";
import { chooseFromTop } from "../../src/engine/host_sampler.ts";
import { MasklessStep } from "../../src/engine/maskless_step.ts";
import { philox4x32, philoxUniform } from "../../src/engine/philox.ts";
import type { OutputRequest } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { deviceTest } from "../support/devices.ts";
import { fullRequest } from "../support/logit_sampler.ts";
import { randomMatrix, rowOf } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { StepGraph } from "../support/step_graph.ts";
import { isNearlyChosen } from "./plain_sampling.ts";

const VOCABULARY = 150, WORDS = 5, OUTPUTS = 6, MAX_TOP = 20;

function randomRequest(random: Random, row: number): OutputRequest {
  const share = random.pick([0.02, 0.2, 0.9]);
  const mask = new Uint32Array(WORDS);
  for (let token = 0; token < VOCABULARY; token++) {
    if (random.chance(share)) mask[token >>> 5]! |= 1 << (token & 31);
  }
  mask[random.int(0, 3)]! |= 4;
  return fullRequest({
    row,
    position: random.u32(),
    stream: random.int(0, 3),
    nTop: random.int(0, 5),
    history: random.chance(0.3) ? [1, 2, 2, 77] : [],
    sampling: {
      mask,
      seed: BigInt(random.u32()) << 20n,
      temperature: random.pick([0, 0, 0.3, 1, 2]),
      topK: random.pick([0, 1, 3, 30]),
      topP: random.pick([1, 0.9, 0.3]),
      minP: random.pick([0, 0.05]),
      repeatPenalty: random.pick([1, 1.4]),
      presencePenalty: random.pick([0, 0.5]),
      bias: random.chance(0.2) ? new Map([[5, 2.5], [9, -Infinity]]) : undefined,
    },
  });
}

deviceTest("masks on the host and on the device choose the same tokens", async (device) => {
  const random = new Random("maskless");
  const limits = { maxTokens: OUTPUTS, maxOutputs: OUTPUTS, maxSequences: 1, maxPages: 1 };
  const graph = new StepGraph(device, device.record(limits));
  const matrix = randomMatrix(random, OUTPUTS, VOCABULARY);
  const logits = graph.recorder.gatherOutputs(graph.input(matrix));
  graph.recorder.keep(logits);
  graph.recorder.sample(logits, MAX_TOP);
  const step = await graph.recorder.finish();
  const maskless = new MasklessStep(step, logits, VOCABULARY, MAX_TOP);
  for (let i = 0; i < 60; i++) {
    const outputs = Array.from({ length: OUTPUTS }, (_, row) => randomRequest(random, row));
    const rows = outputs.map(({ row }) => row);
    const zeros = rows.map(() => 0);
    const inputs = {
      tokens: rows,
      positions: zeros,
      sequences: zeros,
      pageTables: [[0]],
      outputs,
    };
    const expected = await step.run(inputs);
    const actual = await maskless.run(inputs);
    for (const [o, result] of actual.entries()) {
      const other = expected[o]!;
      assert(!(result instanceof ForgeError) && !(other instanceof ForgeError));
      if (result.token !== other.token) {
        // The host sums in float64, a GPU in float32: a draw may lie between the two.
        const request = outputs[o]!;
        for (const { token } of [result, other]) {
          const isNear = isNearlyChosen(rowOf(matrix, request.row), request, token);
          assert(isNear, `${Deno.inspect(request.sampling)}: ${result.token}, not ${other.token}`);
        }
        continue;
      }
      assert(Math.abs(result.logprob - other.logprob) < 1e-4);
      assertEquals(result.top, other.top);
    }
  }
  step.release();
});

Deno.test("host sampling: the best tokens decide only where no others could matter", () => {
  const top = [3, 1, 8].map((token, i) => ({ token, logprob: -i }));
  const only = (...tokens: number[]) => {
    const mask = new Uint32Array(1);
    for (const token of tokens) mask[0]! |= 1 << token;
    return mask;
  };
  const choose = (
    sampling: Parameters<typeof fullRequest>[0]["sampling"],
    history: number[] = [],
  ) => chooseFromTop(fullRequest({ history, ...(sampling && { sampling }) }), top);
  assertEquals(choose({ mask: only(1, 8) }), 1);
  assertEquals(choose({ mask: only(2) }), undefined);
  assertEquals(choose({ mask: only(1), bias: new Map([[2, 9]]) }), undefined);
  assertEquals(choose({ mask: only(1), repeatPenalty: 2 }, [1]), undefined);
  assertEquals(choose({ mask: only(1, 8), temperature: 1 }), undefined);
  assertEquals(choose({ mask: only(1, 2), temperature: 1, topK: 2 }), undefined);
  assertEquals(choose({ mask: only(1, 2), temperature: 1, topK: 1 }), 1);
});

Deno.test("host sampling: Philox4x32-10 gives the published numbers", () => {
  const ones = 0xffffffff;
  assertEquals(philox4x32([0, 0, 0, 0], [0, 0]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
  assertEquals(
    philox4x32([ones, ones, ones, ones], [ones, ones]),
    [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
  );
  assertEquals(
    philox4x32([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
    [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
  );
  assertEquals(philoxUniform(0n, 0, 0), (0x6627e8d5 + 0.5) / 2 ** 32);
});
