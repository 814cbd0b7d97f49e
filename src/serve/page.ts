/** The page at `/`, and the facts about the server that it asks for. */
import { readFile } from "node:fs/promises";
import { stripTypeScriptTypes } from "node:module";
import { quote } from "../formats/quote.ts";
import { HttpError } from "./http/http_error.ts";
import type { Server, Service } from "./service.ts";

const HTML = "text/html; charset=utf-8";
const CSS = "text/css; charset=utf-8";
const SCRIPT = "text/javascript; charset=utf-8";

/** Files of the page below `/page/`, and their media types. */
const FILES: Readonly<Record<string, string>> = {
  "style.css": CSS,
  "main.ts": SCRIPT,
  "api.ts": SCRIPT,
  "conversation.ts": SCRIPT,
  "markdown.ts": SCRIPT,
  "message_view.ts": SCRIPT,
  "settings.ts": SCRIPT,
  "marked.js": SCRIPT,
};

/** The page takes everything from this server, and nothing from a text can run in it. */
const SECURITY_HEADERS = {
  "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; " +
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; " +
    "frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cache-control": "no-cache",
};

/** `GET /`: the page. */
export async function page(): Promise<Response> {
  return respond(await readFile(new URL("./page/index.html", import.meta.url), "utf8"), HTML);
}

/**
 * `GET /page/NAME`: a file of the page.
 *
 * @throws {HttpError} 404 for another name
 */
export async function pageFile(_: Server, __: Request, name: string): Promise<Response> {
  const type = Object.hasOwn(FILES, name) ? FILES[name] : undefined;
  if (type === undefined) {
    const valid = Object.keys(FILES).join(", ");
    throw new HttpError(404, `the page has no file ${quote(name)}; valid are ${valid}`);
  }
  const url = name === "marked.js"
    ? import.meta.resolve("marked")
    : new URL(`./page/${name}`, import.meta.url);
  const text = await readFile(new URL(url), "utf8");
  return respond(name.endsWith(".ts") ? browserScript(text) : text, type);
}

/** Returns TypeScript without its types, importing packages from this server. */
function browserScript(source: string): string {
  return stripTypeScriptTypes(source).replaceAll('from "marked"', 'from "/page/marked.js"');
}

function respond(text: string, type: string): Response {
  return new Response(text, { headers: { ...SECURITY_HEADERS, "content-type": type } });
}

/**
 * `GET /props`: facts about the model and the server, under llama.cpp's names where it has them.
 */
export function props({ model, name, names, defaults, server }: Service): Response {
  const { checkpoint, contextLength, device, memory, hasChatTemplate, generates } = model;
  return Response.json({
    model_alias: name,
    model_aliases: names,
    models: server.models.names,
    model_path: checkpoint.path,
    model_type: checkpoint.modelType,
    chat_template: checkpoint.chatTemplate ?? null,
    default_generation_settings: { n_ctx: contextLength, params: model.resolveSampling(defaults) },
    total_slots: model.parallel,
    kv_bytes_per_token: model.kvBytesPerToken,
    memory,
    device,
    has_chat_template: hasChatTemplate,
    generates,
  });
}
