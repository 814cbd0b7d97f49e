import { assertEquals, assertThrows } from "@std/assert";
import { parseSyntheticSpec, SHAPES } from "../../../src/bench/synthetic_shapes.ts";
import { ForgeError } from "../../../src/errors.ts";

Deno.test("synthetic shapes: a shape and a type, in any case; Q4_0 without one", () => {
  const { name, shape, type } = parseSyntheticSpec("Llama-3.2-1B:q8_0");
  assertEquals([name, type], ["llama-3.2-1b:Q8_0", "Q8_0"]);
  assertEquals(shape, SHAPES["llama-3.2-1b"]);
  assertEquals(parseSyntheticSpec("qwen3-0.6b").type, "Q4_0");
});

Deno.test("synthetic shapes: have the parameters of the models they are named after", () => {
  const expected: Record<string, number> = {
    "smollm2-135m": 134515008,
    "llama-3.2-1b": 1235814400,
    "llama-3.1-8b": 8030261248,
    "qwen3-0.6b": 596049920,
    "tinyllama-1.1b": 1100048384,
    "mistral-7b": 7248023552,
  };
  for (const [name, parameters] of Object.entries(expected)) {
    const s = SHAPES[name]!;
    const attention = s.hiddenSize * s.headDim * (2 * s.nHeads + 2 * s.nKvHeads);
    const headNorms = s.architecture === "qwen3" ? 2 * s.headDim : 0;
    const layer = attention + 3 * s.hiddenSize * s.intermediateSize + 2 * s.hiddenSize + headNorms;
    const embeddings = s.vocabSize * s.hiddenSize * (s.tied ? 1 : 2);
    assertEquals(s.nLayers * layer + embeddings + s.hiddenSize, parameters, name);
  }
});

Deno.test("synthetic shapes: refusals name what is valid", () => {
  const refused = (text: string, part: string) => {
    assertEquals(assertThrows(() => parseSyntheticSpec(text), ForgeError, part).code, "usage");
  };
  refused("gpt-5", 'no shape "gpt-5"; valid are smollm2-135m');
  refused("__proto__", "no shape");
  refused("llama-3.2-1b:Q9", 'no type "Q9"; valid for it are F32');
  refused("llama-3.2-1b:", 'no type ""');
  refused("smollm2-135m:Q4_K", "no whole number of Q4_K's blocks; valid for it are F32, F16, BF16");
});
