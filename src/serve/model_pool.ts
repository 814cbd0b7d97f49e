/** The models that a server offers: loaded when a request needs them, unloaded to make room. */
import { basename } from "node:path";
import type { DeviceMemory } from "../backend.ts";
import type { Model } from "../engine/model.ts";
import {
  checkArgument,
  checkOptions,
  FUNCTION,
  NUMBER,
  type OptionCheck,
  type OptionChecks,
  STRINGS,
} from "../formats/arguments.ts";
import type { GenerateOptions } from "../engine/request/options.ts";
import { ForgeError } from "../errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import { reasonOf } from "../formats/file.ts";
import type { JsonValue } from "../formats/json.ts";
import { quote, quoteList } from "../formats/quote.ts";
import { invalid, isGiven } from "../requests/values.ts";
import { EnforceableTools } from "./chat/tools.ts";
import { HttpError } from "./http/http_error.ts";

/** A model that can be loaded. */
export interface ModelSource {
  /** Names for clients; responses use the first. */
  readonly names: readonly [string, ...string[]];
  /** Names of its low-rank adapters; `NAME:ADAPTER` is the model with one of them. @default none */
  readonly adapters?: readonly string[];
  /** Reads the headers of the model's files. */
  readonly checkpoint: () => Checkpoint;
  /** Loads the model. It may be loaded again after it was closed. */
  readonly load: () => Promise<Model>;
  /** Returns the fewest bytes of the device that loading takes. */
  readonly leastMemory: () => number;
  /** Returns the options of generations where a request sets none. */
  readonly defaults?: (model: Model) => GenerateOptions;
}

/** Options of {@linkcode offerModels}. */
export interface PoolOptions {
  /** Most models in memory at a time. @default no limit but the memory */
  readonly maxLoaded?: number;
  /** Time for which an unused model stays loaded, in milliseconds. @default Infinity */
  readonly keepAliveMs?: number;
  /** Receives a line about each model that is loaded or unloaded. */
  readonly onChange?: (line: string) => void;
}

const POOL_OPTIONS: OptionChecks<PoolOptions> = {
  maxLoaded: NUMBER,
  keepAliveMs: NUMBER,
  onChange: FUNCTION,
};

const SOURCES: OptionCheck = { accepts: Array.isArray, valid: "an array of models to offer" };

/** Check of a model's names. */
const NAMES: OptionCheck = {
  accepts: (value) => STRINGS.accepts(value) && (value as readonly string[]).length > 0,
  valid: "an array of at least one name",
};

const REQUIRED = { names: NAMES, checkpoint: FUNCTION, load: FUNCTION, leastMemory: FUNCTION };

const SOURCE_OPTIONS: OptionChecks<ModelSource> = {
  ...REQUIRED,
  adapters: STRINGS,
  defaults: FUNCTION,
};

function checkSource(source: ModelSource): void {
  checkOptions("a model to offer", source, SOURCE_OPTIONS);
  for (const name of Object.keys(REQUIRED) as (keyof typeof REQUIRED)[]) {
    checkArgument(name, source[name], REQUIRED[name]);
  }
}

/** Models for `createHandler`. Disposal closes those that are loaded. */
export interface OfferedModels extends AsyncDisposable {
  /** Names of all models. */
  readonly names: readonly string[];
}

/**
 * Offers several models, which are loaded when a request needs them and unloaded to make room.
 *
 * @param sources the first is used by requests that name none
 * @throws {ForgeError} `usage` without a source, for an invalid one, or if two have the same name
 */
export function offerModels(
  sources: readonly ModelSource[],
  options: PoolOptions = {},
): OfferedModels {
  checkArgument("sources", sources, SOURCES);
  sources.forEach(checkSource);
  checkOptions("offerModels", options, POOL_OPTIONS);
  return new ModelPool(sources, options);
}

/** An error about a model that is not on offer, with status 404. */
export class UnknownModel extends HttpError {
  /** The name that the request has. */
  readonly model: string;

  constructor(model: string, valid: readonly string[]) {
    super(404, `the model ${quote(model)} is not served here; valid is ${quoteList(valid)}`, {
      param: "model",
      code: "model_not_found",
    });
    this.model = model;
  }
}

