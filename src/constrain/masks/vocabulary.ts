/**
 * The bytes of tokens as a tree in depth-first order: children follow their node, and `ends` gives
 * the end of each subtree.
 */
export interface TokenTree {
  /** The last byte of each node. */
  readonly bytes: Uint8Array;
  /** Number of bytes from the root, including the node's own. */
  readonly depths: Uint32Array;
  /** Index of the node after the last descendant. */
  readonly ends: Int32Array;
  /** The tokens of node `i` are `tokens[first[i]]` up to, but without, `tokens[first[i + 1]]`. */
  readonly first: Int32Array;
  readonly tokens: Int32Array;
  /** Length of the longest token in bytes. */
  readonly depth: number;
}

/** Concatenated bytes of all tokens; token `id` is at `starts[id]` to `starts[id + 1]`. */
export interface TokenBytes {
  readonly bytes: Uint8Array;
  readonly starts: Int32Array;
}

/** Concatenates the bytes that `read` returns for tokens 0 to `size - 1`. */
export function tokenBytes(size: number, read: (id: number) => Uint8Array): TokenBytes {
  const starts = new Int32Array(size + 1);
  let bytes = new Uint8Array(8 * size);
  let end = 0;
  for (let id = 0; id < size; id++) {
    const token = read(id);
    if (end + token.length > bytes.length) {
      const larger = new Uint8Array(2 * bytes.length + token.length);
      larger.set(bytes);
      bytes = larger;
    }
    bytes.set(token, end);
    end += token.length;
    starts[id + 1] = end;
  }
  return { bytes: bytes.slice(0, end), starts };
}

/** Longest token of each tree in bytes. Trees of short tokens share masks between more places. */
const LENGTHS = [8, 24, Infinity];

/** Builds the trees of a vocabulary, by length of token; tokens without bytes are in none. */
export function tokenTrees(tokens: TokenBytes): TokenTree[] {
  const { bytes, starts } = tokens;
  const lengthOf = (id: number) => starts[id + 1]! - starts[id]!;
  const ids = Int32Array.from(starts.subarray(1), (_, id) => id).filter((id) => lengthOf(id) > 0);
  ids.sort((a, b) => {
    const length = Math.min(lengthOf(a), lengthOf(b));
    for (let i = 0; i < length; i++) {
      const difference = bytes[starts[a]! + i]! - bytes[starts[b]! + i]!;
      if (difference !== 0) return difference;
    }
    return lengthOf(a) - lengthOf(b) || a - b;
  });
  return LENGTHS.map((longest, i) => {
    const shortest = LENGTHS[i - 1] ?? 0;
    return tokenTree(
      tokens,
      ids.filter((id) => lengthOf(id) > shortest && lengthOf(id) <= longest),
    );
  }).filter((tree) => tree.tokens.length > 0);
}

/** @param ids sorted by their bytes */
function tokenTree({ bytes: all, starts }: TokenBytes, ids: Int32Array): TokenTree {
  const bytes: number[] = [], depths: number[] = [], ends: number[] = [], first: number[] = [];
  let before = new Uint8Array(0);
  let longest = 0;
  // Nodes from the root to the previous token.
  const path: number[] = [];
  const leave = (depth: number) => {
    while (path.length > depth) ends[path.pop()!] = bytes.length;
  };
  ids.forEach((id, at) => {
    const token = all.slice(starts[id], starts[id + 1]);
    let common = 0;
    while (common < before.length && before[common] === token[common]) common++;
    leave(common);
    for (let depth = common; depth < token.length; depth++) {
      path.push(bytes.length);
      bytes.push(token[depth]!);
      depths.push(depth + 1);
      first.push(at);
    }
    longest = Math.max(longest, token.length);
    before = token;
  });
  leave(0);
  return {
    bytes: Uint8Array.from(bytes),
    depths: Uint32Array.from(depths),
    ends: Int32Array.from(ends),
    first: Int32Array.from([...first, ids.length]),
    tokens: ids,
    depth: longest,
  };
}
