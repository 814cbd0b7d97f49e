import type { OutputRequest } from "../src/backend.ts";
import { ForgeError } from "../src/errors.ts";

/** The masks of one step. Equal masks share an entry, unless they are filled later. */
export class MaskTable {
  readonly masks: Uint32Array[] = [];
  /** Words of a mask; 0 without masks. */
  readonly words: number;
  readonly #indices = new Map<Uint32Array, number>();

  /** @throws {ForgeError} `bad_input` if masks differ in length */
  constructor(outputs: readonly OutputRequest[]) {
    const byHash = new Map<number, number[]>();
    for (const { sampling: { mask }, fillMask } of outputs) {
      if (mask === undefined || this.#indices.has(mask)) continue;
      const first = this.masks[0] ?? mask;
      if (mask.length !== first.length) {
        throw new ForgeError(
          "bad_input",
          `masks of one step have ${first.length} and ${mask.length} words`,
        );
      }
      const candidates = fillMask === undefined ? sameHash(byHash, mask) : [];
      const known = candidates.find((index) => isEqual(this.masks[index]!, mask));
      const index = known ?? this.masks.push(mask) - 1;
      if (known === undefined) candidates.push(index);
      this.#indices.set(mask, index);
    }
    this.words = this.masks[0]?.length ?? 0;
  }

  /** Returns the index of a mask of the step; -1 for none. */
  indexOf(mask: Uint32Array | undefined): number {
    return mask === undefined ? -1 : this.#indices.get(mask)!;
  }
}

/** Returns the extendable list of indices of masks with the same hash. */
function sameHash(byHash: Map<number, number[]>, mask: Uint32Array): number[] {
  let hash = 0x811c9dc5;
  for (const word of mask) hash = Math.imul(hash ^ word, 0x01000193);
  const known = byHash.get(hash);
  if (known !== undefined) return known;
  const indices: number[] = [];
  byHash.set(hash, indices);
  return indices;
}

function isEqual(a: Uint32Array, b: Uint32Array): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
