/** Tests of the samplers on the host, against their definitions and in fixed cases. */
import { assert, assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import {
  DRY_SEQUENCE_BREAKERS,
  RepetitionPenalty,
} from "../../../../src/engine/generation/repetition.ts";
import { HostSampler } from "../../../../src/engine/generation/host_sampler.ts";
import {
  resolveSampling,
  SAMPLING_DEFAULTS,
  type SamplingOptions,
} from "../../../../src/engine/request/sampling.ts";
import { ForgeError } from "../../../../src/errors.ts";
import type { Tokenizer } from "../../../../src/tokenizer/tokenizer.ts";
import { fakeRequest } from "../../../support/fake_runner.ts";
import {
  choicesOf,
  dryPenalties,
  dynamicTemperature,
  PlainHostSampler,
  topNSigma,
  typical,
  xtc,
} from "../../../support/plain_host_sampler.ts";
import { Random } from "../../../support/random.ts";

/** Options without truncation, penalties and temperature. */
const NEUTRAL = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 1 };

function sampling(options: SamplingOptions) {
  return resolveSampling({ ...NEUTRAL, ...options }, SAMPLING_DEFAULTS);
}

/** A tokenizer whose tokens are these texts. */
function tokenizerOf(texts: readonly string[]): Tokenizer {
  const encoder = new TextEncoder();
  return {
    vocabSize: texts.length,
    idOf: (text: string) => texts.indexOf(text),
    tokenBytes(id: number) {
      assert(id < texts.length, "no such token");
      return encoder.encode(texts[id]);
    },
    decode: (ids: Iterable<number>) => Array.from(ids, (id) => texts[id]).join(""),
  } as unknown as Tokenizer;
}

const NO_TEXTS = tokenizerOf([]);
const LETTERS = tokenizerOf([..."abcdefgh", ", ", "\n", 'x"', "*", "*y", " ", "--", "-"]);

function randomLogits(random: Random, count: number): Float32Array {
  const scale = random.pick([0.3, 1, 4]);
  return Float32Array.from({ length: count }, () => scale * random.normal());
}

/** Draws at many positions of texts without tokens that matter, and returns the chosen tokens. */
function chosen(logits: Float32Array, options: SamplingOptions, count = 300): Set<number> {
  const sampler = new HostSampler(fakeRequest([], 1, { sampling: sampling(options) }), NO_TEXTS);
  const best = { token: 0, logprob: 0, top: [] };
  return new Set(
    Array.from(
      { length: count },
      (_, i) => sampler.choose(logits, best, { tokens: new Int32Array(i), mask: undefined }).token,
    ),
  );
}

Deno.test("the host chooses as the definitions of its samplers do", () => {
  const random = new Random("host sampler");
  for (let round = 0; round < 400; round++) {
    const vocabulary = random.pick([2, 40, 700, 1500]);
    const maybe = (value: number, otherwise: number) => random.chance(0.4) ? value : otherwise;
    const request = fakeRequest([], 1, {
      sampling: sampling({
        temperature: random.pick([0, 0.7, 1, 1.6]),
        topK: random.pick([0, 1, 5, 40, 1000]),
        topP: maybe(random.uniform(), 1),
        minP: maybe(random.uniform(), 0),
        repeatPenalty: maybe(1.3, 1),
        presencePenalty: maybe(0.5, 0),
        frequencyPenalty: maybe(0.2, 0),
        repeatLastN: random.pick([-1, 3, 0]),
        dryMultiplier: maybe(2 * random.uniform(), 0),
        dryBase: random.pick([1.2, 1.75]),
        dryAllowedLength: random.int(0, 3),
        dryPenaltyLastN: random.pick([-1, 0, 20]),
        topNSigma: maybe(3 * random.uniform(), 0),
        typicalP: maybe(random.uniform(), 1),
        xtcProbability: maybe(random.uniform(), 0),
        xtcThreshold: 0.6 * random.uniform(),
        dynatempRange: maybe(random.uniform(), 0),
        dynatempExponent: random.pick([0.5, 1, 2]),
        mirostat: random.pick([0, 0, 0, 2]),
        mirostatTau: random.pick([0.5, 3, 8]),
        mirostatEta: random.pick([0.1, 0.7]),
        seed: random.pick([7, 2 ** 53 - 1]),
      }),
      logitBias: random.chance(0.3) ? new Map([[0, 2], [1, -Infinity]]) : undefined,
      dryBreakers: random.pick([[], DRY_SEQUENCE_BREAKERS, ["--", "ab", "bca"]]),
      stream: random.int(0, 3),
    });
    const host = new HostSampler(request, LETTERS);
    const plain = new PlainHostSampler(request, LETTERS);
    const tokens = Array.from({ length: random.int(1, 60) }, () => random.int(0, 15))
      .filter((id) => id < vocabulary);
    for (let draw = 0; draw < 4; draw++) {
      const logits = randomLogits(random, vocabulary);
      const mask = random.chance(0.3)
        ? Uint32Array.from(
          { length: Math.ceil(vocabulary / 32) },
          () => random.chance(0.2) ? 0xffffffff : random.int(1, 2 ** 31),
        )
        : undefined;
      if (mask !== undefined) mask[0]! |= 1;
      const best = { token: 0, logprob: -1, top: [] };
      const place = { tokens: Int32Array.from(tokens), mask };
      const actual = host.choose(logits, best, place);
      assertEquals(
        actual,
        plain.choose(logits, best, tokens, mask),
        `round ${round}, draw ${draw}: ${JSON.stringify(request.sampling)}`,
      );
      tokens.push(actual.token);
    }
  }
});

