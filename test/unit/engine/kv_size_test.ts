import { assertEquals } from "@std/assert";
import { cacheTokens } from "../../../src/engine/cache/memory.ts";

const layer = { nKvHeads: 2, kHeadDim: 16, vHeadDim: 16 };
/** 512 bytes a token. */
const needs = {
  contextLength: 1000,
  maxSequences: 4,
  kvType: "F32",
  layers: [layer, layer],
} as const;
const PER_TOKEN = 512;

Deno.test("the cache holds what all sequences can fill, in whole pages", () => {
  assertEquals(cacheTokens(needs, 2 ** 40), 4 * 1024);
  assertEquals(cacheTokens({ ...needs, contextLength: 10 }, 2 ** 40), 4 * 64);
  assertEquals(cacheTokens({ ...needs, maxSequences: 1 }, 2 ** 40), 1024);
});

Deno.test("the cache takes an eighth of the memory, but holds one context in any case", () => {
  assertEquals(cacheTokens(needs, 8 * 2000 * PER_TOKEN), 2000);
  assertEquals(cacheTokens({ ...needs, kvType: "F16" }, 8 * 2000 * PER_TOKEN), 4000);
  assertEquals(cacheTokens(needs, 8 * 100 * PER_TOKEN), 1024);
});

Deno.test("values that lie in keys take nothing", () => {
  const latent = { nKvHeads: 1, kHeadDim: 64, vHeadDim: 48, valuesInKeys: true };
  const layers = [latent, latent];
  assertEquals(cacheTokens({ ...needs, layers }, 8 * 2000 * PER_TOKEN), 2000);
});
