import { dirname } from "node:path";
import { createHash } from "node:crypto";
import { ForgeError } from "../errors.ts";
import { reasonOf } from "../formats/file.ts";
import { Interruption, persist, request as ask } from "./http.ts";

/** A checksum of a file's bytes, or its Git blob id. */
export interface Checksum {
  readonly kind: "SHA-256" | "Git blob";
  /** In hexadecimal. */
  readonly value: string;
}

/** One file to download. */
interface Download {
  readonly url: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: number | undefined;
  readonly checksum: Checksum | undefined;
  /** Called as bytes arrive, with the number the file has so far. */
  readonly onProgress?: ((bytes: number) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /**
   * Time without a byte after which the connection counts as broken, in milliseconds. @default
   * 60000
   */
  readonly stallMs?: number | undefined;
  /** Connections that fetch chunks of a large file at a time. @default 4 */
  readonly connections?: number | undefined;
  /**
   * Bytes of a chunk, which stays in memory until those before it are written. Hubs limit requests,
   * so that small chunks would be refused. @default 16 MiB
   */
  readonly chunkBytes?: number | undefined;
}

const NO_SUCH_RANGE = 416;

/** Path of an incomplete file. */
export function partPath(path: string): string {
  return `${path}.part`;
}

/** Path of the ETag of an incomplete file. */
function etagPath(part: string): string {
  return `${part}.etag`;
}

/** Files that an interrupted download leaves. */
export function partFiles(path: string): string[] {
  return [partPath(path), etagPath(partPath(path))];
}

/**
 * Downloads a file, a large one by several connections. Data is written to its
 * {@linkcode partPath}, which is always the beginning of the file. An interrupted download
 * continues from there if the server still has the same file, which the ETag or, without one, the
 * checksum of the complete file shows. The file gets its name only once it is complete and its
 * checksum is right.
 *
 * @throws {ForgeError} `not_found` if the server refuses; `bad_model` for a wrong size or checksum;
 * `device` if the file cannot be written; `cancelled` if the signal is raised, keeping received
 * data
 */
export async function download(request: Download): Promise<void> {
  const part = partPath(request.path);
  await locally(part, () => Deno.mkdir(dirname(part), { recursive: true }));
  const fetchAll = async () => {
    if (await fetchChunks(request, part)) return;
    await persist(request.url, request.signal, () => fetchRest(request, part), () => sizeOf(part));
  };
  const continued = await sizeOf(part) > 0;
  await fetchAll();
  let problem = await problemOf(request, part);
  if (problem !== undefined && continued) {
    // The part may be of another file.
    await discard(request.path);
    await fetchAll();
    problem = await problemOf(request, part);
  }
  if (problem !== undefined) {
    await discard(request.path);
    throw new ForgeError("bad_model", `${request.url} arrived damaged: ${problem}; try again`);
  }
  await locally(part, () => Deno.rename(part, request.path));
  await remove(etagPath(part));
}

/** The server does not send the ranges of bytes that it is asked for, or not of this file. */
class RangesRefused extends Error {}

/**
 * Appends the missing bytes to the partial file by several connections, each of which fetches a
 * chunk at a time. Chunks are written in order, so that the part stays a beginning of the file.
 *
 * @returns false if one connection must fetch the rest: of a small file, of one that could change
 * between the chunks without notice, or if the server does not send ranges
 */
async function fetchChunks(request: Download, part: string): Promise<boolean> {
  const { bytes = 0, checksum, connections = 4, chunkBytes = 16 * 2 ** 20 } = request;
  let received = await sizeOf(part);
  let etag = await readEtag(part);
  if (bytes - received < 2 * chunkBytes) return false;
  if (received > 0 && etag === undefined && checksum === undefined) return false;
  const failed = new AbortController();
  const signals = [failed.signal, ...(request.signal === undefined ? [] : [request.signal])];
  const chunkAt = (from: number): ChunkRequest => ({
    ...request,
    from,
    to: Math.min(from + chunkBytes, bytes),
    etag,
    signal: AbortSignal.any(signals),
    onBytes: (count) => request.onProgress?.(received += count),
  });
  const chunks: Promise<Chunk>[] = [];
  try {
    using file = await locally(part, () => Deno.open(part, { create: true, append: true }));
    let next = received;
    while (next < bytes || chunks.length > 0) {
      // The first chunk gives the ETag that guards the others.
      const most = etag === undefined && next === 0 ? 1 : connections;
      for (; next < bytes && chunks.length < most; next += chunkBytes) {
        const chunk = fetchChunk(chunkAt(next));
        // A failure is noticed when it is the chunk's turn to be written.
        chunk.catch(() => {});
        chunks.push(chunk);
      }
      const { data, response } = await chunks.shift()!;
      if (etag === undefined) {
        etag = strongEtag(response);
        if (etag === undefined && checksum === undefined) throw new RangesRefused();
        if (await sizeOf(part) === 0) await locally(part, () => writeEtag(part, response));
      }
      await locally(part, () => writeAll(file, data));
    }
    return true;
  } catch (error) {
    failed.abort();
    await Promise.allSettled(chunks);
    if (error instanceof RangesRefused) return false;
    throw error;
  }
}

/** A part of a file to fetch. */
interface ChunkRequest extends Download {
  readonly from: number;
  /** The offset after its last byte. */
  readonly to: number;
  /** ETag of the file that it must be of. */
  readonly etag: string | undefined;
  /** Called with the number of each few bytes that arrive. */
  readonly onBytes: (count: number) => void;
}

/** A fetched part of a file, with the last response that brought it. */
interface Chunk {
  readonly data: Uint8Array<ArrayBuffer>;
  readonly response: Response;
}

/** @throws {RangesRefused} if the server sends something else */
async function fetchChunk(request: ChunkRequest): Promise<Chunk> {
  const { from, to, etag, onBytes } = request;
  const data = new Uint8Array(to - from);
  let have = 0;
  let last: Response | undefined;
  await persist(request.url, request.signal, async () => {
    const headers = new Headers(request.headers);
    headers.set("range", `bytes=${from + have}-${to - 1}`);
    if (etag !== undefined) headers.set("if-range", etag);
    const range = `bytes ${from + have}-${to - 1}/${request.bytes}`;
    try {
      await receive(request, headers, (response) => {
        if (response.status !== 206 || response.headers.get("content-range") !== range) {
          throw new RangesRefused();
        }
        last = response;
        return (received) => {
          if (have + received.length > data.length) throw new RangesRefused();
          data.set(received, have);
          have += received.length;
          onBytes(received.length);
          return have === data.length;
        };
      });
      if (have < data.length) throw new Interruption("the connection ended early");
    } catch (error) {
      if (error instanceof Interruption && error.status === NO_SUCH_RANGE) {
        throw new RangesRefused();
      }
      throw error;
    }
  }, () => Promise.resolve(have));
  return { data, response: last! };
}

/**
 * Sends a request and passes the data of its response on as they arrive.
 *
 * @param accept examines the response and returns what takes the data
 * @throws {Interruption} if the connection breaks or brings no data for `stallMs`; what the
 * callbacks throw, if it is a {@linkcode ForgeError} or {@linkcode RangesRefused}
 */
async function receive(
  request: Download,
  headers: Headers,
  accept: (response: Response) => Taker | Promise<Taker>,
): Promise<void> {
  const stalled = new AbortController();
  const signals = [stalled.signal, ...(request.signal === undefined ? [] : [request.signal])];
  const { stallMs = 60_000 } = request;
  const stall = () => stalled.abort(new Error(`no data for ${stallMs / 1000} s`));
  let timer = setTimeout(stall, stallMs);
  let response: Response | undefined;
  try {
    response = await ask(request.url, { headers, signal: AbortSignal.any(signals) });
    const take = await accept(response);
    for await (const data of response.body ?? []) {
      clearTimeout(timer);
      timer = setTimeout(stall, stallMs);
      if (await take(data)) break;
    }
  } catch (error) {
    await response?.body?.cancel().catch(() => {});
    const isKnown = error instanceof ForgeError || error instanceof RangesRefused ||
      error instanceof Interruption || error instanceof Deno.errors.NotCapable;
    throw isKnown ? error : Interruption.from(error);
  } finally {
    clearTimeout(timer);
  }
}

/** Takes data in the order of their arrival; returns true if no more are needed. */
type Taker = (data: Uint8Array) => boolean | Promise<boolean>;

async function writeAll(file: Deno.FsFile, data: Uint8Array): Promise<void> {
  for (let written = 0; written < data.length;) {
    written += await file.write(data.subarray(written));
  }
}

/** Appends the missing bytes to the partial file, by one connection. */
async function fetchRest(request: Download, part: string): Promise<void> {
  let have = await sizeOf(part);
  const etag = await readEtag(part);
  const { bytes: whole = Infinity, checksum } = request;
  if (have > 0 && have === whole && checksum !== undefined) return;
  // A part that cannot be verified is fetched again.
  if (have >= whole || (etag === undefined && checksum === undefined)) {
    await locally(part, () => discard(request.path));
    have = 0;
  }
  const headers = new Headers(request.headers);
  if (have > 0) {
    headers.set("range", `bytes=${have}-`);
    if (etag !== undefined) headers.set("if-range", etag);
  }
  let file: Deno.FsFile | undefined;
  let bytes = have;
  try {
    await receive(request, headers, async (response) => {
      // A server that ignores the range sends the whole file again.
      const appends = response.status === 206 && startOf(response, have) === have;
      const mode = appends ? { append: true } : { write: true, truncate: true };
      const opened = await locally(part, () => Deno.open(part, { create: true, ...mode }));
      file = opened;
      if (!appends) await locally(part, () => writeEtag(part, response));
      bytes = appends ? have : 0;
      return async (data) => {
        bytes += data.length;
        if (bytes > whole) throw await tooLong(request);
        await locally(part, () => writeAll(opened, data));
        request.onProgress?.(bytes);
        return false;
      };
    });
    if (request.bytes !== undefined && bytes < request.bytes) {
      throw new Interruption(`the connection ended after ${bytes} of ${request.bytes} bytes`);
    }
  } catch (error) {
    if (error instanceof Interruption && error.status === NO_SUCH_RANGE) {
      // All of it had arrived, or the file is shorter now.
      await discard(request.path);
    }
    throw error;
  } finally {
    file?.close();
  }
}

/** Returns the offset at which the response body starts. */
function startOf(response: Response, asked: number): number {
  const range = response.headers.get("content-range");
  const [, start] = /^bytes (\d+)-/.exec(range ?? "") ?? [];
  if (start === undefined || Number(start) === asked) return asked;
  if (Number(start) === 0) return 0;
  throw new Error(`it sent the bytes from ${start} on, not from ${asked}`);
}

/** Discards a download that is longer than expected. */
async function tooLong(request: Download): Promise<ForgeError> {
  await discard(request.path);
  return new ForgeError(
    "bad_model",
    `${request.url} arrived damaged: it is longer than its ${request.bytes} bytes; try again`,
  );
}

/**
 * Runs a file operation of the store.
 *
 * @throws {ForgeError} `device` if the system refuses, for example on a full disk; not retried
 */
async function locally<T>(path: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    // Deno's own message names the missing permission.
    if (!(error instanceof Error) || error instanceof Deno.errors.NotCapable) throw error;
    throw new ForgeError(
      "device",
      `cannot write ${path}: ${reasonOf(error)}; FORGE_CACHE names another folder`,
      { cause: error },
    );
  }
}

