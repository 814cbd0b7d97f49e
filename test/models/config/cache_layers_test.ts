/** Caches of models in which only some layers have attention. */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { writeEmptyCheckpoint } from "../../../src/bench/synthetic/checkpoint.ts";
import { planModel } from "../../../src/engine/load/plan_model.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { generated, published } from "../families/generated.ts";
import { readJson } from "../reference_check.ts";

const configs: Readonly<Record<string, JsonObject>> = {
  ...readJson<Record<string, JsonObject>>(
    join(import.meta.dirname ?? ".", "config_sweep_bases.json"),
  ),
  ...Object.fromEntries(
    [generated, published].flatMap(({ models }) =>
      Object.entries(models).map(([name, { config }]) => [name, config] as const)
    ),
  ),
};

const KEYS = /\.(\d+)\..*(k_proj|qkv_proj|kv_a_proj_with_mqa)/;

Deno.test("models with recurrent layers cache keys and values in the other layers only", () => {
  using folder = new TempFolder();
  let checked = 0;
  for (const [name, config] of Object.entries(configs)) {
    const path = folder.at("model.safetensors");
    const checkpoint = writeEmptyCheckpoint(path, { name, config, type: "F32" });
    const { kvLayers, stateLayers } = planModel(checkpoint);
    if (stateLayers.length === 0) continue;
    const attention = Array.from(checkpoint.tensors.keys(), (tensor) => KEYS.exec(tensor)?.[1]);
    const layers = new Set(attention.filter((layer) => layer !== undefined));
    assertEquals(kvLayers.length, layers.size, name);
    checked++;
  }
  assert(checked >= 8, `${checked} models`);
});
