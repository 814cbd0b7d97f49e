import { createHash } from "node:crypto";

/**
 * A local hub that serves one repository, as Hugging Face or ModelScope, and records its requests.
 */
export class FakeHub implements AsyncDisposable {
  readonly endpoint: string;
  readonly requests: {
    readonly path: string;
    readonly range: string | null;
    readonly ifRange: string | null;
    /** Headers with the token. */
    readonly secrets: readonly (string | null)[];
  }[] = [];
  /** Statuses of the next responses; 0 serves the request. */
  readonly failures: number[] = [];
  /** Header of failed responses. */
  retryAfter = "0";
  /** Address that downloads are redirected to, as to a content delivery network. */
  redirect: string | undefined;
  /** Truncates the bodies of the next downloads to this many bytes. */
  cutAfter: number | undefined;
  /** Number of downloads to truncate. */
  cuts = 1;
  /** True if a truncated body stalls instead of ending. */
  stalls = false;
  /** True to send ETags and to honour ranges only for the file that the ETag names. */
  sendsEtags = true;
  /** True to include checksums in the file listing. */
  listsChecksums = true;
  /** True to name the commit in the file listing. */
  listsCommits = false;
  /** Response to the next request for the file listing. */
  listing: (() => Response) | undefined;
  /** True to honour range requests. */
  honoursRange = true;
  /** Changes the headers of partial responses, as a faulty server would. */
  editRange: ((headers: Record<string, string>) => void) | undefined;
  /** Called before each download. */
  onDownload: () => void = () => {};
  /** Milliseconds that each download takes. */
  delayMs = 0;
  /** Downloads in progress, and the most there were at a time. */
  readonly open = { now: 0, most: 0 };
  #files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>;
  /** Files by commit. */
  readonly #commits = new Map<string, ReadonlyMap<string, Uint8Array<ArrayBuffer>>>();
  readonly #declared: Record<string, { size?: number; sha256?: string }>;
  readonly #server: Deno.HttpServer<Deno.NetAddr>;

  /** @param declared sizes and checksums to report instead of the true ones */
  constructor(
    files: Record<string, Uint8Array<ArrayBuffer>>,
    declared: Record<string, { size?: number; sha256?: string }> = {},
  ) {
    this.#files = new Map(Object.entries(files));
    this.#declared = declared;
    this.#server = Deno.serve(
      { port: 0, hostname: "127.0.0.1", onListen() {} },
      async (request) => {
        const { open } = this;
        open.most = Math.max(open.most, ++open.now);
        await new Promise((resolve) => setTimeout(resolve, this.delayMs));
        open.now--;
        return this.#answer(request);
      },
    );
    this.endpoint = `http://127.0.0.1:${this.#server.addr.port}`;
  }

  /** Replaces the files of the revision. */
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
    const secrets = [request.headers.get("authorization"), request.headers.get("cookie")];
    this.requests.push({ path, range, ifRange, secrets });
    const failure = this.failures.shift();
    if (failure) {
      return new Response(null, { status: failure, headers: { "retry-after": this.retryAfter } });
    }
    if (path.startsWith("/api/models/")) {
      return this.listing?.() ?? Response.json({ siblings: this.#siblings(), sha: this.#commit() });
    }
    if (path.startsWith("/api/v1/models/")) {
      return this.listing?.() ?? Response.json({ Code: 200, Data: { Files: this.#entries() } });
    }
    if (this.redirect !== undefined) {
      return new Response(null, { status: 302, headers: { location: this.redirect + path } });
    }
    this.onDownload();
    const [, revision = "", name = ""] =
      /^(?:\/models)?\/[^/]+\/[^/]+\/resolve\/([^/]+)\/(.+)$/.exec(path) ?? [];
    const data = (this.#commits.get(revision) ?? this.#files).get(name);
    if (data === undefined) return new Response(null, { status: 404 });
    const etag = `"${sha256(data).slice(0, 16)}"`;
    const isSame = ifRange === null || ifRange === etag;
    const honoured = this.honoursRange && isSame && range !== null;
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(honoured ? range : "") ?? [];
    const from = Number(first ?? 0);
    const to = Math.min(last ? Number(last) + 1 : data.length, data.length);
    const headers = {
      "content-range": `bytes ${from}-${to - 1}/${data.length}`,
      ...(this.sendsEtags ? { etag } : {}),
    };
    if (from >= data.length && from > 0) return new Response(null, { status: 416 });
    if (first === undefined) return new Response(this.#body(data), { headers });
    this.editRange?.(headers);
    return new Response(this.#body(data.subarray(from, to)), { status: 206, headers });
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

  #commit(): string | undefined {
    if (!this.listsCommits) return undefined;
    const commit = createHash("sha1").update([...this.#files.values()].join()).digest("hex");
    this.#commits.set(commit, this.#files);
    return commit;
  }

  /** The entries of ModelScope's listing, folders too. */
  #entries() {
    const files = Array.from(this.#files, ([path, data]) => ({
      Path: path,
      Type: "blob",
      Size: data.length,
      Sha256: this.#declared[path]?.sha256 ?? sha256(data),
    }));
    return [{ Path: "sub", Type: "tree", Size: 0, Sha256: "" }, ...files];
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
