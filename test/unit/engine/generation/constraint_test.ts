/** Tests how the engine applies a constraint: masks, forced tokens and the end. */
import { assert, assertEquals } from "@std/assert";
import type { OutputRequest } from "../../../../src/backend.ts";
import type { Constraint, ConstraintState } from "../../../../src/engine/request/constraint.ts";
import { TokenMask } from "../../../../src/engine/generation/token_mask.ts";
import { Generation } from "../../../../src/engine/generation/generation.ts";
import type {
  GenerationEnd,
  GenerationRequest,
} from "../../../../src/engine/generation/request.ts";
import { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import { StepPace } from "../../../../src/engine/schedule/ahead.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { load } from "../../../../src/mod.ts";
import {
  FAKE_VOCABULARY,
  fakeRequest,
  FakeRunner,
  noTokenizer,
} from "../../../support/fake_runner.ts";
import { Places } from "../../../support/places.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { EOS, writeRandomLlama } from "../../../support/tiny_llama.ts";

/** A model that always picks the largest allowed token. */
async function generate(constraint: Places, rest: Partial<GenerationRequest> = {}, maxTokens = 20) {
  const runner = new FakeRunner({ nPages: 20 });
  const asked: { position: number; mask: boolean }[] = [];
  runner.onRun = ([chunk]) => {
    const [output] = chunk!.outputs;
    if (output === undefined) return Promise.resolve(undefined);
    const { mask } = output.sampling;
    asked.push({ position: output.position, mask: mask !== undefined });
    return Promise.resolve({ token: largest(output), logprob: -1, top: [] });
  };
  const request = fakeRequest([900, 901], maxTokens, { constraint, ...rest });
  const tokens: number[] = [];
  let end: GenerationEnd | undefined;
  for await (
    const piece of new Generation(noTokenizer, request).run(
      new Scheduler(runner, undefined, new StepPace(1)),
    )
  ) {
    if (piece.token !== undefined) tokens.push(piece.token);
    end = piece.end;
  }
  assertEquals(constraint.open, 0, "a state was not disposed of");
  const chunks = runner.runs.map(([chunk]) => chunk!.tokens.length);
  return { tokens, end: end!.finishReason, asked, chunks };
}

function largest({ sampling }: OutputRequest): number {
  for (let id = FAKE_VOCABULARY - 1; id >= 0; id--) {
    if (sampling.mask === undefined || (sampling.mask[id >> 5]! >> (id & 31) & 1) === 1) return id;
  }
  return -1;
}

Deno.test("a mask restricts the choice of tokens", async () => {
  const { tokens, end, asked } = await generate(new Places([[3, 31], [32, 64], [], [0, 999]]));
  assertEquals([tokens, end], [[31, 64, 999, 999], "constraint_complete"]);
  assertEquals(asked.map(({ mask }) => mask), [true, true, false, true]);
});

Deno.test("forced tokens are not sampled, but they are computed", async () => {
  const places = [[7], [8], [1, 2], [31], [32], [5, 6], [9]];
  const { tokens, end, asked, chunks } = await generate(new Places(places));
  assertEquals([tokens, end], [[7, 8, 2, 31, 32, 6, 9], "constraint_complete"]);
  // Forced tokens run together with the next chunk: two with the prompt, two with the third token.
  assertEquals(asked.map(({ position }) => position), [4, 7]);
  assertEquals(chunks, [4, 3]);
});

Deno.test("log-probabilities are the model's own, also for forced tokens", async () => {
  const { tokens, asked } = await generate(new Places([[7], [1, 2], [8]]), { logprobs: 0 });
  assertEquals([tokens, asked.length], [[7, 2, 8], 3]);
});

Deno.test("a forced token that is banned is an error of the model", async () => {
  const { asked } = await generate(new Places([[7]]), { logitBias: new Map([[7, -Infinity]]) });
  assertEquals(asked.length, 1);
});

Deno.test("a complete text ends with the end token, which is not part of it", async () => {
  const endTokens = new Set([999]);
  const forced = await generate(new Places([[1, 2]], [999]), { endTokens });
  assertEquals([forced.tokens, forced.end, forced.asked.length], [[2], "constraint_complete", 1]);
  const chosen = await generate(new Places([[1, 2], [3, 999]]), { endTokens });
  assertEquals([chosen.tokens, chosen.end], [[2], "stop"]);
});

Deno.test("a constraint can force a whole answer", async () => {
  const { tokens, end, asked } = await generate(new Places([[1], [2], [3]]));
  assertEquals([tokens, end, asked], [[1, 2, 3], "constraint_complete", []]);
});

Deno.test("forced tokens count as generated tokens", async () => {
  const { tokens, end } = await generate(new Places([[1], [2], [3], [4]]), {}, 2);
  assertEquals([tokens, end], [[1, 2], "length"]);
});

Deno.test("an error of a constraint fails only its own request", async () => {
  const broken: Constraint = {
    start: () => ({
      fillMask: () => false,
      accept: () => {
        throw new ForgeError("bad_input", "the grammar is at its end");
      },
      isTerminated: false,
      fork: () => {
        throw new Error("not forked");
      },
      dispose: () => {},
    }),
  };
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  await using model = await load(folder.path, { device: "reference" });
  const options = { raw: true, temperature: 0, maxTokens: 5 };
  const [bad, good] = await Promise.allSettled([
    model.complete("a", { ...options, constraint: broken }),
    model.complete("b", options),
  ]);
  assert(bad.status === "rejected" && bad.reason.message === "the grammar is at its end");
  assert(good.status === "fulfilled");
});

for (const device of ["reference", "cpu"]) {
  Deno.test(`the mask holds with all other options on, on ${device}`, async () => {
    using folder = new TempFolder();
    writeRandomLlama(folder.path);
    await using model = await load(folder.path, { device });
    const places = [[3, 96], [50], [], [4, 5, 6], [40, 41], [2, 95]];
    const requests = [0, 1, 2, 3].map((seed) => ({
      constraint: new Places(places, [EOS]),
      raw: true,
      seed,
      temperature: seed,
      topK: seed,
      repeatPenalty: 1.2,
      logitBias: { 4: -Infinity, 5: 2 },
    }));
    const answers = await Promise.all(requests.map((options) => model.complete("ab", options)));
    for (const { tokenIds, finishReason } of answers) {
      assertEquals([tokenIds.length, finishReason], [places.length, "constraint_complete"]);
      tokenIds.forEach((id, i) => assert(places[i]!.length === 0 || places[i]!.includes(id)));
      assert(tokenIds[3] !== 4);
    }
    for (const [i, options] of requests.entries()) {
      assertEquals((await model.complete("ab", options)).tokenIds, answers[i]!.tokenIds);
    }
  });
}

Deno.test("words that were read before a deferred mask is filled allow every token", () => {
  let masks = 0;
  const state: ConstraintState = {
    isTerminated: false,
    fillMask(words) {
      // All tokens but one, then all.
      words.fill(0xffffffff);
      words[0] = 0xfffffffe;
      return ++masks === 1;
    },
    accept: () => {},
    fork: () => state,
    dispose: () => {},
  };
  const mask = new TokenMask(state, 100);
  mask.update();
  assertEquals([mask.mayAllow(0), mask.mayAllow(1)], [false, true]);
  mask.accept(1);
  mask.update();
  const words = mask.words!;
  mask.fillLater!();
  assertEquals([...words], [0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff]);
});

Deno.test("a mask is filled once for each state, and after a wide one when it is asked for", () => {
  let fills = 0, nAllowed = 65;
  const state: ConstraintState = {
    isTerminated: false,
    fillMask(words) {
      fills++;
      words.fill(0);
      for (let id = 0; id < nAllowed; id++) words[id >> 5]! |= 1 << (id & 31);
      return true;
    },
    accept: () => {},
    fork: () => state,
    dispose: () => {},
  };
  const mask = new TokenMask(state, 100);
  const isDeferred = (of: TokenMask) => of.fillLater !== undefined;
  for (let i = 0; i < 2; i++) mask.update();
  assertEquals([fills, isDeferred(mask)], [1, false]);
  const wide = mask.fork(1);
  wide.update();
  const afterWide = wide.fork(1);
  afterWide.update();
  assertEquals([fills, isDeferred(wide), isDeferred(afterWide)], [1, true, true]);
  nAllowed = 64;
  wide.fillLater!();
  for (let i = 0; i < 2; i++) wide.update();
  assertEquals([fills, isDeferred(wide), wide.mayAllow(64)], [2, false, false]);
  wide.accept(1);
  wide.update();
  assertEquals([fills, isDeferred(wide)], [3, false]);
});
