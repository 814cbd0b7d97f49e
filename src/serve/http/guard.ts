/** Who may ask: the key, the host that a request names, and the page that it comes from. */
import { createHash, timingSafeEqual } from "node:crypto";
import { quote } from "../../formats/quote.ts";
import { HttpError } from "./http_error.ts";
import type { ServeOptions } from "../options.ts";

/** Lets requests in, and tells browsers which pages may read the answers. */
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
   * Refuses requests from web pages that are not to use this server.
   *
   * @throws {HttpError} 403
   */
  checkSource({ url, headers }: Request): void {
    if (!URL.canParse(url)) {
      throw new HttpError(400, "the Host header is not valid; expected a name or an address");
    }
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
    // A page of this very server.
    if (URL.canParse(origin) && new URL(origin).host === host) return;
    throw new HttpError(
      403,
      `pages of ${quote(origin)} may not use this server; --cors names an origin that may`,
      { code: "origin_not_allowed" },
    );
  }

  /** @throws {HttpError} 401 without the key */
  checkKey({ headers }: Request): void {
    if (this.#keyHash === undefined) return;
    const [, key] = /^Bearer +(\S+)$/i.exec(headers.get("authorization") ?? "") ?? [];
    if (key !== undefined && timingSafeEqual(hash(key), this.#keyHash)) return;
    const what = key === undefined ? "there is no API key" : "the API key is wrong";
    throw new HttpError(401, `${what}; send it as "Authorization: Bearer KEY"`, {
      code: "invalid_api_key",
      headers: { "www-authenticate": "Bearer" },
    });
  }

  /** The answer to a browser that asks whether a page may send a request. */
  preflight({ headers }: Request): Response {
    const asked = headers.get("access-control-request-headers") ?? "";
    return new Response(null, {
      status: 204,
      headers: {
        "access-control-allow-methods": "GET, POST",
        // Clients in browsers send headers that tell of themselves.
        "access-control-allow-headers": /^[\w\-, ]+$/.test(asked)
          ? asked
          : "authorization, content-type",
        "access-control-max-age": "600",
      },
    });
  }

  /** Adds what lets a browser show the response to the page. */
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

/** Whether a host name means this machine whatever a name server says. */
function isLocal(hostname: string): boolean {
  return hostname === "localhost" || hostname.endsWith(".localhost") || hostname === "[::1]" ||
    /^127(\.\d{1,3}){3}$/.test(hostname);
}

/** Of equal length, so that comparing takes the same time. */
function hash(text: string): Uint8Array {
  return createHash("sha256").update(text).digest();
}
