import type { OutputRequest } from "../src/backend.ts";
import { ForgeError } from "../src/errors.ts";

/** The masks of one step. Those that are equal share a place, unless they are yet to be filled. */
export class MaskTable {
  readonly masks: Uint32Array[] = [];
  /** Words of a mask; 0 when there is none. */
  readonly words: number;
  readonly #places = new Map<Uint32Array, number>();

  /** @throws {ForgeError} `bad_input` when masks differ in length */
  constructor(outputs: readonly OutputRequest[]) {
    const byHash = new Map<number, number[]>();
    for (const { sampling: { mask }, fillMask } of outputs) {
      if (mask === undefined || this.#places.has(mask)) continue;
      const first = this.masks[0] ?? mask;
      if (mask.length !== first.length) {
        throw new ForgeError(
          "bad_input",
          `masks of one step have ${first.length} and ${mask.length} words`,
        );
      }
      const alike = fillMask === undefined ? alikeMasks(byHash, mask) : [];
      const known = alike.find((place) => isEqual(this.masks[place]!, mask));
      const place = known ?? this.masks.push(mask) - 1;
      if (known === undefined) alike.push(place);
      this.#places.set(mask, place);
    }
    this.words = this.masks[0]?.length ?? 0;
  }

  /** The place of a mask; -1 for none. */
  placeOf(mask: Uint32Array | undefined): number {
    return mask === undefined ? -1 : this.#places.get(mask) ?? -1;
  }
}

/** The places of masks with the same hash, a list to add to. */
function alikeMasks(byHash: Map<number, number[]>, mask: Uint32Array): number[] {
  let hash = 0x811c9dc5;
  for (const word of mask) hash = Math.imul(hash ^ word, 0x01000193);
  const known = byHash.get(hash);
  if (known !== undefined) return known;
  const places: number[] = [];
  byHash.set(hash, places);
  return places;
}

function isEqual(a: Uint32Array, b: Uint32Array): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
