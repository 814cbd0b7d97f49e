/** `forge serve`: serves models over HTTP. */
import { join } from "node:path";
import { DEFAULT_PARALLEL } from "../../engine/limits.ts";
import { leastMemory } from "../../engine/load/load.ts";
import { asLoaded, countReplicas } from "../../engine/load/options.ts";
import { adapterName } from "../../engine/request/adapters.ts";
import { ForgeError } from "../../errors.ts";
import { openCheckpoint } from "../../formats/checkpoint.ts";
import { reasonOf } from "../../formats/file.ts";
import { quote } from "../../formats/quote.ts";
import { errorResponse, HttpError } from "../../serve/http/http_error.ts";
import { createHandler, type Handler } from "../../serve/mod.ts";
import {
  modelName,
  ModelPool,
  type ModelSource,
  type OfferedModel,
  parseDuration,
  type PoolOptions,
  VALID_DURATIONS,
} from "../../serve/model_pool.ts";
import { checkOptions, DEFAULT_QUEUE, type ServeOptions } from "../../serve/options.ts";
import type { Context } from "../command.ts";
import { errorText, INTERRUPTED } from "../output/error_text.ts";
import { HttpServer } from "../http_server.ts";
import { isModel, resolveModel } from "../model/model_path.ts";
import { withModelDefaults } from "../model/config_file.ts";
import { openModel } from "../model/open_model.ts";
import type { GenerationFlags, LOADING_FLAGS, SERVE_FLAGS } from "../options/flags.ts";
import {
  fileOptions,
  generationOptions,
  loadOptions,
  replicaOptions,
} from "../options/library_options.ts";
import type { Options } from "../options/options.ts";
import {
  API_KEY_VARIABLE,
  DEFAULT_HOST,
  DEFAULT_MODELS,
  DEFAULT_PORT,
  STDIN_VARIABLE,
} from "../options/tables/server.ts";
import { writeStderr } from "../output/streams.ts";
import { Progress } from "../output/progress.ts";

export type ServeFlags =
  & Options<"serveModel" | (typeof SERVE_FLAGS)[number] | (typeof LOADING_FLAGS)[number]>
  & GenerationFlags;

/** Time after which a graceful stop is reported. */
const STOP_NOTICE_MS = 300;

export async function run(
  flags: ServeFlags,
  [operand]: readonly string[],
  context: Context,
): Promise<number> {
  return await serveModel(flags, operand, context, () => {});
}

/**
 * Serves models until the program is stopped.
 *
 * @param onReady called with the address when the first model answers
 */
export async function serveModel(
  flags: ServeFlags,
  operand: string | undefined,
  context: Context,
  onReady: (url: string) => void,
): Promise<number> {
  const interrupted = context.interruptSignal();
  const stop = AbortSignal.any([interrupted, context.terminateSignal(), endOfInput()]);
  const parallel = sequencesAtATime(flags, operand);
  const settings = serveOptions(flags, parallel, context.verbose);
  checkOptions(settings);
  const pool = poolOptions(flags, context.verbose);
  using progress = new Progress();
  const sources = await findSources(flags, operand, progress, stop);

  // Loading takes time, so an address in use is reported before it.
  let handler: Handler = rejectUntilLoaded;
  const handle: Handler = (request) => handler(request);
  const { host = DEFAULT_HOST, port = DEFAULT_PORT } = flags;
  await using server = await HttpServer.listen(
    host,
    port,
    context.verbose ? logged(handle) : handle,
  );
  await using models = new ModelPool(sources, pool);
  // A model of a folder is loaded when it is asked for.
  const isNamed = operand !== undefined || flags.serveModel !== undefined ||
    flags.modelsDir === undefined;
  if (isNamed) (await models.use(models.offered[0]!))[Symbol.dispose]();
  handler = createHandler(models, settings);
  await writeStderr(describe(server.url, models, parallel, settings));
  onReady(server.url);
  if (!stop.aborted) {
    await new Promise((resolve) => stop.addEventListener("abort", resolve, { once: true }));
  }
  await end(server);
  return interrupted.aborted ? INTERRUPTED : 0;
}

/**
 * Returns a signal for the end of stdin, if a variable asks for it: a server stops with the program
 * that started it, however that ends.
 */
function endOfInput(): AbortSignal {
  const ended = new AbortController();
  if (Deno.env.get(STDIN_VARIABLE) === "1") {
    const abort = () => ended.abort();
    void Deno.stdin.readable.pipeTo(new WritableStream()).then(abort, abort);
  }
  return ended.signal;
}

