/**
 * Processes that divide a model find each other: all others connect to process 0, which checks that
 * they agree with it.
 */
import { ForgeError } from "../../errors.ts";
import {
  checkOptions,
  checkWholeNumber,
  FUNCTION,
  NUMBER,
  type OptionChecks,
  STRING,
} from "../../formats/arguments.ts";
import { reasonOf } from "../../formats/file.ts";
import { isJsonObject, type JsonObject } from "../../formats/json.ts";
import { quote, show } from "../../formats/quote.ts";
import { MAX_DEVICES } from "../limits.ts";
import { type Link, openLink } from "./link.ts";

/** One of several processes, of one or of several machines, that divide a model among them. */
export interface ProcessOptions {
  /** Number of this process, from 0. Process 0 has the prompts and the answers. */
  readonly index: number;
  /** Number of processes. */
  readonly count: number;
  /** Number of this process among those of its machine, which chooses its GPUs. @default 0 */
  readonly localIndex?: number | undefined;
  /** Host name or address of process 0. */
  readonly host: string;
  /** Port on which process 0 waits for the others. */
  readonly port: number;
  /** Text of at least 16 characters that all processes know and nobody else. */
  readonly secret: string;
  /** Seconds after which a process stops waiting for the others. @default 300 */
  readonly timeout?: number | undefined;
  /** Version of the program, which must be the same everywhere. @default "" */
  readonly version?: string | undefined;
  /** Called in process 0 when another process has ended or failed, which ends the group. */
  readonly onLost?: ((error: ForgeError) => void) | undefined;
}

const PROCESS_OPTIONS: OptionChecks<ProcessOptions> = {
  index: NUMBER,
  count: NUMBER,
  localIndex: NUMBER,
  host: STRING,
  port: NUMBER,
  secret: STRING,
  timeout: NUMBER,
  version: STRING,
  onLost: FUNCTION,
};

/** Shortest secret, in characters. */
const MIN_SECRET = 16;

const DEFAULT_TIMEOUT = 300;

/** Time between two attempts to connect, in milliseconds. */
const RETRY_MS = 200;

/** Most connections at a time whose secret has not been checked. */
const MAX_STRANGERS = 128;

/** Facts in which all processes must agree, by the words of an error. */
export type Facts = Readonly<Record<string, string | number>>;

/** A process as the first one knows it. */
export interface Guest {
  readonly link: Link;
  /** The process in messages, such as `process 1 (10.0.0.7)`. */
  readonly name: string;
  /** Facts that the process has told of its devices. */
  readonly devices: JsonObject[];
}

/** @throws {ForgeError} `usage` for an option out of range */
export function checkProcessOptions(options: ProcessOptions): void {
  checkOptions("processes", options, PROCESS_OPTIONS);
  const { index, count, localIndex = 0, port, secret, timeout = DEFAULT_TIMEOUT } = options;
  checkWholeNumber("processes.count", count, 2, MAX_DEVICES);
  checkWholeNumber("processes.index", index, 0, count - 1);
  checkWholeNumber("processes.localIndex", localIndex, 0, MAX_DEVICES - 1);
  checkWholeNumber("processes.port", port, 1, 65535);
  checkWholeNumber("processes.timeout", timeout, 1, 86_400);
  if (secret.length < MIN_SECRET) {
    throw new ForgeError(
      "usage",
      `the secret of the processes has ${secret.length} characters; valid is at least ${MIN_SECRET}`,
    );
  }
}

/**
 * Waits in process 0 until all others have connected, and returns them in their order.
 *
 * @throws {ForgeError} `usage` for a port in use; `device` after the time limit, naming the
 * processes that are missing, and for a process that does not agree, naming what differs
 */
