/** The hubs: their addresses, and how they list the files of a model. */
import { isJsonObject, type JsonValue } from "../formats/json.ts";
import type { Checksum } from "./download.ts";
import type { HubFile } from "./select_files.ts";

/** A site that has models, each of them a Git repository. */
export interface Hub {
  /** Prefix of the names of its models. */
  readonly prefix: string;
  /** Revision of a name without one. */
  readonly defaultRevision: string;
  readonly address: string;
  /** Another host that redirects to the pages of models. */
  readonly shortHost?: string;
  /** Variable with the address of a mirror. */
  readonly endpointVariable: string;
  /** Variable with a token for models that need access. */
  readonly tokenVariable: string;
  /** Path from the address to the pages and files of models, with slashes. */
  readonly modelsPath: string;
  /** Paths of views of a repository, before the revision and the file, as a regular expression. */
  readonly views: string;
  /** Returns the path from the address to the list of a repository's files. */
  listingPath(repository: string, revision: string): string;
  /** Reads a list of files; returns the key that is missing in other JSON. */
  readListing(body: JsonValue): Listing | string;
  /** Returns the headers of requests with a token. */
  headers(token: string): Readonly<Record<string, string>>;
}

/** Files of a repository with sizes and checksums. */
interface Listing {
  readonly files: readonly HubFile[];
  /** The commit that was listed, if known: the files of a branch that moves must not be mixed. */
  readonly commit: string | undefined;
}

export const HUBS = {
  huggingface: {
    prefix: "",
    defaultRevision: "main",
    address: "https://huggingface.co",
    shortHost: "hf.co",
    endpointVariable: "HF_ENDPOINT",
    tokenVariable: "HF_TOKEN",
    modelsPath: "/",
    views: "tree|blob|resolve",
    listingPath: (repository, revision) =>
      `/api/models/${repository}/revision/${revision}?blobs=true`,
    readListing(body) {
      const { siblings, sha } = isJsonObject(body) ? body : {};
      if (!Array.isArray(siblings)) return "siblings";
      const files = siblings.filter(isJsonObject).flatMap(({ rfilename, size, lfs, blobId }) =>
        hubFile(rfilename, size, isJsonObject(lfs) ? sha256(lfs.sha256) : gitBlob(blobId))
      );
      return { files, commit: isHex(sha, 40) ? sha : undefined };
    },
    headers: (token) => ({ authorization: `Bearer ${token}` }),
  },
  modelscope: {
    prefix: "modelscope:",
    defaultRevision: "master",
    // The address without www redirects to it, and redirects lose the token.
    address: "https://www.modelscope.cn",
    shortHost: "modelscope.cn",
    endpointVariable: "MODELSCOPE_ENDPOINT",
    tokenVariable: "MODELSCOPE_API_TOKEN",
    modelsPath: "/models/",
    views: "tree|resolve|file/view",
    listingPath: (repository, revision) =>
      `/api/v1/models/${repository}/repo/files?Revision=${revision}&Recursive=true`,
    readListing(body) {
      const list = isJsonObject(body) && isJsonObject(body.Data) ? body.Data.Files : undefined;
      if (!Array.isArray(list)) return "Data.Files";
      const files = list.filter(isJsonObject).filter(({ Type }) => Type !== "tree")
        .flatMap(({ Path, Size, Sha256 }) => hubFile(Path, Size, sha256(Sha256)));
      return { files, commit: undefined };
    },
    // ModelScope's own programs send both.
    headers: (token) => ({ authorization: `Bearer ${token}`, cookie: `m_session_id=${token}` }),
  },
} as const satisfies Record<string, Hub>;

/** Name of a hub. */
export type HubName = keyof typeof HUBS;

/** Returns the address of a hub or of its mirror, without a slash at the end. */
export function endpointOf({ address, endpointVariable }: Hub): string {
  return (Deno.env.get(endpointVariable) || address).replace(/\/+$/, "");
}

function hubFile(
  path: JsonValue | undefined,
  size: JsonValue | undefined,
  checksum: Checksum | undefined,
): HubFile[] {
  if (typeof path !== "string") return [];
  const bytes = Number.isSafeInteger(size) && (size as number) >= 0 ? size as number : undefined;
  return [{ path, bytes, checksum }];
}

function isHex(value: JsonValue | undefined, digits: number): value is string {
  return typeof value === "string" && value.length === digits && /^[0-9a-f]+$/.test(value);
}

function sha256(value: JsonValue | undefined): Checksum | undefined {
  return isHex(value, 64) ? { kind: "SHA-256", value } : undefined;
}

function gitBlob(value: JsonValue | undefined): Checksum | undefined {
  return isHex(value, 40) ? { kind: "Git blob", value } : undefined;
}
