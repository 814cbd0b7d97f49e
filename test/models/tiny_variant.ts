import { sharedPath } from "../support/shared.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { readJson } from "./reference_check.ts";

/** The settings of a config.json. */
export type Config = Readonly<Record<string, unknown>>;

/** Removes some keys of a config and adds others. */
export function rewritten(config: Config, without: readonly string[], added: Config): Config {
  const kept = Object.entries(config).filter(([key]) => !without.includes(key));
  return { ...Object.fromEntries(kept), ...added };
}

/** A folder with the weights of a model of `tiny` and another config.json. */
export class TinyVariant implements Disposable {
  readonly #folder = new TempFolder();

  constructor(family: string, change: (config: Config) => Config) {
    const config = readJson<Config>(sharedPath("models", "tiny", family, "config.json"));
    this.#folder.write("config.json", change(config));
    for (const name of ["model.safetensors", "tokenizer.json", "tokenizer_config.json"]) {
      Deno.symlinkSync(sharedPath("models", "tiny", family, name), this.#folder.at(name));
    }
  }

  get folder(): string {
    return this.#folder.path;
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}
