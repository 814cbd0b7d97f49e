import type { OutputRequest } from "../../backend.ts";
import type { PageTable } from "../cache/kv_pages.ts";
import type { TokenList } from "../token_list.ts";
import type { TokenMask } from "../generation/token_mask.ts";

/**
 * Proposed draft tokens, and the probability that each is accepted together with all before it.
 */
export interface Proposal {
  readonly tokens: readonly number[];
  readonly odds: readonly number[];
}

/** Proposes draft tokens for one text. */
export interface Drafter {
  /**
   * @param tokens the text so far; it only grows
   * @param most most tokens to propose
   * @param leastOdds least probability of acceptance of a proposed token
   */
  propose(tokens: TokenList, most: number, leastOdds: number): Proposal;
}

/** Sequence that may get draft tokens in a step. */
export interface Prospect {
  readonly tokens: TokenList;
  readonly draft: Draft;
  /** Most draft tokens that fit in a row. */
  readonly room: number;
  /**
   * Tokens of this step that the next one computes again if a draft token is rejected: those before
   * the draft, in a model with recurrent state.
   */
  readonly replayed: number;
  /** Pages of the sequence. */
  readonly table: PageTable;
  /** Number of its tokens whose keys and values are in them. */
  readonly stored: number;
  /**
   * Returns how the token after the last token of a path, or else of the draft itself, is sampled.
   * Its row is meaningless.
   */
  readonly next: (path?: DraftPath) => OutputRequest;
  /**
   * Begins a branch with a token after the first `from` tokens of a path. Returns `undefined` if
   * the token is not allowed or the branch finds no room. Omitted if the draft can only be a chain.
   */
  readonly branch?: (path: DraftPath, from: number, token: number) => DraftBranch | undefined;
}

/** Draft tokens in a row. With a constraint, there is a mask after each. */
export abstract class DraftPath {
  /** Own tokens, after those that a branch shares with another path. */
  protected readonly own: number[] = [];
  /** Masks after the own tokens; empty without a constraint. */
  protected readonly masks: TokenMask[] = [];

  /** Number of draft tokens before the own ones. */
  abstract readonly from: number;
  /** Most draft tokens that can be of use, counted from the text's last token. */
  abstract readonly limit: number;
  /** Tokens that end the text. */
  abstract readonly endTokens: ReadonlySet<number>;
  /** All tokens from the text's last token on. */
  abstract readonly tokens: readonly number[];
  /** Returns the mask after the first `count` tokens; `undefined` without a constraint. */
  abstract mask(count?: number): TokenMask | undefined;

  /** Number of draft tokens up to the last one. */
  get depth(): number {
    return this.from + this.own.length;
  }

  /** Own tokens, which a step computes for this path. */
  get ownTokens(): readonly number[] {
    return this.own;
  }

  /** Adds a draft token. Returns false if it is not allowed or nothing could follow it. */
  add(token: number): boolean {
    if (this.depth >= this.limit || this.endTokens.has(token)) return false;
    const mask = this.mask(this.depth);
    if (mask !== undefined) {
      const next = maskAfter(mask, token);
      if (next === undefined) return false;
      this.masks.push(next);
    }
    this.own.push(token);
    return true;
  }

  /** Removes the own tokens from the `count`-th on. */
  protected cut(count: number): void {
    this.own.length = Math.min(this.own.length, count);
    for (const mask of this.masks.splice(count)) mask.dispose();
  }
}

/**
 * Branch of a draft: other tokens after the first ones of a path. It has pages of its own, so that
 * its keys and values lie at their positions.
 */
export class DraftBranch extends DraftPath implements Disposable {
  readonly parent: DraftPath;
  readonly from: number;
  readonly table: PageTable;
  readonly #draft: Draft;

  /**
   * @param parent path with the token before the branch among its own, or the draft itself
   * @param from number of its tokens that are shared
   * @param table pages, of which the branch takes ownership
   */
  constructor(draft: Draft, parent: DraftPath, from: number, table: PageTable) {
    super();
    this.#draft = draft;
    this.parent = parent;
    this.from = from;
    this.table = table;
  }

  get limit(): number {
    return this.#draft.limit;
  }

  get endTokens(): ReadonlySet<number> {
    return this.#draft.endTokens;
  }

  get tokens(): readonly number[] {
    return [...this.parent.tokens.slice(0, this.from), ...this.own];
  }

  mask(count = 0): TokenMask | undefined {
    return count > this.from ? this.masks[count - this.from - 1] : this.parent.mask(count);
  }

