/** Constraints on a part of an answer. */
import { assert, assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import { ScopedConstraint } from "../../../src/constrain/scoped_constraint.ts";
import { ForgeError, type GenerateOptions, load } from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { EOS, writeRandomLlama } from "../../support/tiny_llama.ts";
import type { Constraint, ConstraintState } from "../../../src/engine/request/constraint.ts";
import { allowedIn, END_TOKEN, spec, VOCAB_SIZE, withConstraints } from "./support.ts";

const REGEX = "x{3}y";

Deno.test("scope: free up to a token, then constrained, once or repeatedly", async () => {
  using folder = new TempFolder();
  const { idOf } = writeRandomLlama(folder.path, {
    pieces: ["[[", "]]", "[["],
    contextLength: 2048,
  });
  await using model = await load(folder.path, { device: "cpu" });
  const [open, close] = [idOf("[["), idOf("]]")];
  const answer = async (options: GenerateOptions) =>
    await model.complete("a", { temperature: 1.5, maxTokens: 300, regex: REGEX, ...options });
  let count = 0;
  for (let seed = 0; seed < 8; seed++) {
    const bias = { [open]: 6, [EOS]: 3 };
    // Repeats and is optional.
    const scope = {
      after: open,
      prefixes: ["", " "],
      suffixes: ["]]"],
      isOptional: true,
      repeats: true,
    };
    const repeated = await answer({ seed, constraintScope: scope, logitBias: bias });
    const parts = repeated.text.split("[[").slice(1);
    const isCut = repeated.finishReason === "length";
    for (const part of isCut ? parts.slice(0, -1) : parts) assertMatch(part, /^ ?xxxy\]\]/);
    count += parts.length;
    const none = await answer({
      seed,
      constraintScope: scope,
      logitBias: { [open]: -40, [EOS]: 5 },
    });
    assertEquals([none.finishReason, none.text.includes("[[")], ["stop", false]);

    // Once, or never.
    const scopeOnce = { after: open, isOptional: true };
    const most = await answer({ seed, constraintScope: scopeOnce, logitBias: bias });
    assertMatch(most.text, most.finishReason === "stop" ? /^[^\[]*$/ : /^[^\[]*\[\[xxxy$/);

    // Exactly once.
    const once = await answer({ seed, constraintScope: { after: open }, logitBias: bias });
    assertEquals(once.finishReason, "constraint_complete");
    assertMatch(once.text, /\[\[xxxy$/);
    assert(!once.tokenIds.includes(EOS));

    // From the beginning, or after a part that the opener begins.
    const begun = { after: close, opener: open };
    const wanted = await answer({
      seed,
      constraintScope: begun,
      logitBias: { [open]: 12, [close]: 14 },
    });
    assertMatch(wanted.text, /^\[\[.*\]\]xxxy$/s);
    const unwanted = await answer({ seed, constraintScope: begun, logitBias: { [open]: -40 } });
    assertEquals(unwanted.text, "xxxy");
  }
  assert(count > 8, `${count} parts`);
});

/** A constraint that counts its states which were not freed. */
class Counted implements Constraint {
  states = 0;
  readonly #inner: Constraint;

  constructor(inner: Constraint) {
    this.#inner = inner;
  }

  start(): ConstraintState {
    return this.#count(this.#inner.start());
  }

  #count(state: ConstraintState): ConstraintState {
    this.states++;
    return {
      fillMask: (mask) => state.fillMask(mask),
      accept: (token) => state.accept(token),
      get isTerminated() {
        return state.isTerminated;
      },
      fork: () => this.#count(state.fork()),
      dispose: () => {
        state.dispose();
        this.states--;
      },
    };
  }
}

/** Returns the allowed tokens; `undefined` if all are. */
function allowed(state: ConstraintState): number[] | undefined {
  const mask = new Uint32Array(Math.ceil(VOCAB_SIZE / 32));
  return state.fillMask(mask) ? allowedIn(mask) : undefined;
}

Deno.test("scope: each token has the mask of its place, in forks as well", async () => {
  await withConstraints(async (constraints) => {
    const inner = new Counted(await constraints.compile(spec.regex("xy?"), false));
    const [AFTER, OPENER, FREE, X, Y] = [1, 40, 33, 120, 121];
    const ends = [2, END_TOKEN];
    const all = Array.from({ length: 32 * Math.ceil(VOCAB_SIZE / 32) }, (_, id) => id);
    const unended = all.filter((id) => !ends.includes(id));
    const masks = { free: undefined, unended, x: [X], opened: [OPENER, X], y: [Y, END_TOKEN] };
    type Step = readonly [token: number | undefined, mask: keyof typeof masks | "terminated"];
    const cases: readonly (readonly [object, isFirst: boolean, steps: readonly Step[]])[] = [
      [{}, false, [
        [undefined, "unended"],
        [FREE, "unended"],
        [OPENER, "unended"],
        [AFTER, "x"],
        [X, "y"],
        [Y, "terminated"],
      ]],
      [{ isOptional: true }, false, [
        [undefined, "free"],
        [2, "free"],
        [AFTER, "x"],
        [X, "y"],
        [Y, "terminated"],
      ]],
      [{ isOptional: true, repeats: true }, false, [
        [AFTER, "x"],
        [X, "y"],
        [Y, "free"],
        [FREE, "free"],
        [AFTER, "x"],
        [X, "y"],
      ]],
      [{ opener: OPENER }, true, [
        [undefined, "opened"],
        [OPENER, "unended"],
        [OPENER, "unended"],
        [AFTER, "x"],
      ]],
      [{ opener: OPENER }, true, [[undefined, "opened"], [X, "y"], [Y, "terminated"]]],
      // An answer that is otherwise free may begin with the opener, too.
      [{ opener: OPENER }, false, [[undefined, "unended"], [OPENER, "unended"], [AFTER, "x"]]],
    ];
    for (const [options, isFirst, steps] of cases) {
      const scope = { after: AFTER, ...options };
      let state = new ScopedConstraint(scope, inner, isFirst ? inner : undefined, ends).start();
      for (const [token, mask] of steps) {
        if (token !== undefined) state.accept(token);
        const other = state.fork();
        for (const one of [state, other]) {
          assertEquals(one.isTerminated, mask === "terminated");
          if (mask !== "terminated") assertEquals(allowed(one), masks[mask]);
          if (mask === "unended") {
            for (const end of ends) assertThrows(() => one.accept(end), ForgeError, `${end}`);
          }
        }
        // The fork goes on alone.
        if (mask === "x") state.accept(X);
        state.dispose();
        state = other;
      }
      state.dispose();
      assertEquals(inner.states, 0, "all states are freed");
    }
  });
});

Deno.test("scope: a state that was freed cannot be used", async () => {
  await withConstraints(async (constraints) => {
    const inner = await constraints.compile(spec.regex("ab"), false);
    for (const isOptional of [false, true]) {
      const state = new ScopedConstraint({ after: 1, isOptional }, inner, undefined, [2]).start();
      state.accept(1);
      state.dispose();
      const uses = [
        () => state.fillMask(new Uint32Array(99)),
        () => state.accept(3),
        () => state.isTerminated,
        () => state.fork(),
      ];
      for (const use of uses) assertThrows(use, ForgeError, "was freed");
    }
  });
});

Deno.test("scope: unknown tokens are rejected", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  await using model = await load(folder.path, { device: "cpu" });
  for (
    const [options, message] of [
      [{ constraintScope: { after: 5 } }, "constraintScope is given without a constraint"],
      [
        { regex: "a", constraintScope: { after: -1 } },
        "constraintScope.after is -1; valid ids are 0",
      ],
      [{ regex: "a", constraintScope: { after: 5, opener: 0.5 } }, "constraintScope.opener is 0.5"],
    ] as const
  ) {
    const error = await assertRejects(() => model.complete("a", options), ForgeError, message);
    assertEquals(error.code, "usage");
  }
});