export async function gather(options: ProcessOptions, facts: Facts): Promise<Guest[]> {
  const { count, host, port, secret, timeout = DEFAULT_TIMEOUT } = options;
  const isLocal = /^(localhost|127\.[\d.]+|::1)$/.test(host);
  const listener = listen(isLocal ? host : host.includes(":") ? "::" : "0.0.0.0", port);
  const guests = new Map<number, Guest>();
  let nStrangers = 0, nRejected = 0;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const admit = async (conn: Deno.TcpConn) => {
    if (nStrangers >= MAX_STRANGERS) return conn.close();
    nStrangers++;
    try {
      const link = await openLink(conn, "host", secret);
      try {
        const { body } = await link.receive();
        const index = indexOf(body, count);
        const name = `process ${index} (${link.address})`;
        if (guests.has(index)) {
          throw new ForgeError("device", `two processes have the number ${index}`);
        }
        checkAgreement(name, body.facts, facts);
        guests.set(index, { link, name, devices: devicesOf(body) });
      } catch (error) {
        link.send({ op: "refuse", reason: error instanceof Error ? error.message : String(error) });
        await link.finish();
        reject(error);
      }
    } catch {
      // A stranger, or a process with another secret, is no reason to end the others.
      nRejected++;
    } finally {
      nStrangers--;
    }
    if (guests.size === count - 1) resolve();
  };
  const accept = async () => {
    for await (const conn of listener) void admit(conn);
  };
  const accepting = accept().catch(reject);
  const timer = setTimeout(() => {
    const missing = Array.from({ length: count - 1 }, (_, i) => i + 1).filter((i) =>
      !guests.has(i)
    );
    const refused = nRejected === 0
      ? ""
      : `; ${nRejected} connections came from strangers or with another secret`;
    reject(
      new ForgeError(
        "device",
        `after ${timeout} s of waiting on port ${port}, ${missing.length} of ${count} processes are ` +
          `missing: ${missing.join(", ")}${refused}`,
      ),
    );
  }, 1000 * timeout);
  try {
    await promise;
  } catch (error) {
    for (const { link } of guests.values()) link.close();
    throw error;
  } finally {
    clearTimeout(timer);
    listener.close();
    // Until the loop has ended, the port is in use.
    await accepting;
  }
  return [...guests].sort(([a], [b]) => a - b).map(([, guest]) => guest);
}

function listen(hostname: string, port: number): Deno.TcpListener {
  try {
    return Deno.listen({ hostname, port });
  } catch (error) {
    throw new ForgeError("usage", `cannot wait for processes on port ${port}: ${reasonOf(error)}`);
  }
}

function indexOf({ index }: JsonObject, count: number): number {
  if (typeof index === "number" && Number.isInteger(index) && index > 0 && index < count) {
    return index;
  }
  throw new ForgeError("device", `a process has the number ${show(index)} of ${count}`);
}

function devicesOf({ devices }: JsonObject): JsonObject[] {
  return Array.isArray(devices) ? devices.filter((device) => isJsonObject(device)) : [];
}

function checkAgreement(name: string, theirs: unknown, ours: Facts): void {
  const given = isJsonObject(theirs as JsonObject) ? theirs as JsonObject : {};
  for (const [key, value] of Object.entries(ours)) {
    if (given[key] === value) continue;
    throw new ForgeError(
      "device",
      `${name} has the ${key} ${show(given[key])}, process 0 has ${show(value)}; all processes ` +
        "need the same",
    );
  }
}

/**
 * Connects another process to process 0, again and again until the time limit.
 *
 * @param devices facts of the devices of this process
 * @throws {ForgeError} `device` after the time limit, or if process 0 has another secret
 */
export async function connect(
  options: ProcessOptions,
  facts: Facts,
  devices: readonly JsonObject[],
): Promise<Link> {
  const { index, host, port, secret, timeout = DEFAULT_TIMEOUT } = options;
  const end = performance.now() + 1000 * timeout;
  for (;;) {
    let reason: string;
    try {
      const link = await openLink(await dial(host, port, end), "guest", secret);
      link.send({ op: "join", index, facts: { ...facts }, devices: [...devices] });
      return link;
    } catch (error) {
      if (error instanceof ForgeError) {
        throw new ForgeError(
          "device",
          `process ${index} cannot join process 0 at ${
            quote(host)
          }, port ${port}: ${error.message}`,
        );
      }
      reason = reasonOf(error);
    }
    if (performance.now() > end) {
      throw new ForgeError(
        "device",
        `process ${index} has not reached process 0 at ${quote(host)}, port ${port}, for ` +
          `${timeout} s: ${reason}`,
      );
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/** Connects to an address. An attempt that takes until `end` fails. */
async function dial(hostname: string, port: number, end: number): Promise<Deno.TcpConn> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("no answer")), Math.max(0, end - performance.now()));
  });
  const connecting = Deno.connect({ hostname, port });
  try {
    return await Promise.race([connecting, late]);
  } catch (error) {
    connecting.then((conn) => conn.close(), () => {});
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
