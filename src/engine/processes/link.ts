/**
 * A connection between two processes that divide a model: each proves that it knows the group's
 * secret, without sending it, and every message carries a code that only they can compute. Content
 * is not encrypted.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { ForgeError } from "../../errors.ts";
import type { JsonObject } from "../../formats/json.ts";

/** A message: an object, and bytes that JSON would not hold well. */
export interface Message {
  readonly body: JsonObject;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Receives what arrives over a link. */
interface Receiver {
  onMessage(message: Message): void;
  /** Called once, when the link has ended, unless this process closed it. */
  onEnd(reason: string): void;
}

/** First bytes of both directions. Another protocol has another number. */
const GREETING = new TextEncoder().encode("forge processes 1\n");
const NONCE_BYTES = 32, CODE_BYTES = 32;

/** Most bytes of a message, and of the first one. */
const MAX_MESSAGE = 256 * 2 ** 20, MAX_HELLO = 2 ** 16;

/** Time in which a peer must answer before it is known, in milliseconds. */
const HANDSHAKE_MS = 10_000;

/** Time between two signs of life, and how many may be missing. */
const PULSE_MS = 5_000, MAX_MISSED = 6;

type Bytes = Uint8Array<ArrayBuffer>;

/** Role of a process in a handshake. */
type Side = "host" | "guest";

/**
 * Proves to the process at the other end of a new connection that this one knows the secret, and
 * demands the same of it. Closes the connection if that fails.
 *
 * @throws {ForgeError} `device` for a peer with another secret, or one that says something else
 */
export async function openLink(conn: Deno.TcpConn, side: Side, secret: string): Promise<Link> {
  const timer = setTimeout(() => close(conn), HANDSHAKE_MS);
  const proof = (label: string, ...nonces: Bytes[]): Bytes => code(secret, label, ...nonces);
  try {
    conn.setNoDelay(true);
    const own: Bytes = Uint8Array.from(randomBytes(NONCE_BYTES));
    await writeAll(conn, concat(GREETING, own));
    const [greeting, nonce] = split(
      await readExactly(conn, GREETING.length + NONCE_BYTES),
      GREETING.length,
    );
    if (!isEqual(greeting, GREETING)) throw new ForgeError("device", "it does not speak forge");
    const [host, guest] = side === "host" ? [own, nonce] : [nonce, own];
    // The guest goes first: a stranger learns nothing of the host but a nonce.
    if (side === "guest") await writeAll(conn, proof("guest", host, guest));
    const told = await readExactly(conn, CODE_BYTES).catch(() => new Uint8Array(0));
    if (!isEqual(told, proof(side === "host" ? "guest" : "host", host, guest))) {
      throw new ForgeError("device", "it has another secret");
    }
    if (side === "host") await writeAll(conn, proof("host", host, guest));
    clearTimeout(timer);
    return new Link(conn, side, proof("messages", host, guest));
  } catch (error) {
    clearTimeout(timer);
    close(conn);
    throw error instanceof ForgeError ? error : new ForgeError("device", "it ended the connection");
  }
}

/** An open link. Only one `receive` or `listen` may be in progress. */
export class Link {
  readonly #conn: Deno.TcpConn;
  readonly #side: Side;
  readonly #key: Bytes;
  #sent = 0n;
  #received = 0n;
  #sending: Promise<void> = Promise.resolve();
  #reading: Promise<void> | undefined;
  #pulse: ReturnType<typeof setInterval> | undefined;
  #missed = 0;
  #watches = false;
  #isClosed = false;

  constructor(conn: Deno.TcpConn, side: Side, key: Bytes) {
    this.#conn = conn;
    this.#side = side;
    this.#key = key;
  }

  /** The address of the other end. */
  get address(): string {
    const { hostname } = this.#conn.remoteAddr;
    return hostname;
  }

