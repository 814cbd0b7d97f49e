/** `forge serve`: serves a model over HTTP. */
import { DEFAULT_PARALLEL } from "../../engine/limits.ts";
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { Model } from "../../mod.ts";
import { errorResponse, HttpError } from "../../serve/http/http_error.ts";
import { createHandler, type Handler } from "../../serve/mod.ts";
import { checkOptions, DEFAULT_QUEUE, type ServeOptions } from "../../serve/options.ts";
import type { Context } from "../command.ts";
import { errorText, INTERRUPTED } from "../output/error_text.ts";
import { HttpServer } from "../http_server.ts";
import { resolveModel } from "../model/model_path.ts";
import { openModel } from "../model/open_model.ts";
import type { GenerationFlags, ModelFlags, SERVE_FLAGS } from "../options/flags.ts";
import { fileOptions, generationOptions, loadOptions } from "../options/library_options.ts";
import type { Options } from "../options/options.ts";
import { API_KEY_VARIABLE, DEFAULT_HOST, DEFAULT_PORT } from "../options/tables/server.ts";
import { writeStderr } from "../output/streams.ts";
import { Progress } from "../output/progress.ts";

export type ServeFlags = Options<(typeof SERVE_FLAGS)[number]> & ModelFlags & GenerationFlags;

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
 * Serves a model until the program is stopped.
 *
 * @param onReady called with the address when the model answers
 */
export async function serveModel(
  flags: ServeFlags,
  operand: string | undefined,
  context: Context,
  onReady: (url: string) => void,
): Promise<number> {
  if (operand !== undefined && flags.model !== undefined) {
    throw new ForgeError("usage", "give the model once: with -m or as an argument");
  }
  const interrupted = context.interruptSignal();
  const stop = AbortSignal.any([interrupted, context.terminateSignal()]);
  const settings = serveOptions(flags, context.verbose);
  checkOptions(settings);
  const given = operand ?? flags.model;
  const path = await resolveModel(given, stop);
  const files = await fileOptions(flags, stop);

  // Loading takes time, so an address in use is reported before it.
  let handler: Handler = rejectUntilLoaded;
  const handle: Handler = (request) => handler(request);
  const { host = DEFAULT_HOST, port = DEFAULT_PORT } = flags;
  await using server = await HttpServer.listen(
    host,
    port,
    context.verbose ? logged(handle) : handle,
  );
  using progress = new Progress();
  const parallel = flags.serveParallel ?? DEFAULT_PARALLEL;
  const load = { ...loadOptions(flags), ...files, parallel };
  await using model = await openModel(path, load, progress);
  handler = createHandler(model, {
    ...settings,
    // A hub model keeps its name.
    names: flags.alias ?? (given === undefined || given === path ? undefined : [given]),
    defaults: generationOptions(flags, model.tokenizer),
  });
  await writeStderr(describe(server.url, model, parallel, settings));
  onReady(server.url);
  if (!stop.aborted) {
    await new Promise((resolve) => stop.addEventListener("abort", resolve, { once: true }));
  }
  await end(server);
  return interrupted.aborted ? INTERRUPTED : 0;
}

function serveOptions(flags: ServeFlags, verbose: boolean): ServeOptions {
  const { host = DEFAULT_HOST, serveParallel = DEFAULT_PARALLEL, maxQueue = DEFAULT_QUEUE } = flags;
  return {
    names: flags.alias,
    apiKey: flags.apiKey ?? (Deno.env.get(API_KEY_VARIABLE) || undefined),
    corsOrigin: flags.cors,
    anyHost: !/^(localhost|127\.[\d.]+|\[?::1\]?)$/.test(host),
    maxAnswers: serveParallel + maxQueue,
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

/** Logs the status and the time to the response of each request. */
function logged(handler: Handler): Handler {
  return async (request) => {
    const since = performance.now();
    const response = await handler(request);
    const path = quote(new URL(request.url).pathname).slice(1, -1);
    const time = `${(performance.now() - since).toFixed(0)} ms`;
    await writeStderr(`forge: ${request.method} ${path} ${response.status} ${time}\n`);
    return response;
  };
}

function describe(
  url: string,
  model: Model,
  parallel: number,
  { apiKey, anyHost }: ServeOptions,
): string {
  const open = anyHost && apiKey === undefined
    ? `; without an API key anyone who reaches this address can use it, see --api-key`
    : "";
  return `forge: listening on ${url} (${model.checkpoint.path}, context ${model.contextLength}, ` +
    `${parallel} at a time${open})\n`;
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
