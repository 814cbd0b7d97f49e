import type { Model } from "../engine/model.ts";
import { quote } from "../formats/quote.ts";
import { Guard } from "./http/guard.ts";
import { chatCompletions } from "./openai/chat_completions.ts";
import { completions } from "./openai/completions.ts";
import { embeddings } from "./openai/embeddings.ts";
import { detokenize, tokenize } from "./tokens.ts";
import { errorResponse, HttpError, isFault } from "./http/http_error.ts";
import { health } from "./health.ts";
import { listModels, showModel } from "./openai/models.ts";
import { OLLAMA_ROUTES } from "./ollama/routes.ts";
import { checkOptions, type ServeOptions } from "./options.ts";
import type { Route } from "./route.ts";
import { Service } from "./service.ts";

/** Answers one HTTP request; it never rejects. */
export type Handler = (request: Request) => Promise<Response>;

const ROUTES: readonly Route[] = [
  { method: "POST", path: "/v1/chat/completions", endpoint: chatCompletions },
  { method: "POST", path: "/v1/completions", endpoint: completions },
  { method: "POST", path: "/v1/embeddings", endpoint: embeddings },
  { method: "GET", path: "/v1/models", endpoint: listModels },
  { method: "GET", path: "/v1/models/*", endpoint: showModel },
  { method: "POST", path: "/tokenize", endpoint: tokenize },
  { method: "POST", path: "/detokenize", endpoint: detokenize },
  { method: "GET", path: "/health", endpoint: health, isOpen: true },
  ...OLLAMA_ROUTES,
];

/**
 * A handler of HTTP requests that answers from a model in the words of OpenAI's API.
 *
 * The model stays the caller's, who closes it. What clients get wrong is a response that says so, with
 * the status that OpenAI's API gives it.
 *
 * @throws {ForgeError} `usage` for an option that is not valid
 */
export function createHandler(model: Model, options: ServeOptions = {}): Handler {
  checkOptions(options);
  const service = new Service(model, options);
  const guard = new Guard(options);
  return async (request) => {
    try {
      return guard.addHeaders(await answer(service, guard, request));
    } catch (error) {
      if (isFault(error)) service.onError(error);
      return guard.addHeaders(errorResponse(error));
    }
  };
}

async function answer(service: Service, guard: Guard, request: Request): Promise<Response> {
  guard.checkSource(request);
  if (request.method === "OPTIONS") return guard.preflight(request);
  const path = new URL(request.url).pathname;
  const routes = ROUTES.filter((route) => restOf(path, route) !== undefined);
  // What asks for the head of a response gets it from the same endpoint.
  const asked = request.method === "HEAD" ? "GET" : request.method;
  const route = routes.find(({ method }) => method === asked);
  if (!route?.isOpen) guard.checkKey(request);
  if (route !== undefined) {
    return await route.endpoint(service, request, restOf(path, route)!);
  }
  const [other] = routes;
  if (other === undefined) {
    const valid = ROUTES.map((known) => `${known.method} ${known.path}`).join(", ");
    throw new HttpError(404, `there is no ${quote(path)}; valid are ${valid}`);
  }
  throw new HttpError(
    405,
    `the method for ${quote(path)} is ${quote(request.method)}; valid is ${other.method}`,
    { headers: { allow: other.method } },
  );
}

/** What a path has in place of a route's `*`; `undefined` for a path of another route. */
function restOf(path: string, route: Route): string | undefined {
  if (!route.path.endsWith("*")) return path === route.path ? "" : undefined;
  const start = route.path.slice(0, -1);
  return path.startsWith(start) && path !== start ? path.slice(start.length) : undefined;
}
