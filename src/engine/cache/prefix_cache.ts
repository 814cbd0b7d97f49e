import type { KvPages, PageTable } from "./kv_pages.ts";
import type { KnownState, PageStates, StateSnapshots } from "./state_snapshots.ts";
import { commonLength, type TokenList } from "../token_list.ts";

/** A page whose tokens are known. What it holds depends on all pages from the root to it. */
interface Node {
  readonly parent: Node | undefined;
  readonly page: number;
  /** A full page's worth, or fewer where the sequence went no further. */
  readonly tokens: Int32Array;
  readonly key: number;
  /** Pages that go on from here, by the hash of their tokens. */
  readonly children: Map<number, Node>;
  /** Recurrent states after some of the tokens. */
  readonly states: PageStates;
}

/** What the cache holds of a sequence: whole pages, then the beginning of one more. */
export interface PrefixMatch {
  readonly nodes: readonly Node[];
  readonly partial: { readonly node: Node; readonly count: number } | undefined;
  /** Tokens of all of that. */
  readonly length: number;
  /** The state after those tokens, in a model that has any. */
  readonly state?: KnownState | undefined;
}

const NO_MATCH: PrefixMatch = { nodes: [], partial: undefined, length: 0 };

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
  readonly #snapshots: StateSnapshots | undefined;
  readonly #hash: (tokens: Int32Array) => number;
  readonly #roots = new Map<number, Node>();

  /**
   * @param copyPage copies what a page holds onto another, in every layer
   * @param snapshots of recurrent state, in a model that has any: prefixes end where a state is known
   * @param hash of the tokens of one page
   */
  constructor(
    pool: KvPages,
    copyPage: (from: number, to: number) => void,
    snapshots?: StateSnapshots,
    hash: (tokens: Int32Array) => number = hashTokens,
  ) {
    this.#pool = pool;
    this.#copyPage = copyPage;
    this.#snapshots = snapshots;
    this.#hash = hash;
  }

  /** Whether prefixes are known only where a recurrent state is. */
  get hasStates(): boolean {
    return this.#snapshots !== undefined;
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
    const rest = tokens.view(length, Math.min(length + pageTokens, limit));
    if (this.#snapshots !== undefined) {
      return this.#matchState(this.#snapshots, nodes, children, rest);
    }
    const partial = longestMatch(children, rest);
    return { nodes, partial, length: length + (partial?.count ?? 0) };
  }

  /** The longest match, of whole pages and what goes on from them, that ends where a state is known. */
  #matchState(
    snapshots: StateSnapshots,
    nodes: readonly Node[],
    children: ReadonlyMap<number, Node>,
    rest: Int32Array,
  ): PrefixMatch {
    const { pageTokens } = this.#pool;
    let best: PrefixMatch | undefined;
    for (const node of children.values()) {
      const state = snapshots.longest(node.states, commonLength(node.tokens, rest));
      const length = nodes.length * pageTokens + (state?.count ?? 0);
      if (state === undefined || length <= (best?.length ?? 0)) continue;
      best = { nodes, partial: { node, count: state.count }, length, state };
    }
    for (let i = nodes.length - 1; i >= 0 && best === undefined; i--) {
      const node = nodes[i]!;
      const state = snapshots.longest(node.states, pageTokens);
      if (state === undefined) continue;
      const length = i * pageTokens + state.count;
      best = state.count === pageTokens
        ? { nodes: nodes.slice(0, i + 1), partial: undefined, length, state }
        : { nodes: nodes.slice(0, i), partial: { node, count: state.count }, length, state };
    }
    return best ?? NO_MATCH;
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
    const { nodes, partial, state } = match;
    if (state !== undefined) {
      this.#snapshots!.attach(state, (partial?.node ?? nodes.at(-1)!).states, table);
    }
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
    if (copy !== undefined) return length + partial.count;
    if (state === undefined) return length;
    // Whole pages are of no use without the state after them.
    table.release();
    published.last = undefined;
    published.nPages = 0;
    return 0;
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

  /**
   * Makes known the state of a table whose pages are published. One that goes on keeps its own, and a copy is
   * kept where a slot is free; one that is about to be released leaves its own behind.
   */
  publishState(
    table: PageTable,
    published: PublishedPrefix,
    tokens: TokenList,
    computed: number,
    goesOn: boolean,
  ): void {
    const { pageTokens } = this.#pool;
    const { last, nPages } = published;
    if (this.#snapshots === undefined || computed === 0) return;
    const rest = computed - nPages * pageTokens;
    const node = rest === 0
      ? last
      : this.#find(last, tokens.view(nPages * pageTokens, nPages * pageTokens + rest));
    if (node === undefined) return;
    const count = rest === 0 ? pageTokens : rest;
    if (goesOn) this.#snapshots.keepCopy(node.states, count, table);
    else this.#snapshots.keep(node.states, count, table);
  }

  /** The page with exactly these tokens that goes on from another. */
  #find(parent: Node | undefined, tokens: Int32Array): Node | undefined {
    const node = (parent?.children ?? this.#roots).get(this.#hash(tokens));
    return node !== undefined && isSame(node.tokens, tokens) ? node : undefined;
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
    const states: PageStates = published.tail === undefined ? new Map() : this.#withdraw(published);
    const page = table.pages[nPages]!;
    const ids = tokens.view(nPages * pageTokens, nPages * pageTokens + count);
    const siblings = last === undefined ? this.#roots : last.children;
    const key = this.#hash(ids);
    let node = siblings.get(key);
    if (node === undefined) {
      const children = new Map();
      node = this.#add({ parent: last, page, tokens: ids.slice(), key, children, states });
      if (count < pageTokens) published.tail = node;
    } else if (!isSame(node.tokens, ids)) {
      this.#snapshots?.forget(states);
      published.isClosed = true;
      return;
    } else if (count === pageTokens) {
      // Computed twice, by sequences side by side; one copy is enough.
      table.replace(nPages, node.page);
    }
    if (node.states !== states) this.#snapshots?.forget(states);
    if (count < pageTokens) return;
    published.last = node;
    published.nPages++;
  }

  #add(node: Node): Node {
    const siblings = this.#siblings(node);
    siblings.set(node.key, node);
    this.#pool.keep(node.page, () => {
      siblings.delete(node.key);
      this.#snapshots?.forget(node.states);
    });
    return node;
  }

  /** Forgets the page that is still being filled, to make more of it known; returns its states. */
  #withdraw(published: PublishedPrefix): PageStates {
    const { page, key, states } = published.tail!;
    this.#siblings(published.tail!).delete(key);
    this.#pool.unkeep(page);
    published.tail = undefined;
    return states;
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
