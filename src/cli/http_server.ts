/**
 * The HTTP server of `forge serve`: runs a handler on `node:http`, which closes connections whose
 * requests do not arrive. `Deno.serve` waits for the rest of a request's headers without a limit.
 */
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from "node:http";
import type { Socket } from "node:net";
import { setImmediate } from "node:timers";
import { ForgeError } from "../errors.ts";
import { reasonOf } from "../formats/file.ts";
import { quote } from "../formats/quote.ts";
import { checkUrl } from "../serve/http/guard.ts";
import { errorResponse, HttpError } from "../serve/http/http_error.ts";
import type { Handler } from "../serve/mod.ts";

/** Limits of connections, in milliseconds. */
export interface ConnectionLimits {
  /** Time in which the headers of a request must arrive. */
  readonly headersMs: number;
  /** Time in which a whole request must arrive, also when the handler does not read its body. */
  readonly requestMs: number;
  /** Time between two requests of a connection. Clients and proxies keep theirs for up to 60 s. */
  readonly idleMs: number;
  /** Interval of the check of the first two limits. */
  readonly checkMs: number;
}

const LIMITS: ConnectionLimits = {
  headersMs: 20_000,
  requestMs: 60_000,
  idleMs: 75_000,
  checkMs: 5_000,
};

/** A server on one address. Disposing of it shuts it down. */
export class HttpServer implements AsyncDisposable {
  readonly #server: Server;
  readonly #handler: Handler;
  readonly #limits: ConnectionLimits;
  /** Responses in progress. */
  readonly #responses = new Set<Promise<void>>();
  /** Connections on which the rest of an answered request is awaited. */
  readonly #dropping = new Set<Socket>();

  private constructor(handler: Handler, limits: ConnectionLimits) {
    this.#handler = handler;
    this.#limits = limits;
    const options: ServerOptions & { connectionsCheckingInterval: number } = {
      headersTimeout: limits.headersMs,
      requestTimeout: limits.requestMs,
      keepAliveTimeout: limits.idleMs,
      connectionsCheckingInterval: limits.checkMs,
    };
    this.#server = createServer(options, (incoming, outgoing) => {
      const response = this.#respond(incoming, outgoing);
      this.#responses.add(response);
      response.finally(() => this.#responses.delete(response));
    });
  }

  /**
   * Listens on an address.
   *
   * @param port 0 for a free port
   * @throws {ForgeError} `usage` if the address is not available
   */
  static async listen(
    host: string,
    port: number,
    handler: Handler,
    limits: Partial<ConnectionLimits> = {},
  ): Promise<HttpServer> {
    const result = new HttpServer(handler, { ...LIMITS, ...limits });
    const server = result.#server;
    const hostname = host.replace(/^\[(.*)\]$/, "$1");
    try {
      await checkPermission(hostname, port);
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen(port, hostname, resolve);
      });
    } catch (error) {
      throw new ForgeError(
        "usage",
        `cannot listen on ${quote(host)}, port ${port}: ${why(error)}`,
        {
          cause: error,
        },
      );
    }
    return result;
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("the server has ended");
    return `http://${authority(address.address, address.port)}`;
  }

  /** Stops accepting requests, waits for the responses in progress and closes all connections. */
  async shutdown(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#dropping) socket.destroy();
    while (this.#responses.size > 0) await Promise.all(this.#responses);
    this.#server.closeAllConnections();
    await closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.shutdown();
  }

  /** Answers a request. Resolves when the response has been sent or the client has left. */
  async #respond(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const controller = new AbortController();
    const closed = new Promise<void>((resolve) =>
      outgoing.once("close", () => {
        if (!outgoing.writableFinished) controller.abort();
        resolve();
      })
    );
    // A write to a connection that is closed already; the event "close" follows.
    outgoing.on("error", () => {});
    const response = await this.#answer(incoming, controller.signal);
    const isClosing = !this.#server.listening;
    if (isClosing) outgoing.shouldKeepAlive = false;
    outgoing.statusCode = response.status;
    // Unlike `writeHead`, these can be completed by a length.
    for (const [name, value] of response.headers) outgoing.appendHeader(name, value);
    try {
      const restOfRequest = () =>
        isClosing || outgoing.shouldKeepAlive || incoming.complete
          ? undefined
          : this.#dropRest(incoming);
      await sendBody(response, incoming.method === "HEAD", outgoing, restOfRequest);
    } catch {
      // The response broke off, for example since the client reads nothing. A closed connection
      // tells an answer that was cut off from a complete one.
      outgoing.destroy();
    }
    await closed;
    if (!incoming.complete) this.#dropRest(incoming);
  }

  /**
   * Drops the rest of a body that nothing reads, and closes the connection if it takes too long.
   * Many clients read the response only after they have sent their whole body, and closing the
   * connection at once could lose it. Resolves when the rest has arrived or the connection is
   * closed.
   */
  #dropRest(incoming: IncomingMessage): Promise<void> {
    const { socket } = incoming;
    incoming.resume();
    return new Promise((resolve) => {
      if (socket.destroyed) return resolve();
      this.#dropping.add(socket);
      const timer = setTimeout(() => socket.destroy(), this.#limits.requestMs);
      const end = () => {
        clearTimeout(timer);
        this.#dropping.delete(socket);
        incoming.off("end", end);
        socket.off("close", end);
        resolve();
      };
      incoming.once("end", end);
      socket.once("close", end);
    });
  }

  async #answer(incoming: IncomingMessage, signal: AbortSignal): Promise<Response> {
    let request: Request;
    try {
      request = toRequest(incoming, signal, this.url);
    } catch (error) {
      const reason = error instanceof HttpError ? error : new HttpError(400, reasonOf(error));
      return errorResponse(reason);
    }
    return await this.#handler(request);
  }
}

