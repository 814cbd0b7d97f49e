import { createHash } from "node:crypto";

/** A hub on this machine that serves one repository, and remembers what it was asked. */
export class FakeHub implements AsyncDisposable {
  readonly endpoint: string;
  readonly requests: {
    readonly path: string;
    readonly range: string | null;
    readonly ifRange: string | null;
  }[] = [];
  /** Answers with this status instead, once for each entry; 0 lets a request pass. */
  readonly failures: number[] = [];
  /** Ends the body of the next downloads after this many bytes. */
  cutAfter: number | undefined;
  /** How many downloads are cut. */
  cuts = 1;
  /** Whether a body that is cut does not end, but nothing more comes. */
  stalls = false;
  /** True if answers carry an ETag, and a range is only honoured for the file it names. */
  sendsEtags = true;
  /** True if the list of files has checksums. */
  listsChecksums = true;
  /** The answer to the next request for the list of files, in place of the list. */
  listing: (() => Response) | undefined;
  /** Whether range requests are honoured. */
  honoursRange = true;
  #files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>;
  readonly #declared: Record<string, { size?: number; sha256?: string }>;
  readonly #server: Deno.HttpServer<Deno.NetAddr>;

  /** @param declared sizes and checksums to tell instead of the true ones */
  constructor(
    files: Record<string, Uint8Array<ArrayBuffer>>,
    declared: Record<string, { size?: number; sha256?: string }> = {},
  ) {
    this.#files = new Map(Object.entries(files));
    this.#declared = declared;
    this.#server = Deno.serve(
      { port: 0, hostname: "127.0.0.1", onListen() {} },
      (request) => this.#answer(request),
    );
    this.endpoint = `http://127.0.0.1:${this.#server.addr.port}`;
  }

  /** Moves the revision: other files under, perhaps, the same names. */
  replaceFiles(files: Record<string, Uint8Array<ArrayBuffer>>): void {
    this.#files = new Map(Object.entries(files));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }

  #answer(request: Request): Response {
    const path = decodeURIComponent(new URL(request.url).pathname);
    const range = request.headers.get("range");
    const ifRange = request.headers.get("if-range");
    this.requests.push({ path, range, ifRange });
    const failure = this.failures.shift();
    if (failure) return new Response(null, { status: failure, headers: { "retry-after": "0" } });
    if (path.startsWith("/api/models/")) {
      return this.listing?.() ?? Response.json({ siblings: this.#siblings() });
    }
    const name = /^\/[^/]+\/[^/]+\/resolve\/[^/]+\/(.+)$/.exec(path)?.[1] ?? "";
    const data = this.#files.get(name);
    if (data === undefined) return new Response(null, { status: 404 });
    const etag = `"${sha256(data).slice(0, 16)}"`;
    const isSame = ifRange === null || ifRange === etag;
    const honoured = this.honoursRange && isSame && range !== null;
    const from = honoured ? Number(/\d+/.exec(range)?.[0]) : 0;
    const headers = {
      "content-range": `bytes ${from}-${data.length - 1}/${data.length}`,
      ...(this.sendsEtags ? { etag } : {}),
    };
    if (from >= data.length && from > 0) return new Response(null, { status: 416 });
    return from > 0
      ? new Response(this.#body(data.subarray(from)), { status: 206, headers })
      : new Response(this.#body(data), { headers });
  }

  #body(data: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array> {
    const { cutAfter: cut, stalls } = this;
    if (cut === undefined || this.cuts-- <= 0) return data;
    return new ReadableStream({
      start(controller) {
        controller.enqueue(data.subarray(0, cut));
        if (!stalls) controller.close();
      },
    });
  }

  #siblings() {
    return Array.from(this.#files, ([rfilename, data]) => ({
      rfilename,
      size: this.#declared[rfilename]?.size ?? data.length,
      ...(this.listsChecksums
        ? { lfs: { sha256: this.#declared[rfilename]?.sha256 ?? sha256(data) } }
        : {}),
    }));
  }
}

function sha256(data: Uint8Array<ArrayBuffer>): string {
  return createHash("sha256").update(data).digest("hex");
}
