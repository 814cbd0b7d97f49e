/** Each part of the sampling chain, on cases that can be checked by hand. */
import { assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import type { Backend } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { deviceTest, isEmulated } from "../support/devices.ts";
import { sampleOnce, type SampleRequest } from "../support/logit_sampler.ts";
import { logSoftmax } from "./plain_sampling.ts";

/** Tokens chosen from one row of logits. */
async function tokens(
  device: Backend,
  logits: readonly number[],
  requests: readonly SampleRequest[],
): Promise<number[]> {
  return (await sampleOnce(device, logits, requests)).map(({ token }) => token);
}

/** Draws that find every token of the supports below. */
const DRAWS = isEmulated ? 24 : 300;

/** The distinct tokens of several draws, in order. */
async function support(
  device: Backend,
  logits: readonly number[],
  sampling: SampleRequest["sampling"],
): Promise<number[]> {
  const draws = Array.from({ length: DRAWS }, (_, position) => ({
    position,
    sampling: { temperature: 1, seed: 2n, ...sampling },
  }));
  return [...new Set(await tokens(device, logits, draws))].sort((a, b) => a - b);
}

/** Logits of a distribution. */
const logsOf = (probabilities: readonly number[]) => probabilities.map((p) => Math.log(p));

/** A mask of a vocabulary of `n` that allows the tokens of a list. */
function maskOf(n: number, allowed: readonly number[]): Uint32Array {
  const mask = new Uint32Array(Math.ceil(n / 32));
  for (const token of allowed) mask[token >>> 5]! |= 1 << (token & 31);
  return mask;
}

deviceTest("greedy takes the largest logit, the lowest id on ties", async (device) => {
  const inf = Infinity;
  assertEquals(await tokens(device, [1, 3, 2], [{}]), [1]);
  assertEquals(await tokens(device, [-5], [{}]), [0]);
  assertEquals(await tokens(device, [1, 3, 3, 2, 3], [{}]), [1]);
  assertEquals(await tokens(device, [-0, 0], [{}]), [0]);
  assertEquals(await tokens(device, [-inf, -inf, -3e38, -inf], [{}]), [2]);
  for (const n of [2, 31, 32, 33, 100, 1000]) {
    for (const at of [0, 1, n >> 1, n - 1]) {
      // Equal to the largest from `at` on, so that the first must win over all lanes of a vector.
      const logits = Array.from({ length: n }, (_, i) => i < at ? 1 : 2);
      assertEquals(await tokens(device, logits, [{}]), [at], `${n} tokens, ${at}`);
    }
  }
});

deviceTest("a NaN or +infinity among the logits is an error", async (device) => {
  for (const n of [1, 5, 40, 257]) {
    for (const at of [0, n >> 1, n - 1]) {
      const bad = at % 2 === 0 ? NaN : Infinity;
      const logits = Array.from({ length: n }, (_, i) => i === at ? bad : i);
      for (const request of [{}, { forcedToken: 0 }, { sampling: { temperature: 1, topK: 3 } }]) {
        const error = await assertRejects(
          () => tokens(device, logits, [request]),
          ForgeError,
          "NaN or infinite",
        );
        assertEquals(error.code, "bad_model");
      }
    }
  }
});

deviceTest("top_k keeps exactly k, ties to the lowest id", async (device) => {
  const flat = Array.from({ length: 50 }, () => 0);
  assertEquals(await support(device, flat, { topK: 1 }), [0]);
  assertEquals(await support(device, flat, { topK: 3 }), [0, 1, 2]);
  const tied = [1, 2, 1, 2, 1, 2, 1];
  assertEquals(await support(device, tied, { topK: 2 }), [1, 3]);
  assertEquals(await support(device, tied, { topK: 4 }), [0, 1, 3, 5]);
  assertEquals(await support(device, tied, { topK: 100 }), [0, 1, 2, 3, 4, 5, 6]);
  // More candidates than a selection collects at once, and one whose bias makes it equal.
  const many = Array.from({ length: 600 }, (_, i) => i === 500 ? 2 : -i / 1024);
  const bias = new Map([[599, 2 - many[599]!]]);
  assertEquals(await support(device, many, { topK: 1, bias }), [500]);
});

deviceTest("top_p keeps the token that crosses", async (device) => {
  const logits = logsOf([0.05, 0.5, 0.15, 0.3]);
  const cases = [[0, [1]], [0.49, [1]], [0.51, [1, 3]], [0.79, [1, 3]], [0.81, [1, 2, 3]]] as const;
  for (const [topP, expected] of cases) {
    assertEquals(await support(device, logits, { topP }), [...expected], `top_p ${topP}`);
  }
  assertEquals(await support(device, logits, { topP: 0.96 }), [0, 1, 2, 3]);
  // After top_k, the remaining two have 0.625 and 0.375.
  assertEquals(await support(device, logits, { topK: 2, topP: 0.6 }), [1]);
  assertEquals(await support(device, logits, { topK: 2, topP: 0.65 }), [1, 3]);
});

deviceTest("min_p is relative to the most probable token", async (device) => {
  const logits = logsOf([0.05, 0.5, 0.15, 0.3]);
  assertEquals(await support(device, logits, { minP: 0.61 }), [1]);
  assertEquals(await support(device, logits, { minP: 0.59 }), [1, 3]);
  assertEquals(await support(device, logits, { minP: 0.29 }), [1, 2, 3]);
  assertEquals(await support(device, logits, { minP: 1 }), [1]);
  assertEquals(await support(device, logits, { minP: 0.59, topK: 1 }), [1]);
});

deviceTest("temperature comes before truncation", async (device) => {
  const logits = logsOf([0.4, 0.35, 0.25]);
  assertEquals(await support(device, logits, { topP: 0.5 }), [0, 1]);
  // At 0.1 the shares are 0.4^10 : 0.35^10 : 0.25^10, of which the first has 0.79.
  assertEquals(await support(device, logits, { temperature: 0.1, topP: 0.5 }), [0]);
  assertEquals(await support(device, logits, { temperature: 0.1, minP: 0.3 }), [0]);
  assertEquals(await support(device, logits, { minP: 0.3 }), [0, 1, 2]);
});

deviceTest("temperatures at the ends of float32", async (device) => {
  const logits = [3, 5, 5, -2, -Infinity];
  for (const temperature of [1e-45, 1e-38, 1e-10]) {
    assertEquals(await support(device, logits, { temperature }), [1, 2], `at ${temperature}`);
    assertEquals(await support(device, logits, { temperature, topK: 3, topP: 0.9 }), [1, 2]);
  }
  assertEquals(await support(device, logits, { temperature: 3e38 }), [0, 1, 2, 3]);
  assertEquals(await support(device, logits, { temperature: 3e38, topK: 3 }), [0, 1, 2]);
});

deviceTest("penalties and bias at the ends of float32", async (device) => {
  const logits = [1, 2, 3];
  const settings: [SampleRequest["sampling"], number][] = [
    [{ repeatPenalty: 1e-45 }, 0],
    [{ presencePenalty: -3e38 }, 0],
    [{ frequencyPenalty: -3e38 }, 0],
    [{ bias: new Map([[0, 3e38]]) }, 0],
    [{ bias: new Map([[1, 3e38], [2, -3e38]]) }, 1],
    [{ presencePenalty: 3e38, bias: new Map([[2, -3e38]]) }, 1],
  ];
  for (const [sampling, expected] of settings) {
    for (const chain of [{ temperature: 0 }, { temperature: 1 }, { temperature: 0.1, topP: 0.5 }]) {
      const request = { history: [0, 0], sampling: { ...sampling, ...chain } };
      const [output] = await sampleOnce(device, logits, [request]);
      assertEquals(output!.token, expected, Deno.inspect(request.sampling));
      assertAlmostEquals(output!.logprob, logSoftmax(logits)[expected]!, 1e-6);
    }
  }
});

deviceTest("penalties", async (device) => {
  const seen = (history: readonly number[], sampling: SampleRequest["sampling"]) => ({
    history,
    sampling,
  } as SampleRequest);
  // Positive logits are divided, negative ones multiplied, however often a token was seen.
  assertEquals(
    await tokens(device, [2, 1.2], [
      seen([0, 0, 0], { repeatPenalty: 1.5 }),
      seen([0], { repeatPenalty: 2 }),
      seen([], { repeatPenalty: 2 }),
    ]),
    [0, 1, 0],
  );
  assertEquals(
    await tokens(device, [-1, -1.8], [
      seen([0, 0, 0], { repeatPenalty: 1.5 }),
      seen([0], { repeatPenalty: 2 }),
    ]),
    [0, 1],
  );
  assertEquals(
    await tokens(device, [2, 1.2], [
      seen([0, 0, 0], { presencePenalty: 0.7 }),
      seen([0], { presencePenalty: 0.9 }),
      seen([1], { presencePenalty: -0.9 }),
      seen([0, 0], { frequencyPenalty: 0.35 }),
      seen([0, 0, 0], { frequencyPenalty: 0.35 }),
      seen([0, 1, 0, 1, 0], { frequencyPenalty: 0.35 }),
      seen([0, 0], { frequencyPenalty: 0.35, presencePenalty: 0.2 }),
    ]),
    [0, 1, 1, 0, 1, 0, 1],
  );
});

deviceTest("bias", async (device) => {
  const biased = (...entries: [number, number][]): SampleRequest => ({
    sampling: { bias: new Map(entries) },
  });
  assertEquals(
    await tokens(device, [2, 1.2, 1], [
      biased([1, 0.7]),
      biased([1, 0.9]),
      biased([0, -Infinity]),
      biased([0, -1.5], [1, -1.5]),
      {},
    ]),
    [0, 1, 1, 2, 0],
  );
  assertEquals(
    await support(device, [0, 0, 0], { bias: new Map([[1, -Infinity]]) }),
    [0, 2],
  );
  // A token with nearly all of the probability, among more than a draw sums up at once.
  const flat = Array.from({ length: 5000 }, () => 0);
  assertEquals(await support(device, flat, { bias: new Map([[2000, 30]]) }), [2000]);
  // Penalties come first: -1 doubled is -2, and 1.5 makes it -0.5; the other way round it is 0.25.
  const both = { history: [0], sampling: { repeatPenalty: 2, bias: new Map([[0, 1.5]]) } };
  assertEquals(await tokens(device, [-1, 0], [both]), [1]);
});

deviceTest("masks", async (device) => {
  for (const n of [3, 32, 40, 64, 1000]) {
    const logits = Array.from({ length: n }, (_, i) => i);
    const requests = [[0], [n - 2, 1], [n - 1], [0, 1, 2]]
      .map((allowed) => ({ sampling: { mask: maskOf(n, allowed) } }));
    assertEquals(await tokens(device, logits, requests), [0, n - 2, n - 1, 2], `${n} tokens`);
    const allowed = [0, n >> 1, n - 1];
    const flat = logits.map(() => 0);
    assertEquals(await support(device, flat, { mask: maskOf(n, allowed) }), allowed);
    assertEquals(await support(device, flat, { mask: maskOf(n, allowed), topK: 2 }), [0, n >> 1]);
    // Bits past the vocabulary are nothing.
    const full = new Uint32Array(Math.ceil(n / 32)).fill(0xffffffff);
    assertEquals(await tokens(device, logits, [{ sampling: { mask: full } }]), [n - 1]);
  }
});

deviceTest("nothing left to choose is an error", async (device) => {
  const banned = new Map([[0, -Infinity], [1, -Infinity], [2, -Infinity]]);
  const mask = new Uint32Array(1);
  const settings = [{ mask }, { bias: banned }, {
    mask: maskOf(3, [1]),
    bias: new Map([[1, -Infinity]]),
  }];
  for (const sampling of settings) {
    for (const temperature of [0, 1]) {
      const error = await assertRejects(
        () => tokens(device, [1, 2, 3], [{ sampling: { ...sampling, temperature } }]),
        ForgeError,
        "leave no token",
      );
      assertEquals(error.code, "bad_input");
    }
  }
});

deviceTest("a forced token is chosen despite masks and penalties", async (device) => {
  const logits = [1, 4, 2, -Infinity];
  const expected = logSoftmax(logits);
  const sampling = { mask: maskOf(4, [1]), temperature: 1, topK: 1 };
  const outputs = await sampleOnce(
    device,
    logits,
    [0, 2, 3].map((forcedToken) => ({ forcedToken, sampling })),
  );
  assertEquals(outputs.map(({ token }) => token), [0, 2, 3]);
  assertAlmostEquals(outputs[0]!.logprob, expected[0]!, 1e-6);
  assertAlmostEquals(outputs[1]!.logprob, expected[2]!, 1e-6);
  assertEquals(outputs[2]!.logprob, -Infinity);
});

deviceTest("greedy outputs alone report candidates and take forced tokens", async (device) => {
  const logits = [0.5, 3, 2, -Infinity];
  const [reported] = await sampleOnce(device, logits, [{ nTop: 2 }], 2);
  assertEquals(reported!.top.map(({ token }) => token), [1, 2]);
  const [forced] = await sampleOnce(device, logits, [{ forcedToken: 2 }]);
  assertEquals(forced!.token, 2);
});

deviceTest("log-probabilities are the model's own", async (device) => {
  const logits = [0.5, 3, 3, -Infinity, 1, -2];
  const expected = logSoftmax(logits);
  const requests: SampleRequest[] = [
    { nTop: 6 },
    { nTop: 2, sampling: { temperature: 0.1, topK: 1 } },
    { nTop: 0, sampling: { bias: new Map([[0, 100]]) } },
    { nTop: 3, history: [1, 2], sampling: { repeatPenalty: 100 } },
    { nTop: 1, sampling: { mask: maskOf(6, [5]) } },
    // The others report candidates, too, if the last one reports none.
    { nTop: 0 },
  ];
  const outputs = await sampleOnce(device, logits, requests, 6);
  assertEquals(outputs.map(({ token }) => token), [1, 1, 0, 4, 5, 1]);
  const order = [1, 2, 4, 0, 5, 3];
  outputs.forEach(({ token, logprob, top }, i) => {
    assertAlmostEquals(logprob, expected[token]!, 1e-6);
    assertEquals(top.map(({ token }) => token), order.slice(0, requests[i]!.nTop));
    for (const { token, logprob } of top) {
      if (token === 3) assertEquals(logprob, -Infinity);
      else assertAlmostEquals(logprob, expected[token]!, 1e-6);
    }
  });
});