Deno.test("DRY penalises the tokens that continue a repetition, by its length", () => {
  const check = (
    text: string,
    expected: Readonly<Record<string, number>>,
    options = {},
    dryBreakers = DRY_SEQUENCE_BREAKERS,
  ) => {
    const texts = [...'abcd\n*:"'];
    const tokens = [...text].map((character) => texts.indexOf(character));
    const s = sampling({ dryMultiplier: 1, dryBase: 2, ...options });
    const request = fakeRequest([], 1, { sampling: s, dryBreakers });
    const host = new HostSampler(
      { ...request, sampling: { ...s, temperature: 0 } },
      tokenizerOf(texts),
    );
    // The chosen token shows each penalty: it loses to a token whose logit is just less low.
    const penalties = texts.map((_, token) => {
      const other = texts.indexOf(":");
      const isChosen = (bias: number) => {
        const logits = new Float32Array(texts.length).fill(-1000);
        logits[token] = 0;
        logits[other] = -bias;
        const best = { token, logprob: 0, top: [] };
        const place = { tokens: Int32Array.from(tokens), mask: undefined };
        return host.choose(logits, best, place).token === token;
      };
      return [0, 1, 2, 4, 8, 16].find((bias) => isChosen(bias + 0.5));
    });
    const found = Object.fromEntries(
      penalties.flatMap((penalty, token) => penalty === 0 ? [] : [[texts[token]!, penalty]]),
    );
    assertEquals(found, expected, text);
    const plain = dryPenalties(tokens, s, dryBreakers, (token) => texts[token]!);
    assertEquals(Object.fromEntries([...plain].map(([t, p]) => [texts[t]!, p])), expected);
  };
  check("abcdab", { c: 1 });
  check("abcdabc", { d: 2 });
  check("abcdabca", {});
  check("abcdabcdab", { c: 16 });
  // The longest repetition counts, and every token after one.
  check("abcabdab", { c: 1, d: 1 });
  check("aaaa", { a: 2 });
  // A breaker ends it.
  check("a\nbca\nb", {});
  check("ab\nabdc\nab", { "\n": 1, d: 1 });
  // So does one of several tokens, whole.
  check("a*:bca*:b", {}, {}, ["*:"]);
  check('a*:"bca*:"b', {}, {}, ['*:"']);
  check("a*:bca*:b", { c: 4 }, {}, ["::", ":*"]);
  check("abcdab", {}, { dryPenaltyLastN: 5 });
  check("abcdab", { c: 1 }, { dryPenaltyLastN: 6 });
  check("abcdab", {}, { dryAllowedLength: 3 });
  check("abcdab", { c: 2 }, { dryAllowedLength: 1 });
  check("abcdab", {}, { dryMultiplier: 0 });
});