/** Describes how a file differs from the requested one in size or checksum. */
async function problemOf(request: Download, part: string): Promise<string | undefined> {
  const size = await sizeOf(part);
  if (request.bytes !== undefined && size !== request.bytes) {
    return `it has ${size} bytes instead of ${request.bytes}`;
  }
  if (request.checksum === undefined) return undefined;
  const { kind, value } = request.checksum;
  const actual = await checksumOf(part, kind);
  return actual === value ? undefined : `its ${kind} is ${actual}, not ${value}`;
}

/** Returns the checksum of a file on disk in hexadecimal. */
export async function checksumOf(path: string, kind: Checksum["kind"]): Promise<string> {
  const hash = createHash(kind === "SHA-256" ? "sha256" : "sha1");
  if (kind === "Git blob") hash.update(`blob ${await sizeOf(path)}\0`);
  using file = await Deno.open(path);
  for await (const chunk of file.readable) hash.update(chunk);
  return hash.digest("hex");
}

/** Returns the strong ETag that a partial file was downloaded with. */
async function readEtag(part: string): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(etagPath(part));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Returns the ETag of a response, except a weak one, which does not identify bytes. */
function strongEtag(response: Response): string | undefined {
  const etag = response.headers.get("etag");
  return etag !== null && /^"[!-~]{1,200}"$/.test(etag) ? etag : undefined;
}

/** Stores the ETag of a response next to the partial file. */
async function writeEtag(part: string, response: Response): Promise<void> {
  const etag = strongEtag(response);
  if (etag === undefined) await remove(etagPath(part));
  else await Deno.writeTextFile(etagPath(part), etag);
}

/** Removes the received part of a file. */
async function discard(path: string): Promise<void> {
  for (const each of partFiles(path)) await remove(each);
}

async function remove(path: string): Promise<void> {
  try {
    await Deno.remove(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await Deno.stat(path)).size;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return 0;
    throw error;
  }
}