/**
 * @param address URL for a request without a host, as HTTP/1.0 allows
 * @throws {HttpError} 400 if the host is not valid
 * @throws {TypeError} for a method that `Request` does not allow
 */
function toRequest(incoming: IncomingMessage, signal: AbortSignal, address: string): Request {
  const { method = "GET", url: target = "/", rawHeaders } = incoming;
  const { host } = incoming.headers;
  const origin = host === undefined ? address : `http://${host}`;
  // A proxy may send the whole URL.
  const url = /^https?:/i.test(target) ? target : `${origin}${target}`;
  checkUrl(url);
  const headers = new Headers();
  for (let i = 0; i < rawHeaders.length; i += 2) headers.append(rawHeaders[i]!, rawHeaders[i + 1]!);
  // A body that is not read to its end must not close the connection before the response.
  const body = method === "GET" || method === "HEAD"
    ? null
    : ReadableStream.from<Uint8Array<ArrayBuffer>>(incoming.iterator({ destroyOnReturn: false }));
  return new Request(url, { method, headers, body, signal });
}

/**
 * Sends a body at the pace of the client. A body that is complete with its first chunk is sent with
 * its length, a stream in chunks.
 *
 * @param restOfRequest returns what the end of the response must wait for, since it closes the
 * connection
 */
async function sendBody(
  { body }: Response,
  isHead: boolean,
  outgoing: ServerResponse,
  restOfRequest: () => Promise<void> | undefined,
): Promise<void> {
  if (body === null || isHead || outgoing.destroyed) {
    outgoing.end();
    return await body?.cancel();
  }
  const reader = body.getReader();
  let wake = () => {};
  outgoing.on("drain", () => wake());
  outgoing.once("close", () => {
    wake();
    reader.cancel().catch(() => {});
  });
  const send = async (bytes: Uint8Array | undefined) => {
    // A closed connection takes nothing, and no event follows.
    if (outgoing.destroyed || outgoing.write(bytes)) return;
    await new Promise<void>((resolve) => wake = resolve);
  };
  const first = await reader.read();
  const second = reader.read();
  const nextTurn = new Promise<false>((resolve) => setImmediate(() => resolve(false)));
  if (await Promise.race([second.then(({ done }) => done), nextTurn])) {
    const rest = restOfRequest();
    if (rest !== undefined) {
      outgoing.setHeader("content-length", first.value?.length ?? 0);
      outgoing.flushHeaders();
      outgoing.write(first.value ?? "");
      await rest;
      return void outgoing.end();
    }
    return void outgoing.end(first.value);
  }
  await send(first.value);
  for (let chunk = await second; !chunk.done; chunk = await reader.read()) await send(chunk.value);
  outgoing.end();
}

function authority(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/**
 * `node:http` would report a missing permission where no caller can catch it.
 *
 * @throws {Deno.errors.NotCapable}
 */
async function checkPermission(host: string, port: number): Promise<void> {
  const { state } = await Deno.permissions.request({ name: "net", host: authority(host, port) });
  if (state !== "granted") throw new Deno.errors.NotCapable();
}

function why(error: unknown): string {
  if (error instanceof Deno.errors.NotCapable) {
    return "Deno does not permit this address; the command made by deno task install permits the address of " +
      "--host, and deno run needs --allow-net with it";
  }
  switch ((error as NodeJS.ErrnoException).code) {
    case "EADDRINUSE":
      return "another program uses this port; --port 0 chooses a free one";
    case "EADDRNOTAVAIL":
    // Deno reports an address of another machine so.
    case "EINVAL":
      return "this machine has no such address; --host 0.0.0.0 listens on all addresses";
    case "ENOTFOUND":
      return "the name has no address";
    case "EACCES":
      return "the system reserves this port; use a port from 1024";
    default:
      return reasonOf(error);
  }
}