/** Returns the models that the flags name, in their order. */
async function findSources(
  flags: ServeFlags,
  operand: string | undefined,
  progress: Progress,
  stop: AbortSignal,
): Promise<ModelSource[]> {
  const { alias, modelsDir, serveModel = [], maxModels = DEFAULT_MODELS } = flags;
  const named = [...(operand === undefined ? [] : [operand]), ...serveModel];
  const inFolder = modelsDir === undefined ? [] : modelsIn(modelsDir);
  const given = named.length + inFolder.length === 0 ? [undefined] : [...named, ...inFolder];
  if (alias !== undefined && given.length > 1) {
    throw new ForgeError("usage", "--alias names a single model; name several in a config file");
  }
  if (flags.lora !== undefined && given.length > 1) {
    throw new ForgeError(
      "usage",
      "--lora changes a single model; give the adapters of several in a config file",
    );
  }
  const parallel = flags.serveParallel ?? DEFAULT_PARALLEL;
  const modelsInMemory = Math.min(maxModels, given.length);
  const sources: ModelSource[] = [];
  for (const name of given) {
    const own = withModelDefaults(flags, name);
    const path = await resolveModel(name, stop);
    const files = await fileOptions(own, stop);
    const options = {
      ...loadOptions(own),
      ...files,
      parallel,
      modelsInMemory,
    };
    // A hub model and a short name keep their name.
    const isPath = name === undefined || name === path;
    const [first = isPath ? modelName(path) : name, ...others] = alias ?? [];
    sources.push({
      names: [first, ...others],
      adapters: options.lora?.map(adapterName) ?? [],
      checkpoint: () => asLoaded(openCheckpoint(path), options),
      load: () => openModel(path, options, progress),
      leastMemory: () => leastMemory(path, options),
      defaults: (model) => generationOptions(own, model.tokenizer),
    });
  }
  return sources;
}

/** Returns the paths of the models in a folder. @throws {ForgeError} `not_found` without any */
function modelsIn(folder: string): string[] {
  let names: string[];
  try {
    names = [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
  } catch (error) {
    throw new ForgeError("not_found", `cannot read ${quote(folder)}: ${reasonOf(error)}`);
  }
  const models = names
    // Only the first part of a model in several files names it; mmproj files are parts of others.
    .filter((name) => !/^mmproj|-(?!00001)\d{5}-of-\d{5}\.gguf$/i.test(name))
    .map((name) => join(folder, name))
    .filter((path) => isModel(path) && !path.endsWith(".safetensors"));
  if (models.length > 0) return models;
  throw new ForgeError(
    "not_found",
    `${quote(folder)} has no models; valid are .gguf files and folders with config.json`,
  );
}

function poolOptions({ keepAlive, maxModels }: ServeFlags, verbose: boolean): PoolOptions {
  const keepAliveMs = keepAlive === undefined ? Infinity : parseDuration(keepAlive);
  if (keepAliveMs === undefined) {
    throw new ForgeError(
      "usage",
      `--keep-alive is ${quote(keepAlive!)}; valid are ${VALID_DURATIONS}`,
    );
  }
  return {
    maxLoaded: maxModels ?? DEFAULT_MODELS,
    keepAliveMs,
    onChange: (line) => {
      if (verbose) void writeStderr(`forge: ${line}\n`);
    },
  };
}

/** Returns the most sequences that all replicas of a model compute at a time. */
function sequencesAtATime(flags: ServeFlags, operand: string | undefined): number {
  const { serveParallel = DEFAULT_PARALLEL, serveModel = [] } = flags;
  const replicas = [operand, ...serveModel]
    .map((name) => countReplicas(replicaOptions(withModelDefaults(flags, name))));
  return serveParallel * Math.max(...replicas);
}

function serveOptions(flags: ServeFlags, parallel: number, verbose: boolean): ServeOptions {
  const { host = DEFAULT_HOST, maxQueue = DEFAULT_QUEUE } = flags;
  return {
    names: flags.alias,
    apiKey: flags.apiKey ?? (Deno.env.get(API_KEY_VARIABLE) || undefined),
    corsOrigin: flags.cors,
    anyHost: !/^(localhost|127\.[\d.]+|\[?::1\]?)$/.test(host),
    maxAnswers: parallel + maxQueue,
    onError: (error) => void writeStderr(errorText(error, verbose)),
  };
}

const rejectUntilLoaded: Handler = () =>
  Promise.resolve(errorResponse(
    new HttpError(503, "the model is loading; try again in a moment", {
      code: "loading",
      headers: { "retry-after": "1" },
    }),
  ));

/** Returns a name for the terminal, without quotes. */
function printable(name: string): string {
  return quote(name).slice(1, -1);
}

/** Logs the status and the time to the response of each request. */
function logged(handler: Handler): Handler {
  return async (request) => {
    const since = performance.now();
    const response = await handler(request);
    const path = printable(new URL(request.url).pathname);
    const time = `${(performance.now() - since).toFixed(0)} ms`;
    await writeStderr(`forge: ${request.method} ${path} ${response.status} ${time}\n`);
    return response;
  };
}

function describe(
  url: string,
  { offered, names }: ModelPool,
  parallel: number,
  { apiKey, anyHost }: ServeOptions,
): string {
  const open = anyHost && apiKey === undefined
    ? `; without an API key anyone who reaches this address can use it, see --api-key`
    : "";
  const [{ model }] = offered as readonly [OfferedModel];
  const what = offered.length === 1 && model !== undefined
    ? `${printable(model.checkpoint.path)}, context ${model.contextLength}`
    : `models ${names.map(printable).join(", ")}`;
  return `forge: listening on ${url} (${what}, ${parallel} at a time${open})\n`;
}

/** Stops accepting requests and waits for those in progress. */
async function end(server: HttpServer): Promise<void> {
  const note = setTimeout(
    () =>
      void writeStderr(
        "forge: stopping after the answers in progress; press Ctrl-C again to stop now\n",
      ),
    STOP_NOTICE_MS,
  );
  await server.shutdown();
  clearTimeout(note);
}
