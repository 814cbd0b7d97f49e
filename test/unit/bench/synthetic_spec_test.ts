import { assert, assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path";
import { wantedTensors } from "../../../src/bench/synthetic/checkpoint.ts";
import {
  CONFIGS,
  outputType,
  SHAPES,
  SYNTHETIC_TYPES,
} from "../../../src/bench/synthetic/shapes.ts";
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
  // Parameters, context and base of RoPE.
  const expected: Record<string, readonly [number, number, number]> = {
    "smollm2-135m": [134515008, 8192, 1e5],
    "smollm2-360m": [361821120, 8192, 1e5],
    "smollm2-1.7b": [1711376384, 8192, 1.3e5],
    "llama-3.2-1b": [1235814400, 2 ** 17, 5e5],
    "llama-3.2-3b": [3212749824, 2 ** 17, 5e5],
    "llama-3.1-8b": [8030261248, 2 ** 17, 5e5],
    "qwen3-0.6b": [596049920, 40960, 1e6],
    "qwen3-1.7b": [1720574976, 40960, 1e6],
    "qwen3-4b": [4022468096, 40960, 1e6],
    "qwen3-8b": [8190735360, 40960, 1e6],
    "tinyllama-1.1b": [1100048384, 2048, 1e4],
    "mistral-7b": [7248023552, 32768, 1e6],
  };
  assertEquals(Object.keys(SHAPES).sort(), Object.keys(expected).sort());
  for (const [name, [parameters, context, theta]] of Object.entries(expected)) {
    const s = SHAPES[name]!;
    assertEquals([s.contextLength, s.ropeTheta], [context, theta], name);
    if (s.architecture === "llama") assertEquals(s.nHeads * s.headDim, s.hiddenSize, name);
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
  const settings = Object.values(CONFIGS).map((config) => [
    config.num_experts_per_tok ?? config.sliding_window,
    config.max_position_embeddings,
    config.rms_norm_eps,
    config.rope_theta,
  ]);
  assertEquals(settings, [
    [512, 32768, 1e-6, 1e6],
    [8, 40960, 1e-6, 1e6],
    [2, 32768, 1e-5, 1e6],
  ]);
});

Deno.test("synthetic models: output matrices of 4 and 5 bits are Q6_K, or Q8_0 if it does not fit", () => {
  for (const type of SYNTHETIC_TYPES) {
    const isSmall = ["Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0"].includes(type);
    assertEquals(outputType(type, 512), isSmall ? "Q6_K" : type);
    assertEquals(outputType(type, 288), isSmall ? "Q8_0" : type);
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
  for (const name of ["__proto__", "constructor"]) refused(name, "unknown shape");
  refused("llama-3.2-1b:Q9", 'unknown type "Q9"; valid are F32');
  refused("llama-3.2-1b:", 'unknown type ""');
  refused("smollm2-135m:Q4_K", "not whole numbers of blocks of Q4_K; valid are F32, F16, BF16");
});