Deno.test("DRY's penalties are those of its definition in random texts", () => {
  const random = new Random("DRY");
  // The last token has no text: vocabularies of models are padded.
  const all = Array.from({ length: LETTERS.vocabSize + 1 }, (_, id) => id);
  const few = ["a", "b", "c", "*y"].map((text) => LETTERS.idOf(text)!);
  for (let round = 0; round < 4000; round++) {
    const s = sampling({
      dryMultiplier: random.pick([0.5, 2]),
      dryBase: random.pick([1.5, 2]),
      dryAllowedLength: random.int(0, 3),
      dryPenaltyLastN: random.pick([-1, 1, 4, 9]),
    });
    const breakers = random.pick([[], ["\n", "*"], ["--", "bca"], ["ca", "caa", "yab"]]);
    const used = random.pick([all, few, few]);
    const tokens = Array.from({ length: random.int(1, 24) }, () => random.pick(used));
    const logits = new Float32Array(all.length);
    new RepetitionPenalty(s, breakers, LETTERS).apply(logits, Int32Array.from(tokens));
    const textOf = (id: number) => id < LETTERS.vocabSize ? LETTERS.decode([id]) : "";
    const expected = new Float32Array(all.length);
    for (const [id, penalty] of dryPenalties(tokens, s, breakers, textOf)) expected[id] = -penalty;
    assertEquals(logits, expected, JSON.stringify({ tokens, breakers, s }));
  }
});

Deno.test("DRY's penalty stays finite and fast in a text of one token", () => {
  const request = fakeRequest([], 1, {
    sampling: sampling({ dryMultiplier: 1, temperature: 0 }),
    dryBreakers: ["\n"],
  });
  const host = new HostSampler(request, tokenizerOf(["a", "b"]));
  const place = { tokens: new Int32Array(100_000), mask: undefined };
  const result = host.choose(Float32Array.of(5, -5), { token: 0, logprob: 0, top: [] }, place);
  assertEquals(result.token, 1);
  const logits = new Float32Array(2);
  new RepetitionPenalty(request.sampling, [], LETTERS).apply(logits, place.tokens);
  assert(logits[0]! < -1e38 && Number.isFinite(logits[0]), `${logits[0]}`);
});

Deno.test("top-n-sigma keeps the logits near the largest", () => {
  // The mean is 0 and the deviation 2.
  const logits = Float32Array.of(3, 1, -1, -3, 0, 0, 2.8284271, -2.8284271);
  const deviation = Math.sqrt((9 + 1 + 1 + 9 + 8 + 8) / 8);
  assertAlmostEquals(deviation, 2.1213, 1e-4);
  assertEquals(chosen(logits, { topNSigma: 0.05 }), new Set([0]));
  assertEquals(chosen(logits, { topNSigma: 0.5 }), new Set([0, 6]));
  assertEquals(chosen(logits, { topNSigma: 1 }), new Set([0, 1, 6]));
  assertEquals(chosen(logits, { topNSigma: 1, temperature: 50 }).size, 3);
  assertEquals(topNSigma(choicesOf(logits), 1).map(({ token }) => token), [0, 6, 1]);
});

Deno.test("typical sampling may drop the most probable token", () => {
  const logits = Float32Array.from([0.5, 0.2, 0.15, 0.1, 0.05], Math.log);
  // The entropy is 1.333 nats: surprises of 0.69, 1.61, 1.90, 2.30 and 3.00.
  assertEquals(chosen(logits, { typicalP: 0.1 }), new Set([1]));
  assertEquals(chosen(logits, { typicalP: 0.3 }), new Set([1, 2]));
  assertEquals(chosen(logits, { typicalP: 0.5 }), new Set([0, 1, 2]));
  assertEquals(chosen(logits, { typicalP: 0.999 }).size, 5);
  // As in llama.cpp, equal tokens are taken until they exceed the probability.
  assertEquals(chosen(Float32Array.of(1, 1, 1, 1), { typicalP: 0.5 }).size, 3);
  assertEquals(typical(choicesOf(logits), 0.3).map(({ token }) => token), [1, 2]);
});

