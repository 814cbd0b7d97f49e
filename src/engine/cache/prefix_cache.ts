import type { KvPages, PageTable } from "./kv_pages.ts";
import type { KnownState, PageStates, StateSnapshots } from "./state_snapshots.ts";
import { commonLength, type TokenList } from "../token_list.ts";

/** Cached page with its tokens. Its content depends on all pages from the root to it. */
interface Node {
  readonly page: number;
  /** Tokens of a full page, or fewer if the sequence ended within it. */
  readonly tokens: Int32Array;
  readonly key: number;
  /** This page and others that follow the same one. */
  readonly siblings: Map<number, Node>;
  /** Pages that follow this one, by the hash of their tokens. */
  readonly children: Map<number, Node>;
  /** Snapshots of recurrent state after some of the tokens. */
  readonly states: PageStates;
}

/** Cached prefix of a sequence: whole pages, then the beginning of one more. */
interface PrefixMatch {
  readonly nodes: readonly Node[];
  readonly partial: { readonly node: Node; readonly count: number } | undefined;
  /** Number of tokens of the prefix. */
  readonly length: number;
  /** Recurrent state after those tokens, in a model with any. */
  readonly state?: KnownState | undefined;
}

const NO_MATCH: PrefixMatch = { nodes: [], partial: undefined, length: 0 };

/** Part of one sequence that has been published to the cache. */
export class PublishedPrefix {
  /** Last whole page; `undefined` before the first. */
  last: Node | undefined = undefined;
  nPages = 0;
  /** Page after those, with the tokens it held when it was published. */
  tail: Node | undefined = undefined;
  /** True if nothing more can be published because of a hash collision. */
  isClosed = false;
}

/**
 * Finds pages of other sequences that begin with the same tokens. The pages form a tree: a page is
 * looked up by its parent and the hash of its tokens, then its tokens are compared. Sequences with
 * other adapters have a tree of their own.
 *
 * The cache does not count as a user of its pages: it keeps them for their content until they are
 * reused. A page becomes idle after those that follow it, so that the first one reused is always a
 * leaf.
 */
export class PrefixCache {
  readonly #pool: KvPages;
  readonly #copyPage: (from: number, to: number) => void;
  readonly #snapshots: StateSnapshots | undefined;
  readonly #hash: (tokens: Int32Array) => number;
  /** First pages of sequences by the key of their adapters; empty without any. */
  readonly #roots = new Map<string, Map<number, Node>>();

  /**
   * @param copyPage copies a page onto another, in every layer
   * @param snapshots snapshots of recurrent state, in a model with any: prefixes end at a snapshot
   * @param hash hash of the tokens of one page
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

  /** True if prefixes end only where a snapshot of recurrent state exists. */
  get hasStates(): boolean {
    return this.#snapshots !== undefined;
  }

  get pageTokens(): number {
    return this.#pool.pageTokens;
  }