  /** Removes and returns the own tokens and masks. */
  take(): { readonly tokens: readonly number[]; readonly masks: readonly TokenMask[] } {
    return { tokens: this.own.splice(0), masks: this.masks.splice(0) };
  }

  [Symbol.dispose](): void {
    this.cut(0);
    this.table.release();
  }
}

/** Token of a draft whose output a step computes. */
export interface DraftNode {
  /** Path whose own token it is; the draft, for the last certain token. */
  readonly path: DraftPath;
  /** Number of draft tokens up to it. */
  readonly depth: number;
}

/**
 * Draft tokens of a text: a chain, and branches that make it a tree. A step computes them after the
 * certain tokens, with an output at each. The output after a draft token counts if that token and
 * all before it are accepted.
 */
export class Draft extends DraftPath implements Disposable {
  limit = 0;
  readonly from = 0;
  readonly endTokens: ReadonlySet<number>;
  /** Mask of the first token. */
  #first: TokenMask | undefined;
  readonly #branches: DraftBranch[] = [];

  /**
   * @param mask mask of the next token; the draft takes ownership
   * @param endTokens tokens that end the text
   */
  constructor(mask: TokenMask | undefined, endTokens: ReadonlySet<number>) {
    super();
    this.#first = mask;
    this.endTokens = endTokens;
  }

  get tokens(): readonly number[] {
    return this.own;
  }

  /** Branches, each after its parent. */
  get branches(): readonly DraftBranch[] {
    return this.#branches;
  }

  /** Number of draft tokens that can be added. */
  get room(): number {
    return Math.max(0, this.limit - this.own.length);
  }

  mask(count = 0): TokenMask | undefined {
    return count === 0 ? this.#first : this.masks[count - 1];
  }

  /** Only token that may follow the last draft token, if known. */
  get forced(): number | undefined {
    return this.mask(this.depth)?.only;
  }

  /**
   * Adds a branch, a token after the first `from` tokens of a path. Releases the table and returns
   * `undefined` if the token is not allowed.
   */
  branch(
    path: DraftPath,
    from: number,
    token: number,
    table: PageTable,
  ): DraftBranch | undefined {
    const branch = new DraftBranch(this, path, from, table);
    if (branch.add(token)) {
      this.#branches.push(branch);
      return branch;
    }
    branch[Symbol.dispose]();
    return undefined;
  }

  /**
   * Returns the accepted tokens of the tree after the last certain token, which comes first.
   *
   * @param sampled returns the token sampled after a token of the tree, if any
   */
  accepted(sampled: (node: DraftNode) => number | undefined): readonly DraftNode[] {
    const nodes: DraftNode[] = [{ path: this, depth: 0 }];
    for (;;) {
      const { path, depth } = nodes.at(-1)!;
      const token = sampled(nodes.at(-1)!);
      const isNext = (other: DraftPath) => token !== undefined && other.tokens[depth] === token;
      const next = isNext(path)
        ? path
        : this.#branches.find((other) =>
          other.parent === path && other.from === depth && isNext(other)
        );
      if (next === undefined) return nodes;
      nodes.push({ path: next, depth: depth + 1 });
    }
  }

  /** Replaces the tokens after a branch's beginning by those of the branch. */
  select(path: DraftPath): void {
    if (!(path instanceof DraftBranch)) return;
    this.select(path.parent);
    this.cut(path.from);
    const { tokens, masks } = path.take();
    this.own.push(...tokens);
    this.masks.push(...masks);
  }

  /** Advances by a certain token. The draft tokens stay if it is the first of them. */
  advance(token: number): void {
    if (this.own[0] !== token) {
      this.clear();
      this.#first?.accept(token);
      return;
    }
    this.own.shift();
    if (this.#first === undefined) return;
    this.#first.dispose();
    this.#first = this.masks.shift();
  }

  /** Removes all draft tokens. */
  clear(): void {
    this.cut(0);
    for (const branch of this.#branches.splice(0)) branch[Symbol.dispose]();
  }

  /** Ends the draft; no more tokens can be added. */
  [Symbol.dispose](): void {
    this.clear();
    this.#first?.dispose();
    this.#first = undefined;
    this.limit = 0;
  }
}

/** Returns the mask after a token; `undefined` if the token is not allowed or nothing follows. */
function maskAfter(mask: TokenMask, token: number): TokenMask | undefined {
  if (!mask.mayAllow(token)) return undefined;
  let next: TokenMask | undefined;
  try {
    next = mask.fork(token);
    if (!next.isTerminated) {
      next.update();
      return next;
    }
  } catch {
    // The same failure is reported for the text if it gets there.
  }
  next?.dispose();
  return undefined;
}
