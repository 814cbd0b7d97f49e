import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { runOperands } from "../../../src/cli/run_operands.ts";
import { ForgeError } from "../../../src/errors.ts";

const NONE = { model: undefined, hasPrompt: false };

Deno.test("run: arguments are a model, a prompt, or both", () => {
  const cases: [string[], Parameters<typeof runOperands>[1], string | undefined, string?][] = [
    [[], NONE, undefined],
    [["-"], NONE, undefined, "-"],
    [["m.gguf", "Hello"], NONE, "m.gguf", "Hello"],
    [["m.gguf", "-"], NONE, "m.gguf", "-"],
    [["Hello there"], NONE, undefined, "Hello there"],
    [["m.gguf"], NONE, "m.gguf"],
    [["org/name:Q4_K_M"], NONE, "org/name:Q4_K_M"],
    [["."], NONE, "."],
    [["Hello"], { model: "m", hasPrompt: false }, "m", "Hello"],
    [["anything"], { model: undefined, hasPrompt: true }, "anything"],
    [["-"], { model: "m", hasPrompt: false }, "m", "-"],
  ];
  for (const [operands, options, model, prompt] of cases) {
    assertEquals(runOperands(operands, options), { model, prompt }, operands.join(" "));
  }
});

Deno.test("run: what could be either is asked about, what is given twice refused", () => {
  const refusals: [string[], Parameters<typeof runOperands>[1], string][] = [
    [["llama3"], NONE, "a prompt or a model?"],
    [["a", "b"], { model: "m", hasPrompt: false }, "give the model once"],
  ];
  for (const [operands, options, words] of refusals) {
    const error = assertThrows(() => runOperands(operands, options), ForgeError);
    assertStringIncludes(error.message, words);
    assertEquals(error.code, "usage");
  }
});