  /** Returns the longest cached prefix of the tokens, at most `limit` of them. */
  match(tokens: TokenList, limit: number): PrefixMatch {
    const { pageTokens } = this.#pool;
    const nodes: Node[] = [];
    let children: ReadonlyMap<number, Node> = this.#roots.get(rootKey(tokens)) ?? NO_PAGES;
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

  /** Returns the longest match of whole pages and their children that ends at a snapshot. */
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

  /**
   * Returns the number of free pages that a table needs for `length` positions, idle ones of the
   * match included.
   */
  pagesNeeded(match: PrefixMatch, length: number): number {
    const inUse = match.nodes.filter(({ page }) => !this.#pool.isIdle(page)).length;
    return this.#pool.pagesFor(length) - inUse;
  }

  /**
   * Puts the pages of a match into an empty table. Whole pages are shared. A partial page will be
   * written, so that the table gets a copy.
   *
   * @returns number of tokens the table then holds: fewer than the match if no page is free for a
   * copy
   */
  attach(
    { nodes, partial, state }: Omit<PrefixMatch, "length">,
    table: PageTable,
    published: PublishedPrefix,
  ): number {
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
    // Shared while it is copied: an idle page could itself be allocated for the copy.
    this.#pool.share(partial.node.page);
    const copy = this.#pool.allocate();
    if (copy !== undefined) {
      this.#copyPage(partial.node.page, copy);
      table.append(copy);
    }
    this.#pool.release(partial.node.page);
    if (copy !== undefined) return length + partial.count;
    if (state === undefined) return length;
    // Whole pages are useless without the state after them.
    table.release();
    published.last = undefined;
    published.nPages = 0;
    return 0;
  }

  /**
   * Gives an empty table what is cached of tokens, at most `most` of them: whole pages, or what a
   * recurrent state has seen. Not allowed during a run.
   *
   * @returns number of tokens the table then holds
   */
  borrow(tokens: TokenList, most: number, table: PageTable): number {
    const match = this.match(tokens, most);
    const whole = this.hasStates ? match : { nodes: match.nodes, partial: undefined };
    return this.attach(whole, table, new PublishedPrefix());
  }

  /**
   * Publishes the pages of a table.
   *
   * @param computed number of tokens computed
   * @param withTail true to publish the page that is not full yet, too; its owner continues to fill
   * it
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
   * Publishes the state of a table whose pages are published. A table in use keeps its slot, and a
   * copy is published if a slot is free; a table about to be released leaves its own slot.
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
    const node = rest === 0 ? last : this.#find(
      last?.children ?? this.#rootOf(tokens),
      tokens.view(nPages * pageTokens, nPages * pageTokens + rest),
    );
    if (node === undefined) return;
    const count = rest === 0 ? pageTokens : rest;
    if (goesOn) this.#snapshots.keepCopy(node.states, count, table);
    else this.#snapshots.keep(node.states, count, table);
  }

  /** Returns the child of a page with exactly these tokens. */
  #find(siblings: ReadonlyMap<number, Node>, tokens: Int32Array): Node | undefined {
    const node = siblings.get(this.#hash(tokens));
    return node !== undefined && isSame(node.tokens, tokens) ? node : undefined;
  }

  /** Publishes the first `count` tokens of the first page that is not published whole. */
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
    const siblings = last?.children ?? this.#rootOf(tokens);
    const key = this.#hash(ids);
    let node = siblings.get(key);
    if (node === undefined) {
      const children = new Map();
      node = this.#add({ page, tokens: ids.slice(), key, siblings, children, states });
      if (count < pageTokens) published.tail = node;
    } else if (!isSame(node.tokens, ids)) {
      this.#snapshots?.forget(states);
      published.isClosed = true;
      return;
    } else if (count === pageTokens) {
      // Two sequences computed the same page at the same time; one copy is enough.
      table.replace(nPages, node.page);
    }
    if (node.states !== states) this.#snapshots?.forget(states);
    if (count < pageTokens) return;
    published.last = node;
    published.nPages++;
  }

  #add(node: Node): Node {
    const { siblings } = node;
    siblings.set(node.key, node);
    this.#pool.keep(node.page, () => {
      siblings.delete(node.key);
      this.#snapshots?.forget(node.states);
    });
    return node;
  }

  /** Removes the page that is still being filled, to publish more of it; returns its snapshots. */
  #withdraw(published: PublishedPrefix): PageStates {
    const { page, key, siblings, states } = published.tail!;
    siblings.delete(key);
    this.#pool.unkeep(page);
    published.tail = undefined;
    return states;
  }

  /** Returns the first pages of sequences with the same adapters; drops empty ones of others. */
  #rootOf(tokens: TokenList): Map<number, Node> {
    const key = rootKey(tokens);
    const known = this.#roots.get(key);
    if (known !== undefined) return known;
    for (const [other, { size }] of this.#roots) if (size === 0) this.#roots.delete(other);
    const root = new Map<number, Node>();
    this.#roots.set(key, root);
    return root;
  }
}

const NO_PAGES: ReadonlyMap<number, Node> = new Map();

function rootKey({ adapters }: TokenList): string {
  return adapters?.key ?? "";
}

/** Returns the page that shares the most tokens with the beginning of `tokens`. */
function longestMatch(
  children: ReadonlyMap<number, Node>,
  tokens: Int32Array,
): PrefixMatch["partial"] {
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

/** FNV-1a over whole tokens: a fast filter before the tokens are compared. */
function hashTokens(tokens: Int32Array): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < tokens.length; i++) hash = Math.imul(hash ^ tokens[i]!, 0x01000193);
  return hash;
}
