/**
 * Writes reproducible tar archives (POSIX.1-1988 "ustar"): without owner and time, in the given
 * order.
 */

/** A file or a symbolic link of an archive. */
export interface TarEntry {
  /** Path in the archive, with `/` between names. */
  readonly path: string;
  /** Contents of the file, or target of the link. */
  readonly content: Uint8Array<ArrayBuffer> | { readonly link: string };
  readonly executable: boolean;
}

const blockBytes = 512;

/** Fields of a header: [offset, bytes]. */
const fields = {
  name: [0, 100],
  mode: [100, 8],
  uid: [108, 8],
  gid: [116, 8],
  size: [124, 12],
  mtime: [136, 12],
  checksum: [148, 8],
  type: [156, 1],
  linkName: [157, 100],
  magic: [257, 8],
  prefix: [345, 155],
} as const;

/**
 * Splits a path into the prefix and name fields.
 *
 * @throws {RangeError} if no `/` splits it into parts that fit
 */
function splitPath(path: string): [prefix: string, name: string] {
  const length = (text: string) => new TextEncoder().encode(text).length;
  if (length(path) <= fields.name[1]) return ["", path];
  for (let slash = path.indexOf("/"); slash > 0; slash = path.indexOf("/", slash + 1)) {
    const [prefix, name] = [path.slice(0, slash), path.slice(slash + 1)];
    if (length(prefix) > fields.prefix[1]) break;
    if (length(name) <= fields.name[1]) return [prefix, name];
  }
  throw new RangeError(`the path "${path}" is too long for a tar archive`);
}

function header(entry: TarEntry): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(blockBytes);
  const put = (field: keyof typeof fields, text: string) => {
    const [offset, bytes] = fields[field];
    const encoded = new TextEncoder().encode(text);
    if (encoded.length > bytes) {
      throw new RangeError(`"${text}" of "${entry.path}" is too long for a tar archive`);
    }
    block.set(encoded, offset);
  };
  const octal = (value: number, digits: number) => value.toString(8).padStart(digits, "0");

  const [prefix, name] = splitPath(entry.path);
  const isLink = "link" in entry.content;
  put("name", name);
  put("prefix", prefix);
  put("mode", octal(entry.executable || isLink ? 0o755 : 0o644, 7));
  put("uid", octal(0, 7));
  put("gid", octal(0, 7));
  put("size", octal("link" in entry.content ? 0 : entry.content.length, 11));
  put("mtime", octal(0, 11));
  put("type", isLink ? "2" : "0");
  if ("link" in entry.content) put("linkName", entry.content.link);
  put("magic", "ustar\x0000");
  // The checksum counts its own field as blanks.
  put("checksum", " ".repeat(8));
  put("checksum", `${octal(block.reduce((sum, byte) => sum + byte, 0), 6)}\0 `);
  return block;
}

/**
 * Yields the bytes of an archive.
 *
 * @throws {RangeError} for a path or link that is too long for the format
 */
export async function* tar(
  entries: Iterable<TarEntry> | AsyncIterable<TarEntry>,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  for await (const entry of entries) {
    yield header(entry);
    if ("link" in entry.content) continue;
    yield entry.content;
    const rest = entry.content.length % blockBytes;
    if (rest > 0) yield new Uint8Array(blockBytes - rest);
  }
  yield new Uint8Array(2 * blockBytes);
}
