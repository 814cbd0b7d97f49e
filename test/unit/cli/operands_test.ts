import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { bundledModel, isModel, namesModel } from "../../../src/cli/model/model_path.ts";
import { textOperands } from "../../../src/cli/input/operands.ts";
import { ForgeError } from "../../../src/errors.ts";
import { join } from "@std/path";
import { ROOT } from "../../support/checkout.ts";

const RUN = { model: undefined, hasText: false, noun: "prompt", takesWords: false } as const;
const EMBED = { ...RUN, noun: "text", takesWords: true } as const;
const DEMO = join(ROOT, "models", "demo");

Deno.test("operands: a model, a text, or both", () => {
  const cases: [string[], Parameters<typeof textOperands>[1], string | undefined, string?][] = [
    [[], RUN, undefined],
    [["-"], RUN, undefined, "-"],
    [["m.gguf", "Hello"], RUN, "m.gguf", "Hello"],
    [["m.gguf", "-"], RUN, "m.gguf", "-"],
    [["Hello there"], RUN, undefined, "Hello there"],
    [["m.gguf"], RUN, "m.gguf"],
    [["org/name:Q4_K_M"], RUN, "org/name:Q4_K_M"],
    [["."], RUN, "."],
    [["Hello"], { ...RUN, model: "m" }, "m", "Hello"],
    [["anything"], { ...RUN, hasText: true }, "anything"],
    [["-"], { ...RUN, model: "m" }, "m", "-"],
    [["Hello"], EMBED, undefined, "Hello"],
    [[DEMO], EMBED, DEMO],
    [[DEMO], { ...EMBED, model: "m" }, "m", DEMO],
  ];
  for (const [operands, options, model, text] of cases) {
    assertEquals(textOperands(operands, options), { model, text }, operands.join(" "));
  }
});

Deno.test("operands: ambiguous words and two models are rejected", () => {
  const refusals: [string[], Parameters<typeof textOperands>[1], string][] = [
    [["llama3"], RUN, "a prompt or a model?"],
    // A missing model, and a word that may be a text or a model of the hub.
    [["missing.gguf"], EMBED, "a text or a model?"],
    [["and/or"], EMBED, "a text or a model?"],
    [["a", "b"], { ...RUN, model: "m" }, "give the model once"],
  ];
  for (const [operands, options, words] of refusals) {
    const error = assertThrows(() => textOperands(operands, options), ForgeError);
    assertStringIncludes(error.message, words);
    assertEquals(error.code, "usage");
  }
});

Deno.test("models: the bundled one is named if it is missing", () => {
  assertEquals(bundledModel(), DEMO);
  const source = join(ROOT, "test", "unit", "cli", "model");
  const error = assertThrows(() => bundledModel(source), ForgeError, "name another with -m MODEL");
  assertEquals(error.code, "not_found");
  assertStringIncludes(error.message, `missing from "${join(ROOT, "test", "models", "demo")}"`);
});

Deno.test("models: paths, names on the hub and texts are told apart", () => {
  for (const name of [DEMO, "./missing", "missing/", "m.gguf", "org/name", "org/name:Q4_K_M"]) {
    assert(namesModel(name), name);
  }
  const isWindows = Deno.build.os === "windows";
  for (const path of ["c:model", "folder\\model"]) assertEquals(namesModel(path), isWindows, path);
  for (const text of ["Hello", "Hello there.", "a ./b/", "is it m.gguf", "a/b/c?"]) {
    assert(!namesModel(text), text);
  }
  assert(isModel(DEMO));
  for (const path of ["missing.gguf", ROOT, join(ROOT, "README.md")]) assert(!isModel(path), path);
});