  /** Sends a message after those before it. A failure ends the link, which its reader notices. */
  send(body: JsonObject, bytes: Bytes = new Uint8Array(0)): void {
    const json = new TextEncoder().encode(JSON.stringify(body));
    const payload = concat(words(json.length), json, bytes);
    const sealed = this.#code(this.#side, this.#sent++, payload);
    const frame = concat(words(payload.length), payload, sealed);
    this.#sending = this.#sending
      .then(() => writeAll(this.#conn, frame))
      .catch(() => close(this.#conn));
  }

  /** Returns the first message, which must come soon and be small. */
  async receive(): Promise<Message> {
    const timer = setTimeout(() => close(this.#conn), HANDSHAKE_MS);
    try {
      return await this.#next(MAX_HELLO);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Passes all later messages on, and sends a sign of life from time to time. */
  listen(receiver: Receiver, pulseMs = PULSE_MS): void {
    this.#pulse = setInterval(() => {
      this.send({ op: "pulse" });
      // Counted by this process's own clock, which stands still while it is busy itself.
      if (this.#watches && ++this.#missed > MAX_MISSED) close(this.#conn);
    }, pulseMs);
    const pump = async () => {
      for (;;) {
        const message = await this.#next(MAX_MESSAGE);
        this.#missed = 0;
        if (message.body.op !== "pulse") receiver.onMessage(message);
      }
    };
    this.#reading = pump().catch((error) => {
      if (this.#isClosed) return;
      this.close();
      const silent = this.#missed > MAX_MISSED;
      receiver.onEnd(
        silent
          ? `has sent nothing for ${MAX_MISSED * pulseMs / 1000} s`
          : error instanceof ForgeError
          ? error.message
          : "ended",
      );
    });
  }

  /** Ends the link if the peer is silent from now on; a peer that loads a model may be. */
  watch(): void {
    this.#watches = true;
  }

  /**
   * Closes the link once everything is sent and the peer has closed it too, or after a second. A
   * connection that is closed with bytes unread would take back what was sent.
   */
  async finish(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#pulse);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => timer = setTimeout(resolve, 1000));
    const sent = this.#sending.then(() => this.#conn.closeWrite()).catch(() => {});
    await Promise.race([sent.then(() => this.#reading), late]);
    clearTimeout(timer);
    this.close();
  }

  close(): void {
    this.#isClosed = true;
    clearInterval(this.#pulse);
    close(this.#conn);
  }

  async #next(maxBytes: number): Promise<Message> {
    const [length] = asWords(await readExactly(this.#conn, 4));
    if (length! < 4 || length! > maxBytes) throw new ForgeError("device", "sent a broken message");
    const payload = await readExactly(this.#conn, length!);
    const sealed = await readExactly(this.#conn, CODE_BYTES);
    const other = this.#side === "host" ? "guest" : "host";
    if (!isEqual(sealed, this.#code(other, this.#received++, payload))) {
      throw new ForgeError("device", "sent a message that somebody changed");
    }
    const [jsonLength] = asWords(payload.slice(0, 4));
    const json = new TextDecoder().decode(payload.subarray(4, 4 + jsonLength!));
    return { body: JSON.parse(json) as JsonObject, bytes: payload.slice(4 + jsonLength!) };
  }

  #code(from: Side, index: bigint, payload: Bytes): Bytes {
    return code(this.#key, `${from} ${index}`, payload);
  }
}

function code(key: string | Bytes, label: string, ...parts: Bytes[]): Bytes {
  const hmac = createHmac("sha256", key).update(`${label}\n`);
  for (const part of parts) hmac.update(part);
  return Uint8Array.from(hmac.digest());
}

/** Compares in a time that does not depend on the contents. */
function isEqual(a: Bytes, b: Bytes): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}

async function readExactly(conn: Deno.TcpConn, length: number): Promise<Bytes> {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length;) {
    const n = await conn.read(bytes.subarray(at));
    if (n === null) throw new ForgeError("device", "ended");
    at += n;
  }
  return bytes;
}

async function writeAll(conn: Deno.TcpConn, bytes: Bytes): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await conn.write(bytes.subarray(at));
}

function close(conn: Deno.TcpConn): void {
  try {
    conn.close();
  } catch {
    // It is closed already.
  }
}

function concat(...parts: Bytes[]): Bytes {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function split(bytes: Bytes, at: number): [Bytes, Bytes] {
  return [bytes.slice(0, at), bytes.slice(at)];
}

function words(...values: number[]): Bytes {
  return new Uint8Array(Uint32Array.from(values).buffer);
}

function asWords(bytes: Bytes): Uint32Array {
  return new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
}