Deno.test("XTC keeps the last of the tokens above its threshold, as often as it should", () => {
  const logits = Float32Array.from([0.1, 0.4, 0.2, 0.3], Math.log);
  assertEquals(chosen(logits, { xtcProbability: 1, xtcThreshold: 0.15 }), new Set([0, 2]));
  assertEquals(chosen(logits, { xtcProbability: 1, xtcThreshold: 0.35 }).size, 4);
  assertEquals(chosen(logits, { xtcProbability: 1, xtcThreshold: 0.5 }).size, 4);
  // A token that just reaches the threshold is above it.
  const equal = new Float32Array(4);
  assertEquals(chosen(equal, { xtcProbability: 1, xtcThreshold: 0.25 }), new Set([3]));
  assertEquals(xtc(choicesOf(logits), 0.15).map(({ token }) => token), [2, 0]);
  const half = new HostSampler(
    fakeRequest([], 1, { sampling: sampling({ xtcProbability: 0.5, xtcThreshold: 0.15 }) }),
    NO_TEXTS,
  );
  const best = { token: 0, logprob: 0, top: [] };
  const count = 4000;
  let excluded = 0;
  for (let i = 0; i < count; i++) {
    const place = { tokens: new Int32Array(i), mask: undefined };
    if ([1, 3].includes(half.choose(logits, best, place).token)) excluded++;
  }
  // Half of the draws exclude tokens of probability 0.7; five standard deviations.
  assert(Math.abs(excluded / count - 0.35) < 5 * Math.sqrt(0.35 * 0.65 / count), `${excluded}`);
});

Deno.test("dynamic temperature follows the entropy", () => {
  const s = sampling({ temperature: 1, dynatempRange: 0.5 });
  assertAlmostEquals(dynamicTemperature(choicesOf([1, 1, 1, 1]), s), 1.5);
  assertAlmostEquals(dynamicTemperature(choicesOf([90, 0, 0, 0]), s), 0.5);
  const wide = sampling({ temperature: 0.2, dynatempRange: 0.5, dynatempExponent: 2 });
  assertAlmostEquals(dynamicTemperature(choicesOf([Math.log(3), 0]), wide), 0.7 * 0.8112781 ** 2);
  // Without uncertainty the temperature reaches 0.
  assertEquals(
    chosen(Float32Array.of(1000, 0, 0), { temperature: 0.5, dynatempRange: 0.5 }, 50),
    new Set([0]),
  );
});

Deno.test("Mirostat reaches its target of surprise", () => {
  const random = new Random("mirostat");
  const rows = Array.from({ length: 20 }, () => random.normals(1000));
  for (const tau of [1, 3, 5]) {
    const host = new HostSampler(
      fakeRequest([], 1, { sampling: sampling({ mirostat: 2, mirostatTau: tau, topK: 1 }) }),
      NO_TEXTS,
    );
    let limit = 2 * tau, bits = 0;
    for (let i = 0; i < 600; i++) {
      const logits = random.pick(rows);
      const place = { tokens: new Int32Array(i), mask: undefined };
      const { token } = host.choose(logits, { token: 0, logprob: 0, top: [] }, place);
      const kept = choicesOf(logits).filter(({ p }, rank) => rank === 0 || -Math.log2(p) <= limit);
      const total = kept.reduce((sum, { p }) => sum + p, 0);
      const surprise = -Math.log2(kept.find((choice) => choice.token === token)!.p / total);
      limit -= 0.1 * (surprise - tau);
      if (i >= 100) bits += surprise / 500;
    }
    assertAlmostEquals(bits, tau, 0.25);
  }
});

Deno.test("a constraint that leaves no token is an error of its output", () => {
  const request = fakeRequest([], 1, { sampling: sampling({ typicalP: 0.5 }) });
  const error = assertThrows(
    () =>
      new HostSampler(request, NO_TEXTS).choose(
        Float32Array.of(1, 2),
        { token: 0, logprob: 0, top: [] },
        { tokens: new Int32Array(1), mask: Uint32Array.of(0) },
      ),
    ForgeError,
  );
  assertEquals(error.message, "the mask and the logit bias leave no token to choose");
});
