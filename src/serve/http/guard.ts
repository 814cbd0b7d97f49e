/** Access control: the API key, the requested host, and the origin of web pages. */
import { createHash, timingSafeEqual } from "node:crypto";
import { quote } from "../../formats/quote.ts";
import { HttpError } from "./http_error.ts";
import type { ServeOptions } from "../options.ts";

/** Checks requests, and tells browsers which pages may read the responses. */
export class Guard {
  readonly #keyHash: Uint8Array | undefined;
  readonly #origin: string | undefined;
  readonly #anyHost: boolean;

  constructor({ apiKey, corsOrigin, anyHost = false }: ServeOptions) {
    this.#keyHash = apiKey === undefined ? undefined : hash(apiKey);
    this.#origin = corsOrigin;
    this.#anyHost = anyHost || apiKey !== undefined;
  }

  /**
   * Rejects requests for another host and from pages of other origins.
   *
   * @throws {HttpError} 403, 400 for an invalid host
   */
  checkSource({ url, headers }: Request): void {
    checkUrl(url);
    const { host, hostname } = new URL(url);
    if (!this.#anyHost && !isLocal(hostname)) {
      throw new HttpError(
        403,
        `the request is addressed to ${quote(host)}; valid without an API key is this machine ` +
          "(localhost, 127.0.0.1, [::1])",
        { code: "host_not_allowed" },
      );
    }
    const origin = headers.get("origin");
    if (origin === null || this.#allows(origin)) return;
    // A page of this server itself.
    if (URL.canParse(origin) && new URL(origin).host === host) return;
    throw new HttpError(
      403,
      `pages of ${quote(origin)} may not use this server; --cors ORIGIN allows an origin`,
      { code: "origin_not_allowed" },
    );
  }

  /** @throws {HttpError} 401 without the key */
  checkKey({ headers }: Request): void {
    if (this.#keyHash === undefined) return;
    const [, bearer] = /^Bearer +(\S+)$/i.exec(headers.get("authorization") ?? "") ?? [];
    // Anthropic's clients have a header of their own.
    const key = bearer ?? headers.get("x-api-key") ?? undefined;
    if (key !== undefined && timingSafeEqual(hash(key), this.#keyHash)) return;
    const what = key === undefined ? "the API key is missing" : "the API key is wrong";
    throw new HttpError(401, `${what}; send it as "Authorization: Bearer KEY"`, {
      code: "invalid_api_key",
      headers: { "www-authenticate": "Bearer" },
    });
  }

  /** Returns the response to a CORS preflight request. */
  preflight({ headers }: Request): Response {
    const asked = headers.get("access-control-request-headers") ?? "";
    return new Response(null, {
      status: 204,
      headers: {
        "access-control-allow-methods": "GET, POST, DELETE",
        // Client libraries in browsers send headers of their own.
        "access-control-allow-headers": /^[\w\-, ]+$/.test(asked)
          ? asked
          : "authorization, content-type",
        "access-control-max-age": "600",
      },
    });
  }

  /** Adds the CORS headers that let a page read the response. */
  addHeaders(response: Response): Response {
    if (this.#origin === undefined) return response;
    response.headers.set("access-control-allow-origin", this.#origin);
    if (this.#origin !== "*") response.headers.append("vary", "origin");
    return response;
  }

  #allows(origin: string): boolean {
    return this.#origin === "*" || this.#origin === origin;
  }
}

/** @throws {HttpError} 400 if the URL of a request is not valid, which its host makes it */
export function checkUrl(url: string): void {
  if (URL.canParse(url)) return;
  throw new HttpError(400, "the Host header is not valid; expected a name or an address");
}

/** True if a host name means this machine, without asking a name server. */
function isLocal(hostname: string): boolean {
  return hostname === "localhost" || hostname.endsWith(".localhost") || hostname === "[::1]" ||
    /^127(\.\d{1,3}){3}$/.test(hostname);
}

/** Hashes to equal length, so that a comparison takes constant time. */
function hash(text: string): Uint8Array {
  return createHash("sha256").update(text).digest();
}
