import { DEFAULT_PARALLEL } from "../engine/limits.ts";
import type { Model } from "../engine/model.ts";
import type { GenerateOptions } from "../engine/request/options.ts";
import { Slices } from "../engine/request/prompt.ts";
import { ForgeError } from "../errors.ts";
import { checkArgument, type OptionCheck } from "../formats/arguments.ts";
import type { JsonObject } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import { isGiven, readString } from "../requests/values.ts";
import type { EnforceableTools } from "./chat/tools.ts";
import { HttpError } from "./http/http_error.ts";
import { readBody } from "./http/request_body.ts";
import { Metrics } from "./metrics.ts";
import { KeptResponses } from "./openai/kept_responses.ts";
import {
  ModelPool,
  type ModelUse,
  type OfferedModel,
  type OfferedModels,
  readKeepAlive,
} from "./model_pool.ts";
import { DEFAULT_QUEUE, type ServeOptions } from "./options.ts";

const MODELS: OptionCheck = {
  accepts: (value) => value instanceof ModelPool || typeof Object(value).generate === "function",
  valid: "a Model, or the result of offerModels",
};

/** State that all requests share. */
export class Server {
  readonly models: ModelPool;
  readonly admission: Admission;
  /** Encoding of texts that are not prompts. */
  readonly slices = new Slices();
  readonly responses = new KeptResponses();
  readonly metrics = new Metrics();
  /** Start of the server, in seconds since 1970. */
  readonly created = Math.floor(Date.now() / 1000);
  readonly onError: (error: unknown) => void;

  /** @throws {ForgeError} `usage` for models of the wrong type */
  constructor(models: Model | OfferedModels, options: ServeOptions) {
    checkArgument("the model", models, MODELS);
    const { names: [name, ...others] = [], defaults = {}, maxAnswers, onError } = options;
    this.models = models instanceof ModelPool
      ? models
      : ModelPool.of(models as Model, name === undefined ? undefined : [name, ...others], defaults);
    this.admission = new Admission(maxAnswers ?? DEFAULT_PARALLEL + DEFAULT_QUEUE);
    this.onError = onError ?? ((error) => console.error(error));
  }

  /** Returns the model that a request names; the first one if it names none. */
  findModel(body: JsonObject): OfferedModel {
    return this.models.find(nameIn(body));
  }

  /**
   * Opens the view of a request, loading its model if necessary.
   *
   * @throws {HttpError} 404 for an unknown model, 500 if it cannot be loaded
   */
  async open(body: JsonObject): Promise<Service> {
    const offered = this.findModel(body);
    const keepAliveMs = readKeepAlive(body.keep_alive);
    try {
      const adapter = offered.adapterOf(nameIn(body)?.replace(/:latest$/, ""));
      using stack = new DisposableStack();
      const use = stack.use(await this.models.use(offered, keepAliveMs));
      const service = new Service(this, use, adapter);
      stack.move();
      return service;
    } catch (error) {
      if (!(error instanceof ForgeError)) throw error;
      const message = `cannot load ${quote(offered.name)}: ${error.message}`;
      const cause = new ForgeError(error.code, message, { cause: error });
      throw new HttpError(500, message, { code: "model_load_failed" }, { cause });
    }
  }
}

/** View of a request: the server, and the model that the request uses. */
export class Service implements Disposable {
  readonly server: Server;
  readonly model: Model;
  /** Names of the model; responses use the first. */
  readonly names: readonly [string, ...string[]];
  /** Options of generations where a request sets none. */
  readonly defaults: GenerateOptions;
  readonly enforceable: EnforceableTools;
  /** Time that the request waited for the model, in milliseconds. */
  readonly loadMs: number;
  readonly #use: ModelUse;
  readonly #adapter: string | undefined;

  /** @param adapter the adapter that the request's name of the model has */
  constructor(server: Server, use: ModelUse, adapter?: string) {
    const { source, enforceable } = use.offered;
    this.server = server;
    this.model = use.model;
    this.names = source.names;
    this.defaults = withAdapter(source.defaults?.(use.model) ?? {}, use.model, adapter);
    this.#adapter = adapter;
    this.enforceable = enforceable;
    this.loadMs = use.loadMs;
    this.#use = use;
  }

  get name(): string {
    const [name] = this.names;
    return this.#adapter === undefined ? name : `${name}:${this.#adapter}`;
  }

  /** Takes a place for answers, and keeps the model loaded until the result is disposed of. */
  enter(answers: number): Disposable {
    const stack = new DisposableStack();
    stack.use(this.server.admission.enter(answers));
    stack.use(this.#use.share());
    return stack;
  }

  [Symbol.dispose](): void {
    this.#use[Symbol.dispose]();
  }
}

function nameIn({ model }: JsonObject): string | undefined {
  return isGiven(model) ? readString(model, "model") : undefined;
}

/** Adds the adapter that a request names. Without a name or a choice, the server applies none. */
function withAdapter(
  defaults: GenerateOptions,
  { adapters }: Model,
  adapter: string | undefined,
): GenerateOptions {
  if (adapters.length === 0) return defaults;
  return { ...defaults, lora: adapter ?? defaults.lora ?? [] };
}

/**
 * Answers the requests of a route.
 *
 * @param rest part of the path that the `*` of the route matches, decoded
 */
export type Endpoint = (
  server: Server,
  request: Request,
  rest: string,
) => Response | Promise<Response>;

/** Answers requests with the model that they name. */
type ModelEndpoint = (
  service: Service,
  request: Request,
  body: JsonObject,
) => Response | Promise<Response>;

/** Makes an endpoint that uses a model: the one named in the body, or in the query of a GET. */
export function withModel(endpoint: ModelEndpoint): Endpoint {
  return async (server, request) => {
    const body = request.method === "POST"
      ? await readBody(request)
      : Object.fromEntries(new URL(request.url).searchParams);
    using service = await server.open(body);
    return await endpoint(service, request, body);
  };
}

/** Counts the answers in progress, computed or queued, and limits them. */
class Admission {
  readonly #limit: number;
  #inProgress = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get inProgress(): number {
    return this.#inProgress;
  }

  /**
   * Admits answers until the result is disposed of. A request that exceeds the limit by itself is
   * admitted when no other is in progress.
   *
   * @throws {HttpError} 503 when too many are in progress
   */
  enter(answers: number): Disposable {
    if (this.#inProgress > 0 && this.#inProgress + answers > this.#limit) {
      throw new HttpError(
        503,
        `${this.#inProgress} answers are in progress and ${answers} more were requested; ` +
          `the limit is ${this.#limit}, try again later`,
        { code: "queue_full", headers: { "retry-after": "1" } },
      );
    }
    this.#inProgress += answers;
    return {
      [Symbol.dispose]: () => {
        this.#inProgress -= answers;
      },
    };
  }
}
