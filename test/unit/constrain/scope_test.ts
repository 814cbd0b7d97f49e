/** Constraints on a part of an answer. */
import { assert, assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import { ScopedConstraint } from "../../../src/constrain/scoped_constraint.ts";
import { ForgeError, type GenerateOptions, load } from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { EOS, writeRandomLlama } from "../../support/tiny_llama.ts";
import { spec, withConstraints } from "./support.ts";

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
