/**
 * Compares settings that no model of `tiny` has with transformers, by changing the config.json of a
 * similar model.
 */
import { join } from "@std/path";
import { load } from "../../../src/mod.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { assertClose, readJson, type Reference } from "../reference_check.ts";
import { rewritten, TinyVariant } from "../tiny_variant.ts";

interface Variant {
  readonly name: string;
  /** The model of `tiny` with the same weights. */
  readonly family: string;
  /** Keys of config.json to remove; `with` adds or replaces keys. */
  readonly without?: readonly string[];
  readonly with: Readonly<Record<string, unknown>>;
  readonly contextLength?: number;
  /** Every 32nd of the last logits. */
  readonly logits: readonly number[];
}

const ignore = !sharedAvailable("models", "tiny");
const { variants } = readJson<{ variants: readonly Variant[] }>(
  join(import.meta.dirname ?? ".", "variants.json"),
);

for (const { name, family, without = [], with: added, contextLength, logits } of variants) {
  Deno.test({
    name: `${name} agrees with transformers`,
    ignore,
    fn: async () => {
      using variant = new TinyVariant(family, (config) => rewritten(config, without, added));
      await using model = await load(variant.folder, { device: "reference", contextLength });
      const { prompt_ids } = readJson<Reference>(
        sharedPath("models", "tiny", family, "reference.json"),
      );
      const last = await model.logits(Int32Array.from(prompt_ids));
      assertClose(last.filter((_, i) => i % 32 === 0), logits, 1e-5);
    },
  });
}
