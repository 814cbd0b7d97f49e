import type { Model } from "../engine/model.ts";
import { quote } from "../formats/quote.ts";
import { anthropicError } from "./anthropic/format.ts";
import { countTokens, messages } from "./anthropic/messages.ts";
import { Guard } from "./http/guard.ts";
import { errorResponse, HttpError, isFault } from "./http/http_error.ts";
import { chat, generate } from "./ollama/chat.ts";
import { embed, embedOne } from "./ollama/embed.ts";
import { ollamaError } from "./ollama/format.ts";
import { loadedModels, show, tags, version } from "./ollama/models.ts";
import { chatCompletions } from "./openai/chat_completions.ts";
import { completions } from "./openai/completions.ts";
import { embeddings } from "./openai/embeddings.ts";
import { listModels, showModel } from "./openai/models.ts";
import { rerank } from "./openai/rerank.ts";
import { deleteResponse, responses, showResponse } from "./openai/responses.ts";
import { checkOptions, type ServeOptions } from "./options.ts";
import { metrics, slots } from "./metrics.ts";
import type { OfferedModels } from "./model_pool.ts";
import { page, pageFile, props } from "./page.ts";
import { type Endpoint, Server, withModel } from "./service.ts";
import { detokenize, tokenize } from "./tokens.ts";

/** Answers one HTTP request; it never rejects. */
export type Handler = (request: Request) => Promise<Response>;

interface Route {
  readonly method: "GET" | "POST" | "DELETE";
  /** A path, or a prefix followed by `*`. */
  readonly path: string;
  readonly endpoint: Endpoint;
  /** True if no API key is needed. */
  readonly isOpen?: boolean;
}

const ROUTES: readonly Route[] = [
  { method: "POST", path: "/v1/chat/completions", endpoint: withModel(chatCompletions) },
  { method: "POST", path: "/v1/responses", endpoint: withModel(responses) },
  { method: "GET", path: "/v1/responses/*", endpoint: showResponse },
  { method: "DELETE", path: "/v1/responses/*", endpoint: deleteResponse },
  { method: "POST", path: "/v1/messages", endpoint: withModel(messages) },
  { method: "POST", path: "/v1/messages/count_tokens", endpoint: withModel(countTokens) },
  { method: "POST", path: "/v1/completions", endpoint: withModel(completions) },
  { method: "POST", path: "/v1/embeddings", endpoint: withModel(embeddings) },
  { method: "POST", path: "/v1/rerank", endpoint: withModel(rerank) },
  { method: "POST", path: "/v2/rerank", endpoint: withModel(rerank) },
  { method: "POST", path: "/rerank", endpoint: withModel(rerank) },
  { method: "GET", path: "/v1/models", endpoint: listModels },
  { method: "GET", path: "/v1/models/*", endpoint: showModel },
  { method: "POST", path: "/tokenize", endpoint: withModel(tokenize) },
  { method: "POST", path: "/detokenize", endpoint: withModel(detokenize) },
  { method: "GET", path: "/", endpoint: page, isOpen: true },
  { method: "GET", path: "/page/*", endpoint: pageFile, isOpen: true },
  { method: "GET", path: "/props", endpoint: withModel(props) },
  { method: "GET", path: "/slots", endpoint: slots },
  { method: "GET", path: "/metrics", endpoint: metrics },
  { method: "GET", path: "/health", endpoint: health, isOpen: true },
  { method: "POST", path: "/api/chat", endpoint: chat },
  { method: "POST", path: "/api/generate", endpoint: generate },
  { method: "POST", path: "/api/embed", endpoint: withModel(embed) },
  { method: "POST", path: "/api/embeddings", endpoint: withModel(embedOne) },
  { method: "GET", path: "/api/ps", endpoint: loadedModels },
  { method: "GET", path: "/api/tags", endpoint: tags },
  { method: "POST", path: "/api/show", endpoint: show },
  { method: "GET", path: "/api/version", endpoint: version },
];

/** Forms of errors other than OpenAI's, by the beginnings of paths. */
const ERROR_FORMS = [
  ["/api/", ollamaError],
  ["/v1/messages", anthropicError],
] as const;

/**
 * Creates a handler of HTTP requests that serves models with the APIs of OpenAI, Anthropic and
 * Ollama.
 *
 * The caller keeps ownership of the models and closes them. An invalid request gets a response with
 * the error and the status that OpenAI's API gives it.
 *
 * @throws {ForgeError} `usage` for an invalid argument or option
 */
export function createHandler(
  models: Model | OfferedModels,
  options: ServeOptions = {},
): Handler {
  checkOptions(options);
  const server = new Server(models, options);
  const guard = new Guard(options);
  return async (request) => {
    const response = guard.addHeaders(await respond(server, guard, request));
    server.metrics.countRequest(request.method, routePath(request), response.status);
    return response;
  };
}

async function respond(server: Server, guard: Guard, request: Request): Promise<Response> {
  try {
    return await dispatch(server, guard, request);
  } catch (error) {
    if (isFault(error)) server.onError(error instanceof HttpError ? error.cause : error);
    const path = pathOf(request);
    const [, form] = ERROR_FORMS.find(([start]) => path.startsWith(start)) ?? [];
    return errorResponse(error, form?.(error));
  }
}

/** Returns the path of a request; empty for an invalid URL. */
function pathOf({ url }: Request): string {
  return URL.canParse(url) ? new URL(url).pathname : "";
}

/** Returns the path of the route that a request asks for; `other` without one. */
function routePath(request: Request): string {
  const path = pathOf(request);
  return ROUTES.find((route) => restOf(path, route) !== undefined)?.path ?? "other";
}

async function dispatch(server: Server, guard: Guard, request: Request): Promise<Response> {
  guard.checkSource(request);
  if (request.method === "OPTIONS") return guard.preflight(request);
  const path = new URL(request.url).pathname;
  const routes = ROUTES.filter((route) => restOf(path, route) !== undefined);
  // Endpoints answer HEAD as GET; the server drops the body.
  const method = request.method === "HEAD" ? "GET" : request.method;
  const route = routes.find((candidate) => candidate.method === method);
  if (!route?.isOpen) guard.checkKey(request);
  if (route !== undefined) {
    return await route.endpoint(server, request, decode(restOf(path, route)!));
  }
  if (routes.length === 0) {
    const folder = path.split("/")[1];
    const similar = ROUTES.filter((known) => known.path.split("/")[1] === folder);
    const valid = (similar.length > 0 ? similar : ROUTES)
      .map((known) => `${known.method} ${known.path}`).join(", ");
    throw new HttpError(404, `unknown path ${quote(path)}; valid are ${valid}`);
  }
  const allowed = routes.map((known) => known.method).join(", ");
  throw new HttpError(
    405,
    `the method for ${quote(path)} is ${quote(request.method)}; valid is ${allowed}`,
    { headers: { allow: allowed } },
  );
}

/**
 * Returns the part of a path that a route's `*` matches; `undefined` if the route does not match.
 */
function restOf(path: string, route: Route): string | undefined {
  if (!route.path.endsWith("*")) return path === route.path ? "" : undefined;
  const start = route.path.slice(0, -1);
  return path.startsWith(start) && path !== start ? path.slice(start.length) : undefined;
}

/** @throws {HttpError} 404 for a name in a path that is not valid */
function decode(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    throw new HttpError(404, `the name ${quote(name)} in the path is not percent-encoded UTF-8`);
  }
}

/**
 * `GET /health`: reports that the server accepts requests, and the number of answers in progress.
 */
function health({ admission }: Server): Response {
  return Response.json({ status: "ok", answers: admission.inProgress });
}
