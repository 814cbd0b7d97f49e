/** Binding of the server to an address. */
import { ForgeError } from "../errors.ts";
import { reasonOf } from "../formats/file.ts";
import { quote } from "../formats/quote.ts";
import type { Handler } from "../serve/mod.ts";

/**
 * Serves an address until the server is disposed of.
 *
 * @param port 0 for a free port
 * @throws {ForgeError} `usage` if the address is not available
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
    return "Deno does not permit this address; the command made by deno task install permits the address of " +
      "--host, and deno run needs --allow-net with it";
  }
  if (error instanceof Deno.errors.AddrInUse) {
    return "another program uses this port; --port 0 chooses a free one";
  }
  if (error instanceof Deno.errors.AddrNotAvailable) {
    return "this machine has no such address; --host 0.0.0.0 listens on all addresses";
  }
  if (error instanceof Deno.errors.PermissionDenied) {
    return "the system reserves this port; use a port from 1024";
  }
  return reasonOf(error);
}

/** Returns the URL of an address. */
export function serverUrl({ hostname, port }: Deno.NetAddr): string {
  return `http://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
}
