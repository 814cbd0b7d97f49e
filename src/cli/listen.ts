/** Takes an address and serves it. */
import { ForgeError } from "../errors.ts";
import { reasonOf } from "../formats/file.ts";
import { quote } from "../formats/quote.ts";
import type { Handler } from "../serve/mod.ts";

/**
 * Serves an address; it is released when the server is disposed of.
 *
 * @param port 0 for a free one
 * @throws {ForgeError} `usage` for an address that cannot be had
 */
export function bindServer(
  host: string,
  port: number,
  handler: Handler,
): Deno.HttpServer<Deno.NetAddr> {
  const hostname = host.replace(/^\[(.*)\]$/, "$1");
  try {
    return Deno.serve({ hostname, port, onListen: () => {} }, handler);
  } catch (error) {
    throw new ForgeError("usage", `cannot listen on ${quote(host)}, port ${port}: ${why(error)}`, {
      cause: error,
    });
  }
}

function why(error: unknown): string {
  if (error instanceof Deno.errors.NotCapable) {
    return "Deno may not use that address; the command that deno task install makes grants what " +
      "--host names, deno run takes it in --allow-net";
  }
  if (error instanceof Deno.errors.AddrInUse) {
    return "another program listens there; --port 0 takes a free one";
  }
  if (error instanceof Deno.errors.AddrNotAvailable) {
    return "this machine has no such address; --host 0.0.0.0 is all that it has";
  }
  if (error instanceof Deno.errors.PermissionDenied) {
    return "the system reserves that port; from 1024 on they are free to use";
  }
  return reasonOf(error);
}

/** The address as a URL. */
export function serverUrl({ hostname, port }: Deno.NetAddr): string {
  return `http://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
}