/** Longest delay of a timer. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** A model on offer, loaded or not. */
export class OfferedModel {
  readonly source: ModelSource;
  readonly enforceable: EnforceableTools = new EnforceableTools();
  /** Set while the model is loaded. */
  model: Model | undefined;
  /** Time at which the model is unloaded if it stays unused, in milliseconds since 1970. */
  expiresAt = Infinity;
  /** Requests that use the model or wait for it. */
  users = 0;
  /** Value of a clock at the last use. */
  lastUse = 0;
  keepAliveMs = Infinity;
  timer: ReturnType<typeof setTimeout> | undefined;
  loading: Promise<Model> | undefined;
  /** Pending while the model waits for its users and is then unloaded. New users wait for it. */
  unloading: Promise<void> | undefined;
  /** Called when the last user leaves a model that waits to be unloaded. */
  onUnused = () => {};

  constructor(source: ModelSource) {
    this.source = source;
  }

  get name(): string {
    return this.source.names[0];
  }

  /** All names of the model, and those with one of its adapters. */
  get names(): string[] {
    const { names, adapters = [] } = this.source;
    return [...names, ...names.flatMap((name) => adapters.map((adapter) => `${name}:${adapter}`))];
  }

  /** Returns the adapter that one of the names has. */
  adapterOf(name: string | undefined): string | undefined {
    const { names, adapters = [] } = this.source;
    return adapters.find((adapter) => names.some((own) => name === `${own}:${adapter}`));
  }
}

/** A model in memory. */
type LoadedModel = OfferedModel & { readonly model: Model };

/** A use of a loaded model, which stays loaded until the use is disposed of. */
export interface ModelUse extends Disposable {
  readonly offered: OfferedModel;
  readonly model: Model;
  /** Time that the request waited for the model, in milliseconds. */
  readonly loadMs: number;
  /** Returns another use of the model. */
  share(): Disposable;
}

/**
 * Loads models on demand. Two requests for a model load it once, and one model is loaded at a time.
 * If memory is short, the least recently used models are unloaded first, each after its last
 * answer.
 */
export class ModelPool implements OfferedModels {
  readonly offered: readonly OfferedModel[];
  readonly #options: PoolOptions;
  /** The model of a caller, which is never unloaded. */
  readonly #owned: Model | undefined;
  #clock = 0;
  /** Settles when no model is being loaded. */
  #lastLoad: Promise<unknown> = Promise.resolve();

  /**
   * @param sources the first is used by requests that name none
   * @throws {ForgeError} `usage` without a source, or if two have the same name
   */
  constructor(sources: readonly ModelSource[], options: PoolOptions = {}, owned?: Model) {
    this.offered = sources.map((source) => new OfferedModel(source));
    const { names } = this;
    const twice = names.find((name, i) => names.indexOf(name) !== i);
    if (sources.length === 0) throw new ForgeError("usage", "no model to serve");
    if (twice !== undefined) {
      throw new ForgeError(
        "usage",
        `two models have the name ${quote(twice)}; give one another name`,
      );
    }
    this.#options = options;
    this.#owned = owned;
    if (owned !== undefined) this.offered[0]!.model = owned;
  }

  /** Offers one loaded model, which the caller closes. */
  static of(
    model: Model,
    names: readonly [string, ...string[]] | undefined,
    defaults: GenerateOptions,
  ): ModelPool {
    const { checkpoint } = model;
    const source = {
      names: names ?? [modelName(checkpoint.path)] as const,
      adapters: model.adapters.map(({ name }) => name),
      checkpoint: () => checkpoint,
      load: () => Promise.resolve(model),
      leastMemory: () => 0,
      defaults: () => defaults,
    };
    return new ModelPool([source], {}, model);
  }

  /** Names of all models, also with an adapter. */
  get names(): string[] {
    return this.offered.flatMap(({ names }) => names);
  }

  /** The models in memory. */
  get loaded(): LoadedModel[] {
    return this.offered.filter((one) => one.model !== undefined) as LoadedModel[];
  }

