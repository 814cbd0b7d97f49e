/** Draws of tokens: the random numbers, the distribution, and the whole chain. */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import type { OutputRequest } from "../../src/backend.ts";
import { deviceTest, isEmulated } from "../support/devices.ts";
import { fullRequest, LogitSampler, sampleOnce } from "../support/logit_sampler.ts";
import type { Matrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import {
  candidates,
  draw,
  isNearlyChosen,
  philox4x32,
  type Share,
  uniformOf,
} from "./plain_sampling.ts";

Deno.test("philox: the published vectors", () => {
  // kat_vectors of Random123 1.14, "philox4x32 10".
  const ones = 0xffffffff;
  assertEquals(
    philox4x32([0, 0, 0, 0], [0, 0]),
    [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
  );
  assertEquals(
    philox4x32([ones, ones, ones, ones], [ones, ones]),
    [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
  );
  assertEquals(
    philox4x32([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
    [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
  );
});

deviceTest("draws are Philox of seed, position and stream", async (device, random) => {
  // 2^16 equal logits: the token is the upper half of the random word.
  const logits: Matrix = { rows: 1, cols: 1 << 16, data: new Float32Array(1 << 16) };
  const seeds = [0n, 1n, 0xffffffffffffffffn, 0x123456789abcdef0n, 1n << 32n, 1n << 63n];
  const requests = Array.from({ length: isEmulated ? 12 : 60 }, (_, i) => ({
    position: i < 6 ? 0 : random.int(0, 2 ** 31 - 1),
    stream: i < 6 ? 0 : random.int(0, 2 ** 31 - 1),
    sampling: { temperature: random.pick([0.5, 1, 2]), seed: seeds[i % seeds.length]! },
  }));
  const sampler = await LogitSampler.record(device, logits, { maxOutputs: 20 });
  for (let begin = 0; begin < requests.length; begin += 20) {
    const some = requests.slice(begin, begin + 20);
    const outputs = await sampler.sample(some);
    assertEquals(
      outputs.map(({ token }) => token),
      some.map((request) => Math.floor(uniformOf(fullRequest(request)) * (1 << 16))),
    );
  }
  sampler.release();
});

deviceTest("a token does not depend on its neighbours", async (device, random) => {
  const logits = Array.from({ length: 500 }, () => random.normal(2));
  const requests = Array.from({ length: 16 }, (_, i) => ({
    position: i,
    history: random.permutation(500).slice(0, random.int(0, 20)),
    sampling: {
      seed: BigInt(i % 3),
      temperature: random.pick([0, 0.7, 1.3]),
      topK: random.pick([0, 40]),
      topP: random.pick([1, 0.9]),
      repeatPenalty: random.pick([1, 1.3]),
      bias: random.chance(0.5) ? new Map([[random.int(0, 499), 3]]) : undefined,
    },
  }));
  const together = await sampleOnce(device, logits, requests);
  // Metal has separate kernels for runs with greedy outputs only, which a single output may be.
  const tolerance = device.kind === "metal" ? 1e-6 : 0;
  for (const [i, request] of requests.entries()) {
    const [alone] = await sampleOnce(device, logits, [request]);
    const { logprob, ...rest } = together[i]!;
    assertEquals({ ...alone!, logprob }, { logprob, ...rest }, `request ${i}`);
    assertAlmostEquals(alone!.logprob, logprob, tolerance);
  }
  const reversed = await sampleOnce(device, logits, requests.toReversed());
  assertEquals(reversed.toReversed(), together);
});

deviceTest("draws follow the distribution", async (device) => {
  // Deterministic: the draws use seed 1, independently of FORGE_TEST_SEED.
  const fixed = new Random("logits", 1);
  const logits = Float32Array.from({ length: 40 }, () => fixed.normal(1.5));
  const settings = [
    { temperature: 1 },
    { temperature: 0.7, topK: 10 },
    { temperature: 1.5, topP: 0.8 },
    { temperature: 1, minP: 0.1 },
  ];
  const perRun = isEmulated ? 50 : 1000, runs = isEmulated ? 1 : 10;
  const matrix = { rows: 1, cols: logits.length, data: logits };
  const sampler = await LogitSampler.record(device, matrix, { maxOutputs: perRun });
  for (const setting of settings) {
    const sampling = { ...setting, seed: 1n };
    const counts = new Map<number, number>();
    for (let run = 0; run < runs; run++) {
      const requests = Array.from({ length: perRun }, (_, i) => ({
        sampling,
        position: run * perRun + i,
      }));
      for (const { token } of await sampler.sample(requests)) {
        counts.set(token, (counts.get(token) ?? 0) + 1);
      }
    }
    const shares = candidates(logits, fullRequest({ sampling }));
    const total = shares.reduce((sum, { share }) => sum + share, 0);
    let statistic = 0, drawn = 0;
    for (const { token, share } of shares) {
      const expected = share / total * perRun * runs;
      drawn += counts.get(token) ?? 0;
      statistic += ((counts.get(token) ?? 0) - expected) ** 2 / expected;
    }
    assertEquals(drawn, perRun * runs, `${JSON.stringify(setting)}: only candidates are drawn`);
    // The statistic has the mean n and the deviation sqrt(2 n).
    const n = shares.length - 1;
    assert(statistic < n + 4 * Math.sqrt(2 * n), `${JSON.stringify(setting)}: ${statistic}, ${n}`);
  }
  sampler.release();
});

deviceTest("the smallest temperature draws among the largest logits", async (device) => {
  // A subnormal number, which a GPU may take for 0.
  const sampling = { temperature: 2 ** -149, seed: 1n };
  const logits = Float32Array.of(1, 4, 2, 4, 3);
  const sampler = await LogitSampler.record(
    device,
    { rows: 1, cols: logits.length, data: logits },
    { maxOutputs: 16 },
  );
  const requests = Array.from({ length: 16 }, (_, position) => ({ sampling, position }));
  const tokens = (await sampler.sample(requests)).map(({ token }) => token);
  assertEquals([...new Set(tokens)].sort(), [1, 3]);
  sampler.release();
});

/**
 * A request with random options. Penalties and biases keep logits in multiples of {@linkcode GRID}
 * exact in float32 and float64, so that the order of two tokens does not depend on rounding.
 */
function randomRequest(random: Random, vocabulary: number): OutputRequest {
  const token = () => random.int(0, vocabulary - 1);
  const allowed = random.chance(0.2)
    ? Uint32Array.from({ length: Math.ceil(vocabulary / 32) }, () => random.u32() | 1)
    : undefined;
  return fullRequest({
    history: Array.from({ length: random.pick([0, 5, 200]) }, token),
    position: random.int(0, 100000),
    stream: random.int(0, 5),
    sampling: {
      repeatPenalty: random.pick([1, 2, 0.5]),
      presencePenalty: random.pick([0, 0.25]),
      frequencyPenalty: random.pick([0, 0.125]),
      bias: random.chance(0.2)
        ? new Map(Array.from({ length: 8 }, () => [token(), random.pick([2, -3, -Infinity])]))
        : undefined,
      mask: allowed,
      temperature: random.pick([0, 0.3, 0.8, 1, 1.7]),
      topK: random.pick([0, 0, 1, 5, 40, 1000]),
      topP: random.pick([1, 1, 0.95, 0.8, 0.3, 0.999]),
      minP: random.pick([0, 0, 0.05, 0.3, 0.001]),
      seed: BigInt(random.u32()) << 32n | BigInt(random.u32()),
    },
  });
}

/** Random logits are multiples of this. */
const GRID = 2 ** -10;

interface ChainCase {
  readonly logits: Float32Array<ArrayBuffer>;
  readonly requests: readonly OutputRequest[];
  /** The tokens that can be drawn, for each request. */
  readonly shares: readonly (readonly Share[])[];
}

let chainCases: readonly ChainCase[] | undefined;

/** Several hundred settings over vocabularies of every size. */
function allChainCases(): readonly ChainCase[] {
  if (chainCases !== undefined) return chainCases;
  const random = new Random("the whole chain");
  const sizes = isEmulated
    ? [[2, 10], [33, 15], [257, 15], [5000, 4], [32001, 1]] as const
    : [[2, 40], [33, 60], [257, 60], [5000, 60], [32001, 20], [151936, 8]] as const;
  chainCases = sizes.flatMap(([vocabulary, count]) =>
    [false, true].map((tied) => {
      const logits = Float32Array.from({ length: vocabulary }, () => {
        const unit = tied ? 0.5 : GRID;
        return unit * Math.round(random.normal(3) / unit);
      });
      const requests = Array.from({ length: count }, () => randomRequest(random, vocabulary));
      return { logits, requests, shares: requests.map((request) => candidates(logits, request)) };
    })
  );
  return chainCases;
}

deviceTest("the whole chain with random settings", async (device) => {
  for (const { logits, requests, shares } of allChainCases()) {
    const matrix = { rows: 1, cols: logits.length, data: logits };
    const sampler = await LogitSampler.record(device, matrix, { maxOutputs: 10 });
    for (const [i, request] of requests.entries()) {
      // Another test covers settings that leave no token.
      if (shares[i]!.length === 0) continue;
      const { token } = (await sampler.sample([request]))[0]!;
      if (token === draw(shares[i]!, uniformOf(request))) continue;
      const { mask: _, ...shown } = request.sampling;
      assert(
        isNearlyChosen(logits, request, token),
        `${logits.length} logits, ${Deno.inspect(shown)}: chose ${token}`,
      );
    }
    sampler.release();
  }
});
