import { type CharSet, type Node, PatternError } from "./ast.ts";
import { emitSet } from "./emit.ts";

/** Maximum number of consecutive choices; known patterns have up to 7. Each can double the time. */
const MOST_CHOICES = 12;

/**
 * Rejects patterns that can take exponential time: repeats of a body that can match the same text
 * in several ways, such as `(a+)+` or `(a|ab|b)*`, and many consecutive choices, such as
 * `a?a?a?a?a?`.
 *
 * A repeat whose body contains no choice is safe. Any other must be deterministic: in the Glushkov
 * automaton of its body (https://en.wikipedia.org/wiki/Glushkov%27s_construction_algorithm), the
 * next character must determine the next state. This is stricter than necessary, but all known
 * pre-tokenizers pass.
 *
 * @throws PatternError
 */
export function rejectExponential(node: Node): void {
  rejectAmbiguousRepeats(node);
  const choices = choicesInARow(node);
  if (choices > MOST_CHOICES) {
    throw new PatternError(`it has ${choices} choices in a row; at most ${MOST_CHOICES} are safe`);
  }
}

function rejectAmbiguousRepeats(node: Node): void {
  if (node.kind === "repeat" && node.max > 1 && !isRigid(node.body)) {
    new Determinism().ends(node, false);
    return;
  }
  for (const child of childrenOf(node)) rejectAmbiguousRepeats(child);
}

function childrenOf(node: Node): readonly Node[] {
  if (node.kind === "sequence") return node.items;
  if (node.kind === "choice") return node.options;
  return "body" in node ? [node.body] : [];
}

/** True if a node matches in at most one way at any position. */
function isRigid(node: Node): boolean {
  if (node.kind === "choice") return false;
  if (node.kind === "repeat" && node.min !== node.max) return false;
  return childrenOf(node).every(isRigid);
}

/** Maximum number of consecutive choices of a match; those of a repeat count as one. */
function choicesInARow(node: Node): number {
  const inside = childrenOf(node).map(choicesInARow);
  if (node.kind === "choice") return 1 + Math.max(...inside);
  if (node.kind === "repeat" && node.max > 1) return isRigid(node) ? 0 : 1;
  const own = node.kind === "repeat" && node.min !== node.max ? 1 : 0;
  return inside.reduce((sum, count) => sum + count, own);
}

/** An occurrence of a set in the pattern: a state of the automaton. */
interface Position {
  readonly set: CharSet;
  readonly ignoreCase: boolean;
  readonly follow: Position[];
}

/** First and last positions of a part; `nullable` is true if the part can match nothing. */
interface Ends {
  readonly first: readonly Position[];
  readonly last: readonly Position[];
  readonly nullable: boolean;
}

const AMBIGUOUS = "it repeats something that can match the same text in more than one way";

class Determinism {
  /** All characters, to search for one that two sets share. */
  #allCharacters: string | undefined;

  /** Returns the ends of a part. @throws PatternError if a repeat in it is ambiguous */
  ends(node: Node, ignoreCase: boolean): Ends {
    switch (node.kind) {
      case "set": {
        const position: Position = { set: node.set, ignoreCase, follow: [] };
        return { first: [position], last: [position], nullable: false };
      }
      case "anchor":
      case "look":
        if (node.kind === "look") rejectAmbiguousRepeats(node.body);
        return { first: [], last: [], nullable: true };
      case "case":
        return this.ends(node.body, node.ignore);
      case "atomic":
        return this.ends(node.body, ignoreCase);
      case "choice":
        return node.options.map((option) => this.ends(option, ignoreCase)).reduce((all, ends) => ({
          first: [...all.first, ...ends.first],
          last: [...all.last, ...ends.last],
          nullable: all.nullable || ends.nullable,
        }));
      case "sequence": {
        const empty: Ends = { first: [], last: [], nullable: true };
        return node.items.map((item) => this.ends(item, ignoreCase)).reduce((before, after) => {
          this.#connect(before.last, after.first);
          return {
            first: before.nullable ? [...before.first, ...after.first] : before.first,
            last: after.nullable ? [...before.last, ...after.last] : after.last,
            nullable: before.nullable && after.nullable,
          };
        }, empty);
      }
      case "repeat": {
        const ends = this.ends(node.body, ignoreCase);
        // Several required repeats could be empty in different ways.
        if (ends.nullable && node.min > 1) throw new PatternError(AMBIGUOUS);
        if (node.max > 1) this.#connect(ends.last, ends.first);
        return { ...ends, nullable: ends.nullable || node.min === 0 };
      }
    }
  }

  #connect(last: readonly Position[], first: readonly Position[]): void {
    for (const position of last) {
      position.follow.push(...first);
      this.#requireDistinct(position.follow);
    }
  }

  #requireDistinct(positions: readonly Position[]): void {
    for (const [i, a] of positions.entries()) {
      for (const b of positions.slice(i + 1)) {
        if (a === b || this.#overlap(a, b)) {
          throw new PatternError(AMBIGUOUS);
        }
      }
    }
  }

  #overlap(a: Position, b: Position): boolean {
    const singles = [singleCharacter(a), singleCharacter(b)];
    if (!singles.includes(undefined)) return singles[0] === singles[1];
    const [left, right] = [a, b].map(({ set, ignoreCase }) =>
      ignoreCase ? `(?i:${emitSet(set)})` : emitSet(set)
    );
    this.#allCharacters ??= everyCharacter();
    return new RegExp(`(?=${left})${right}`, "u").test(this.#allCharacters);
  }
}

/** Returns the code point of a position that matches only one, else `undefined`. */
function singleCharacter({ set, ignoreCase }: Position): number | undefined {
  const [item] = set.items;
  const isSingle = !ignoreCase && !set.negated && !set.and && set.items.length === 1 &&
    item?.kind === "range" && item.low === item.high;
  return isSingle ? item.low : undefined;
}

function everyCharacter(): string {
  const parts: string[] = [];
  for (let start = 0; start < 0x110000; start += 0x800) {
    if (start === 0xd800) continue; // surrogates
    parts.push(String.fromCodePoint(...Array.from({ length: 0x800 }, (_, i) => start + i)));
  }
  return parts.join("");
}
