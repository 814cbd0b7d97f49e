import { assert, assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path";
import { wantedTensors } from "../../../src/bench/synthetic/checkpoint.ts";
import { CONFIGS } from "../../../src/bench/synthetic/shapes.ts";
import { SHAPES } from "../../../src/bench/synthetic/shapes.ts";
import { parseSyntheticSpec } from "../../../src/bench/synthetic/spec.ts";
import { ForgeError } from "../../../src/errors.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import { knownArchitectures } from "../../../src/models/registry.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { TempFolder } from "../../support/temp_folder.ts";

Deno.test("synthetic models: a shape and a type, in any case; Q4_0 without one", () => {
  const spec = parseSyntheticSpec("Llama-3.2-1B:q8_0");
  assert("shape" in spec);
  assertEquals([spec.name, spec.type], ["llama-3.2-1b:Q8_0", "Q8_0"]);
  assertEquals(spec.shape, SHAPES["llama-3.2-1b"]);
  assertEquals(parseSyntheticSpec("qwen3-0.6b").type, "Q4_0");
});

Deno.test("synthetic models: shapes have the parameters of the models they are named after", () => {
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

Deno.test("synthetic models: configurations have the parameters of the models they are named after", () => {
  const expected: Record<string, number> = {
    "gemma-3-1b": 999885952,
    "qwen3-30b-a3b": 30532122624,
    "mixtral-8x7b": 46702792704,
  };
  assertEquals(Object.keys(CONFIGS).sort(), Object.keys(expected).sort());
  for (const [name, parameters] of Object.entries(expected)) {
    const spec = parseSyntheticSpec(`${name}:Q4_K`);
    assert("config" in spec);
    const sizes = wantedTensors(spec).map(({ shape }) => shape.reduce((a, b) => a * b));
    assertEquals(sizes.reduce((a, b) => a + b), parameters, name);
  }
});

Deno.test({
  name: "synthetic models: the tensors of a config.json are those of the model it belongs to",
  ignore: !sharedAvailable("models", "tiny"),
  fn() {
    let checked = 0;
    for (const { name } of Deno.readDirSync(sharedPath("models", "tiny"))) {
      const folder = sharedPath("models", "tiny", name);
      const real = openCheckpoint(folder);
      if (!knownArchitectures("safetensors").includes(real.modelType)) continue;
      const spec = parseSyntheticSpec(`${join(folder, "config.json")}:F16`);
      assert("config" in spec);
      for (const { name: tensor, shape } of wantedTensors(spec)) {
        const split = /\.(mlp\.(gate|up)_proj|self_attn\.[qkv]_proj)\.weight$/.test(tensor);
        // Phi-3 and GLM-4 store fused matrices; synthetic models have the parts.
        if (split && !real.tensors.has(tensor)) continue;
        assertEquals(real.tensors.get(tensor)?.shape, shape, `${name}: ${tensor}`);
      }
      checked++;
    }
    assert(checked >= 10, `${checked} architectures`);
  },
});

Deno.test("synthetic models: an unusable config.json is rejected at once", () => {
  using folder = new TempFolder();
  const refused = (config: unknown, part: string, type = "") => {
    Deno.writeTextFileSync(folder.at("config.json"), JSON.stringify(config));
    assertThrows(() => parseSyntheticSpec(folder.at("config.json") + type), ForgeError, part);
  };
  refused({}, 'has no "model_type"');
  refused({ model_type: "gpt9" }, 'the architecture "gpt9"');
  refused({ model_type: "llama", hidden_size: null }, "hidden_size is null");
  refused({ model_type: "llama" }, 'unknown type "Q9"', ":Q9");
  assertThrows(() => parseSyntheticSpec(folder.at("none.json")), ForgeError);
});

Deno.test("synthetic models: errors name the valid values", () => {
  const refused = (text: string, part: string) => {
    assertEquals(assertThrows(() => parseSyntheticSpec(text), ForgeError, part).code, "usage");
  };
  refused("gpt-5", 'unknown shape "gpt-5"; valid are smollm2-135m');
  refused("__proto__", "unknown shape");
  refused("llama-3.2-1b:Q9", 'unknown type "Q9"; valid are F32');
  refused("llama-3.2-1b:", 'unknown type ""');
  refused("smollm2-135m:Q4_K", "not whole numbers of blocks of Q4_K; valid are F32, F16, BF16");
});
