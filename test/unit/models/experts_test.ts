/** Settings of mixtures of experts: their numbers, their choice, and the layers with them. */
import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import type { GgufValue } from "../../../src/formats/gguf/types.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { ConfigReader } from "../../../src/models/config/config_reader.ts";
import {
  isDenseLayer,
  qwenExperts,
  qwenSharedExperts,
} from "../../../src/models/parts/qwen_experts.ts";
import { readExpertCounts } from "../../../src/models/parts/moe.ts";
import { routing } from "../../../src/models/parts/shared_expert_moe.ts";
import { fakeCheckpoint, ggufConfig, jsonConfig } from "./fakes.ts";

Deno.test("at least one expert is chosen, and at most all", () => {
  const read = (num_experts: number, num_experts_per_tok: number) =>
    readExpertCounts(jsonConfig({ num_experts, num_experts_per_tok }), ["num_experts", undefined]);
  assertEquals(read(8, 2), { nExperts: 8, topK: 2 });
  assertEquals(read(8, 8), { nExperts: 8, topK: 8 });
  assertThrows(() => read(8, 9), ForgeError, "a whole number from 1 to 8");
  assertThrows(() => read(8, 0), ForgeError, "a whole number from 1 to 8");
});

Deno.test("Qwen's experts have their own width, and a shared one that of the others unless given", () => {
  const json: JsonObject = { num_experts_per_tok: 2, moe_intermediate_size: 96 };
  const gguf: Readonly<Record<string, GgufValue>> = {
    expert_count: 8,
    expert_used_count: 2,
    expert_feed_forward_length: 96,
  };
  const size = "shared_expert_intermediate_size";
  for (const name of ["num_experts", "num_local_experts"]) {
    const config = jsonConfig({ ...json, [name]: 8 });
    for (const normalized of [true, false]) {
      const { nExperts, topK, intermediateSize, normalize } = qwenExperts(config, normalized);
      assertEquals([nExperts, topK, intermediateSize, normalize], [8, 2, 96, normalized]);
    }
    const own = qwenSharedExperts(config);
    assertEquals([own.shared.intermediateSize, own.normalize], [96, true]);
    const given = jsonConfig({ ...json, [name]: 8, [size]: 64, norm_topk_prob: false });
    const { shared, normalize } = qwenSharedExperts(given);
    assertEquals([shared.intermediateSize, normalize], [64, false]);
  }
  // Files have weights of experts that are normalised.
  assertEquals(qwenExperts(ggufConfig(gguf), false).normalize, true);
  assertEquals(qwenSharedExperts(ggufConfig(gguf)).shared.intermediateSize, 96);
  const wide = ggufConfig({ ...gguf, expert_shared_feed_forward_length: 128 });
  assertEquals(qwenSharedExperts(wide).shared.intermediateSize, 128);
});

Deno.test("layers outside of the step and those of a list have a plain MLP", () => {
  const dense = (config: JsonObject) => [0, 1, 2, 3, 4, 5].filter(isDenseLayer(jsonConfig(config)));
  assertEquals(dense({}), []);
  assertEquals(dense({ decoder_sparse_step: 2 }), [0, 2, 4]);
  assertEquals(dense({ decoder_sparse_step: 3, mlp_only_layers: [2, 9] }), [0, 1, 2, 3, 4]);
  assertEquals([0, 1].filter(isDenseLayer(ggufConfig({}))), []);
  assertThrows(() => dense({ mlp_only_layers: 1 }), ForgeError, "a list of layers");
});

Deno.test("experts are chosen by softmax or sigmoid, among groups if there are any", () => {
  const plain = { scores: "softmax", nGroups: 1, topGroups: 1, normalize: false } as const;
  const grouped = { n_group: 4, topk_group: 2 };
  const sigmoid = { ...plain, scores: "sigmoid", normalize: true } as const;
  const json: [JsonObject, ReturnType<typeof routing>][] = [
    [{}, plain],
    [{ norm_topk_prob: true }, plain],
    [grouped, { ...plain, nGroups: 4, topGroups: 2 }],
    [{ ...grouped, topk_method: "greedy" }, plain],
    [{ scoring_func: "sigmoid" }, sigmoid],
    [{ scoring_func: "sigmoid", norm_topk_prob: false, ...grouped }, {
      ...sigmoid,
      nGroups: 4,
      topGroups: 2,
      normalize: false,
    }],
  ];
  for (const [config, expected] of json) {
    assertEquals(routing(jsonConfig(config), "softmax"), expected, JSON.stringify(config));
  }
  assertEquals(routing(jsonConfig({}), "sigmoid"), sigmoid);
  const gguf: [Readonly<Record<string, GgufValue>>, ReturnType<typeof routing>][] = [
    [{}, plain],
    [{ expert_gating_func: 1, expert_weights_norm: true }, { ...plain, normalize: true }],
    [{ expert_gating_func: 2 }, { ...sigmoid, normalize: false }],
    [{ expert_gating_func: 2, expert_weights_norm: true }, sigmoid],
    [{ expert_group_count: 4, expert_group_used_count: 2 }, { ...plain, nGroups: 4, topGroups: 2 }],
  ];
  for (const [settings, expected] of gguf) {
    assertEquals(routing(ggufConfig(settings, "deepseek2"), "softmax"), expected);
  }
  // Files of other architectures lack the key, and their weights are normalised.
  assertEquals(routing(ggufConfig({}, "glm4moe"), "sigmoid"), sigmoid);
  assertEquals(routing(ggufConfig({}, "glm4moe"), "softmax"), plain);
  // Written files name the function by its number in llama.cpp.
  const collected: unknown[] = [];
  const setting = (...noted: unknown[]) => void collected.push(noted);
  const sink = { setting, tensor: () => {}, numbers: () => {} };
  for (const scoring_func of ["softmax", "sigmoid"]) {
    const checkpoint = fakeCheckpoint({ config: { scoring_func, norm_topk_prob: true } });
    routing(new ConfigReader(checkpoint, undefined, sink), "softmax");
  }
  const numbers = collected.filter((noted) => (noted as string[])[0] === "expert_gating_func");
  assertEquals(numbers.map((noted) => (noted as unknown[])[1]), [["u32", 1], ["u32", 2]]);
  const refused = (config: JsonObject, message: string) =>
    assertThrows(() => routing(jsonConfig(config), "softmax"), ForgeError, message);
  refused({ scoring_func: "tanh" }, '"softmax" or "sigmoid"');
  refused({ n_group: 4, topk_group: 5 }, "a whole number from 1 to 4");
});
