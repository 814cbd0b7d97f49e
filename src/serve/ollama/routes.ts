/** Ollama's endpoints, for clients that speak no other API. */
import type { Route } from "../route.ts";
import { chat, generate } from "./chat.ts";
import { embed } from "./embed.ts";
import { inOllamasWords } from "./endpoint.ts";
import { show, tags, version } from "./models.ts";

const ENDPOINTS: readonly Route[] = [
  { method: "POST", path: "/api/chat", endpoint: chat },
  { method: "POST", path: "/api/generate", endpoint: generate },
  { method: "POST", path: "/api/embed", endpoint: embed },
  { method: "GET", path: "/api/tags", endpoint: tags },
  { method: "POST", path: "/api/show", endpoint: show },
  { method: "GET", path: "/api/version", endpoint: version },
];

export const OLLAMA_ROUTES: readonly Route[] = ENDPOINTS.map((route) => ({
  ...route,
  endpoint: inOllamasWords(route.endpoint),
}));
