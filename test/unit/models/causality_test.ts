import { assertEquals, assertThrows } from "@std/assert";
import type { Checkpoint } from "../../../src/formats/checkpoint.ts";
import { ForgeError } from "../../../src/errors.ts";
import { ConfigReader } from "../../../src/models/config/config_reader.ts";
import { assertCausal } from "../../../src/models/registry.ts";

function checkpoint(part: Partial<Checkpoint>): Checkpoint {
  return { kind: "safetensors", modelType: "qwen3", path: "m", ...part } as Checkpoint;
}

function rejection(work: () => unknown): string {
  const error = assertThrows(work, ForgeError);
  assertEquals(error.code, "unsupported");
  return error.message;
}

const REASON = ": in this architecture forge computes causal attention only";

Deno.test("a model that is not causal is rejected in either format", () => {
  const check = (part: Partial<Checkpoint>) => () =>
    assertCausal(new ConfigReader(checkpoint(part)));
  for (const config of [{}, { is_causal: true }, { use_bidirectional_attention: false }]) {
    check({ config })();
  }
  // Gemma 4 sets this for image tokens alone.
  check({ config: { use_bidirectional_attention: "vision" } })();
  assertEquals(
    rejection(check({ config: { is_causal: false } })),
    `"m" has is_causal false${REASON}`,
  );
  for (const value of [true, "all", "sideways"]) {
    assertEquals(
      rejection(check({ config: { use_bidirectional_attention: value } })),
      `"m" has use_bidirectional_attention ${value}${REASON}`,
    );
  }
  const gguf = (causal: boolean) =>
    check({ kind: "gguf", metadata: new Map([["qwen3.attention.causal", causal]]) });
  gguf(true)();
  assertEquals(rejection(gguf(false)), `"m" has attention.causal false${REASON}`);
});