  /**
   * Finds a model by its name, which may have an adapter and end with Ollama's tag `:latest`.
   *
   * @throws {UnknownModel}
   */
  find(name: string | undefined): OfferedModel {
    if (name === undefined) return this.offered[0]!;
    const named = (text: string) => this.offered.find(({ names }) => names.includes(text));
    const found = named(name) ?? named(name.replace(/:latest$/, ""));
    if (found !== undefined) return found;
    throw new UnknownModel(name, this.names);
  }

  /**
   * Loads a model unless it is loaded, and keeps it loaded until the result is disposed of.
   *
   * @param keepAliveMs time for which the model stays loaded after that
   * @throws {ForgeError} if it cannot be loaded
   */
  async use(offered: OfferedModel, keepAliveMs?: number): Promise<ModelUse> {
    const start = performance.now();
    // A model that is about to be unloaded is not taken: its last users could follow each other for
    // ever.
    while (offered.unloading !== undefined) await offered.unloading;
    this.#enter(offered);
    try {
      const model = offered.model ?? await this.#loadOnce(offered);
      offered.keepAliveMs = keepAliveMs ?? this.#options.keepAliveMs ?? Infinity;
      return {
        offered,
        model,
        loadMs: performance.now() - start,
        share: () => {
          this.#enter(offered);
          return this.#leaving(offered);
        },
        ...this.#leaving(offered),
      };
    } catch (error) {
      this.#leave(offered);
      throw error;
    }
  }

  /** Unloads a model after its last answer. The model of a caller stays. */
  async unload(offered: OfferedModel): Promise<void> {
    if (offered.model === undefined || offered.model === this.#owned) return;
    await (offered.unloading ??= this.#unload(offered).finally(() =>
      offered.unloading = undefined
    ));
  }

  /** Closes all models. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#lastLoad.catch(() => {});
    for (const offered of this.offered) {
      clearTimeout(offered.timer);
      const { model, unloading } = offered;
      // A model that waits for its users is closed at once; its answers fail.
      if (model === undefined) await unloading;
      else if (model !== this.#owned) await model[Symbol.asyncDispose]();
    }
  }

  #enter(offered: OfferedModel): void {
    offered.users++;
    clearTimeout(offered.timer);
    offered.expiresAt = Infinity;
  }

  #leaving(offered: OfferedModel): Disposable {
    let isIn = true;
    return {
      [Symbol.dispose]: () => {
        if (isIn) this.#leave(offered);
        isIn = false;
      },
    };
  }

  #leave(offered: OfferedModel): void {
    offered.lastUse = ++this.#clock;
    if (--offered.users > 0) return;
    offered.onUnused();
    const { keepAliveMs } = offered;
    offered.expiresAt = Date.now() + keepAliveMs;
    if (keepAliveMs > MAX_TIMER_MS) return;
    offered.timer = setTimeout(() => void this.unload(offered), keepAliveMs);
    Deno.unrefTimer(offered.timer);
  }

  #loadOnce(offered: OfferedModel): Promise<Model> {
    if (offered.loading !== undefined) return offered.loading;
    // Loads follow each other, so that each sees the memory that the last one left.
    const loading = this.#lastLoad.catch(() => {}).then(() => this.#load(offered));
    this.#lastLoad = loading;
    return offered.loading = loading.finally(() => offered.loading = undefined);
  }

  async #load(offered: OfferedModel): Promise<Model> {
    const { name, source } = offered;
    await this.#makeRoom(source.leastMemory());
    const start = performance.now();
    const model = await this.#loadWithRoom(source);
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    this.#options.onChange?.(
      `loaded ${quote(name)} (context ${model.contextLength}) in ${seconds} s`,
    );
    return offered.model = model;
  }

  /** Unloads models until another one has room. */
  async #makeRoom(needed: number): Promise<void> {
    for (;;) {
      // A model that is being closed is not in the list any more, but still has its memory.
      const closing = this.offered.find(({ model, unloading }) => unloading && !model);
      const victim = closing ?? this.#victim(needed);
      if (victim === undefined) return;
      await (victim.unloading ?? this.unload(victim));
    }
  }

  /** Loads a model. If the device fails, tries again without the other models. */
  async #loadWithRoom(source: ModelSource): Promise<Model> {
    for (;;) {
      try {
        return await source.load();
      } catch (error) {
        const victim = leastRecent(this.loaded);
        if (!(error instanceof ForgeError && error.code === "device") || victim === undefined) {
          throw error;
        }
        await this.unload(victim);
      }
    }
  }

  /** Returns the model to unload before another one that needs so many bytes, if any. */
  #victim(needed: number): OfferedModel | undefined {
    const { loaded } = this;
    if (loaded.length >= (this.#options.maxLoaded ?? Infinity)) return leastRecent(loaded);
    const taken = loaded.reduce((sum, { model }) => sum + bytesOf(model), 0);
    return leastRecent(loaded.filter(({ model }) => !hasRoom(model.deviceMemory, taken, needed)));
  }

  async #unload(offered: OfferedModel): Promise<void> {
    clearTimeout(offered.timer);
    if (offered.users > 0) await new Promise<void>((resolve) => offered.onUnused = resolve);
    offered.onUnused = () => {};
    clearTimeout(offered.timer);
    const { model } = offered;
    offered.model = undefined;
    let problem = "";
    try {
      await model?.[Symbol.asyncDispose]();
    } catch (error) {
      // Nobody awaits an unload after a time, and other models can still be loaded.
      problem = `: ${reasonOf(error)}`;
    }
    this.#options.onChange?.(`unloaded ${quote(offered.name)}${problem}`);
  }
}

