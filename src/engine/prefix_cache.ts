import type { KvPages, PageTable } from "./kv_pages.ts";
import { commonLength, type TokenList } from "./token_list.ts";

/** A page whose tokens are known. What it holds depends on all pages from the root to it. */
interface Node {
  readonly parent: Node | undefined;
  readonly page: number;
  /** A full page's worth, or fewer where the sequence went no further. */
  readonly tokens: Int32Array;
  readonly key: number;
  /** Pages that go on from here, by the hash of their tokens. */
  readonly children: Map<number, Node>;
}

/** What the cache holds of a sequence: whole pages, then the beginning of one more. */
export interface PrefixMatch {
  readonly nodes: readonly Node[];
  readonly partial: { readonly node: Node; readonly count: number } | undefined;
  /** Tokens of all of that. */
  readonly length: number;
}

/** How much of one sequence the cache has been told. */
export class PublishedPrefix {
  /** The last whole page; `undefined` before the first. */
  last: Node | undefined = undefined;
  nPages = 0;
  /** The page after those, as far as it was filled when it was published. */
  tail: Node | undefined = undefined;
  /** Nothing more can be published: another page has the same hash. */
  isClosed = false;
}

/**
 * Finds the pages of earlier sequences that begin with the same tokens. The pages form a tree, in which
 * a page is found by the page before it and a hash of its own tokens; the tokens themselves decide.
 *
 * The cache owns no page: it keeps pages for what they hold, and forgets one when it is taken. A page
 * is idle for no longer than those that follow it, so that the one taken first is always a leaf.
 */
export class PrefixCache {
  readonly #pool: KvPages;
  readonly #copyPage: (from: number, to: number) => void;
  readonly #hash: (tokens: Int32Array) => number;
  readonly #roots = new Map<number, Node>();

  /**
   * @param copyPage copies what a page holds onto another, in every layer
   * @param hash of the tokens of one page
   */
  constructor(
    pool: KvPages,
    copyPage: (from: number, to: number) => void,
    hash: (tokens: Int32Array) => number = hashTokens,
  ) {
    this.#pool = pool;
    this.#copyPage = copyPage;
    this.#hash = hash;
  }

  get pageTokens(): number {
    return this.#pool.pageTokens;
  }

  /** The longest prefix of the tokens, at most `limit` of them, whose keys and values are there. */
  match(tokens: TokenList, limit: number): PrefixMatch {
    const { pageTokens } = this.#pool;
    const nodes: Node[] = [];
    let children = this.#roots;
    let length = 0;
    for (; length + pageTokens <= limit; length += pageTokens) {
      const page = tokens.view(length, length + pageTokens);
      const node = children.get(this.#hash(page));
      if (node === undefined || !isSame(node.tokens, page)) break;
      nodes.push(node);
      children = node.children;
    }
    const partial = longestMatch(
      children,
      tokens.view(length, Math.min(length + pageTokens, limit)),
    );
    return { nodes, partial, length: length + (partial?.count ?? 0) };
  }

  /** How many pages a table needs for `length` positions, idle ones of the match among them. */
  pagesNeeded(match: PrefixMatch, length: number): number {
    const inUse = match.nodes.filter(({ page }) => !this.#pool.isIdle(page)).length;
    return this.#pool.pagesFor(length) - inUse;
  }

  /**
   * Puts the pages of a match into an empty table. Those that are whole are shared. One that is not
   * will be written to, so that the table gets a copy.
   *
   * @returns how many tokens the table then holds: fewer than the match when no page is free for a copy
   */
  attach(match: PrefixMatch, table: PageTable, published: PublishedPrefix): number {
    const { nodes, partial } = match;
    for (const { page } of nodes) {
      this.#pool.share(page);
      table.append(page);
    }
    published.last = nodes.at(-1);
    published.nPages = nodes.length;
    const length = nodes.length * this.#pool.pageTokens;
    if (partial === undefined) return length;
    // Held for as long as it is copied: an idle page could itself be taken for the copy.
    this.#pool.share(partial.node.page);
    const copy = this.#pool.allocate();
    if (copy !== undefined) {
      this.#copyPage(partial.node.page, copy);
      table.append(copy);
    }
    this.#pool.release(partial.node.page);
    return length + (copy === undefined ? 0 : partial.count);
  }

  /**
   * Makes known what a table holds.
   *
   * @param computed how many of the tokens that is
   * @param withTail whether the page that is not full yet is made known too; its owner goes on filling it
   */
  publish(
    table: PageTable,
    published: PublishedPrefix,
    tokens: TokenList,
    computed: number,
    withTail: boolean,
  ): void {
    const { pageTokens } = this.#pool;
    while (!published.isClosed && (published.nPages + 1) * pageTokens <= computed) {
      this.#publishNext(table, published, tokens, pageTokens);
    }
    const rest = computed - published.nPages * pageTokens;
    if (withTail && !published.isClosed && rest > (published.tail?.tokens.length ?? 0)) {
      this.#publishNext(table, published, tokens, rest);
    }
  }

  /** Makes known the first `count` tokens of the first page that is not published whole. */
  #publishNext(
    table: PageTable,
    published: PublishedPrefix,
    tokens: TokenList,
    count: number,
  ): void {
    const { pageTokens } = this.#pool;
    const { last, nPages } = published;
    if (published.tail !== undefined) this.#withdraw(published);
    const page = table.pages[nPages]!;
    const ids = tokens.view(nPages * pageTokens, nPages * pageTokens + count);
    const siblings = last === undefined ? this.#roots : last.children;
    const key = this.#hash(ids);
    let node = siblings.get(key);
    if (node === undefined) {
      node = this.#add({ parent: last, page, tokens: ids.slice(), key, children: new Map() });
      if (count < pageTokens) published.tail = node;
    } else if (!isSame(node.tokens, ids)) {
      published.isClosed = true;
      return;
    } else if (count === pageTokens) {
      // Computed twice, by sequences side by side; one copy is enough.
      table.replace(nPages, node.page);
    }
    if (count < pageTokens) return;
    published.last = node;
    published.nPages++;
  }

  #add(node: Node): Node {
    const siblings = this.#siblings(node);
    siblings.set(node.key, node);
    this.#pool.keep(node.page, () => {
      siblings.delete(node.key);
    });
    return node;
  }

  /** Forgets the page that is still being filled, to make more of it known. */
  #withdraw(published: PublishedPrefix): void {
    const { page, key } = published.tail!;
    this.#siblings(published.tail!).delete(key);
    this.#pool.unkeep(page);
    published.tail = undefined;
  }

  #siblings({ parent }: Node): Map<number, Node> {
    return parent === undefined ? this.#roots : parent.children;
  }
}

/** The page that shares the most tokens with the beginning of `tokens`. */
function longestMatch(children: Map<number, Node>, tokens: Int32Array): PrefixMatch["partial"] {
  let best: PrefixMatch["partial"];
  if (tokens.length === 0) return best;
  for (const node of children.values()) {
    const count = commonLength(node.tokens, tokens);
    if (count > (best?.count ?? 0)) best = { node, count };
  }
  return best;
}

function isSame(a: Int32Array, b: Int32Array): boolean {
  return a.length === b.length && commonLength(a, b) === a.length;
}

/** FNV-1a over whole tokens: fast, and no more than a filter before they are compared. */
function hashTokens(tokens: Int32Array): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < tokens.length; i++) hash = Math.imul(hash ^ tokens[i]!, 0x01000193);
  return hash;
}
