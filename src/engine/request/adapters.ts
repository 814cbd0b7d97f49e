/** The adapters of a model, and the choice of a request among them. */
import { createHash } from "node:crypto";
import { basename } from "node:path";
import { ForgeError } from "../../errors.ts";
import { type Adapter, openAdapter } from "../../formats/adapter.ts";
import { quote, quoteList, show } from "../../formats/quote.ts";
import { sampleTensors } from "../cache/prompt_cache_key.ts";
import type { SequenceAdapters } from "../token_list.ts";
import {
  checkArgument,
  checkOptions,
  NUMBER,
  type OptionChecks,
  STRING,
} from "../../formats/arguments.ts";

/** Low-rank adapter (LoRA) to load with a model. */
export interface AdapterOption {
  /** A folder of peft, or a GGUF file. */
  readonly path: string;
  /** Multiplies the adapter's own scale. @default 1 */
  readonly scale?: number | undefined;
  /** Name by which requests choose it. @default the name of the folder or file */
  readonly name?: string | undefined;
}

/**
 * Adapters of a request: the name of one, or a list with the scale of each, which takes the place
 * of the scale that the adapter was loaded with. An empty list is the model without adapters.
 */
export type AdapterChoice = string | readonly AdapterScale[];

/** Adapter of a request. */
export interface AdapterScale {
  /** Its name, or its number in the order of loading, from 0. */
  readonly name: string | number;
  /** Factor of its corrections. @default the scale that it was loaded with */
  readonly scale?: number | undefined;
}

/** A loaded adapter. */
export interface AdapterInfo {
  /** Name by which requests choose it. */
  readonly name: string;
  /** The folder or file it was opened from. */
  readonly path: string;
  /** Scale unless a request gives another. */
  readonly scale: number;
}

const MAX_ADAPTERS = 256;

const ADAPTER_OPTIONS: OptionChecks<AdapterOption> = { path: STRING, scale: NUMBER, name: STRING };

/** The adapters of a model. */
export class Adapters {
  /** The adapters, in the order in which they were given. */
  readonly infos: readonly AdapterInfo[];
  readonly files: readonly Adapter[];
  #identities: string[] | undefined;

  /** @throws {ForgeError} as {@linkcode openAdapter}; `usage` for an invalid option */
  constructor(options: readonly AdapterOption[] = []) {
    if (options.length > MAX_ADAPTERS) {
      throw new ForgeError(
        "usage",
        `lora has ${options.length} adapters; valid is up to ${MAX_ADAPTERS}`,
      );
    }
    const infos = options.map((option): AdapterInfo => {
      checkOptions("an adapter", option, ADAPTER_OPTIONS);
      const { path, scale = 1 } = option;
      checkArgument("the path of an adapter", path, STRING);
      const name = adapterName(option);
      if (name === "") throw new ForgeError("usage", `the adapter ${quote(path)} has no name`);
      return { name, path, scale: checkScale(name, scale) };
    });
    const twice = infos.find(({ name }, i) => infos.findIndex((other) => other.name === name) < i);
    if (twice !== undefined) {
      throw new ForgeError(
        "usage",
        `two adapters are named ${quote(twice.name)}; give one a name of its own`,
      );
    }
    this.infos = infos;
    this.files = infos.map(({ path }) => openAdapter(path));
  }

  /**
   * Returns the adapters of a request.
   *
   * @param choice all adapters if missing
   * @returns `undefined` for the model without adapters
   * @throws {ForgeError} `bad_input` for an unknown adapter; `usage` for an invalid choice
   */
  resolve(choice: AdapterChoice | undefined): SequenceAdapters | undefined {
    const scales = new Float32Array(this.infos.length);
    const seen = new Set<number>();
    const chosen = choice === undefined
      ? this.infos
      : typeof choice === "string"
      ? [{ name: choice }]
      : choice;
    for (const { name, scale } of chosen) {
      const index = this.infos.findIndex((info, i) => info.name === name || i === name);
      if (index < 0) throw this.#unknown(name);
      if (seen.has(index)) {
        throw new ForgeError(
          "usage",
          `lora has the adapter ${quote(this.infos[index]!.name)} twice`,
        );
      }
      seen.add(index);
      scales[index] = checkScale(String(name), scale ?? this.infos[index]!.scale);
    }
    return scales.some((scale) => scale !== 0) ? { scales, key: scales.join() } : undefined;
  }

  /** Returns what keys and values computed with some adapters depend on. */
  identity({ scales }: SequenceAdapters): string {
    this.#identities ??= this.files.map((adapter) => {
      const hash = createHash("sha256");
      for (const { target, a, b, factor } of adapter.pairs) {
        hash.update(JSON.stringify([target, factor]));
        sampleTensors([a, b], hash);
      }
      return hash.digest("hex");
    });
    const used = this.#identities.map((identity, i) => `${identity}:${scales[i]}`);
    return used.filter((_, i) => scales[i] !== 0).sort().join();
  }

  #unknown(name: string | number): ForgeError {
    const known = this.infos.length === 0
      ? "the model was loaded without adapters"
      : `loaded are ${quoteList(this.infos.map(({ name }) => name))}`;
    return new ForgeError("bad_input", `there is no adapter ${show(name)}; ${known}`);
  }
}

/** Returns the name by which requests choose an adapter. */
export function adapterName({ path, name }: AdapterOption): string {
  return name ?? basename(path).replace(/\.gguf$/, "");
}

function checkScale(name: string, scale: number): number {
  // Scales become float32.
  if (typeof scale === "number" && Number.isFinite(Math.fround(scale))) return scale;
  throw new ForgeError(
    "usage",
    `the scale of the adapter ${quote(name)} is ${show(scale)}; valid is a number`,
  );
}