/** Returns the base name of a path without the extension .gguf. */
export function modelName(path: string): string {
  return basename(path).replace(/^\.+$|\.gguf$/i, "") || "model";
}

/** Returns the bytes that a loaded model takes. */
export function bytesOf({ memory }: Model): number {
  return memory.weights + memory.kvCache + memory.states + memory.activations;
}

/**
 * True if a device holds so many more bytes. A host counts mapped files as free, which the weights
 * of loaded models are, so that the sum of what models take counts, too.
 */
function hasRoom({ total, free }: DeviceMemory, taken: number, needed: number): boolean {
  return total === 0 || (needed <= free && taken + needed <= total);
}

/** Returns the model to unload first: an unused one, and the least recently used of them. */
function leastRecent<T extends OfferedModel>(models: readonly T[]): T | undefined {
  const [first] = models.toSorted((a, b) =>
    Math.sign(a.users) - Math.sign(b.users) || a.lastUse - b.lastUse
  );
  return first;
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** Valid durations, for messages. */
export const VALID_DURATIONS = "seconds, or a duration such as 90s, 5m or 1h30m; negative for ever";

/**
 * Parses a duration as Ollama does: seconds, or numbers with units. A negative one has no end.
 *
 * @returns milliseconds; `undefined` for another text
 */
export function parseDuration(text: string): number | undefined {
  const [, sign = "", rest = ""] = /^([+-]?)(.*)$/s.exec(text.trim())!;
  const number = /^(?:\d+\.?\d*|\.\d+)$/;
  const parts = [...rest.matchAll(/(\d+\.?\d*|\.\d+)(ms|h|m|s)/g)];
  const isWhole = parts.length > 0 && parts.map(([part]) => part).join("") === rest;
  if (!number.test(rest) && !isWhole) return undefined;
  const ms = isWhole
    ? parts.reduce((sum, [, count, unit]) => sum + Number(count) * UNIT_MS[unit!]!, 0)
    : Number(rest) * 1000;
  return sign === "-" && ms > 0 ? Infinity : ms;
}

/**
 * Reads `keep_alive` of a request.
 *
 * @throws {RequestError} for another value than a duration
 */
export function readKeepAlive(value: JsonValue | undefined): number | undefined {
  if (!isGiven(value)) return undefined;
  const isText = typeof value === "string" || typeof value === "number";
  const ms = isText ? parseDuration(String(value)) : undefined;
  if (ms === undefined) throw invalid("keep_alive", value, VALID_DURATIONS);
  return ms;
}
