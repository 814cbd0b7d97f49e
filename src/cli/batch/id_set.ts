import { createHash } from "node:crypto";
import type { BatchId } from "../../mod.ts";

/** Initial number of slots; a power of two. */
const FIRST_SLOTS = 1024;

/**
 * A set of ids of any length that takes 16 to 32 bytes per id. It stores 64-bit hashes with a
 * random key: a million ids collide with a probability of 3 in 10^8, which no choice of ids can
 * raise.
 */
export class IdSet {
  readonly #key = crypto.getRandomValues(new Uint8Array(16));
  /** Open addressing: pairs of words, at most half of them used; two zeros are a free slot. */
  #slots = new Uint32Array(2 * FIRST_SLOTS);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  has(id: BatchId): boolean {
    const [high, low] = this.#hash(id);
    return this.#slots[this.#find(high, low)] !== 0;
  }

  /** @returns false if the set has the id already */
  add(id: BatchId): boolean {
    const [high, low] = this.#hash(id);
    const at = this.#find(high, low);
    if (this.#slots[at] !== 0) return false;
    this.#put(at, high, low);
    if (4 * ++this.#size > this.#slots.length) this.#grow();
    return true;
  }

  /** Returns the index of a hash, or of the free slot for it. */
  #find(high: number, low: number): number {
    const slots = this.#slots;
    let at = 2 * (low & (slots.length / 2 - 1));
    while (slots[at] !== 0 && (slots[at] !== high || slots[at + 1] !== low)) {
      at = (at + 2) % slots.length;
    }
    return at;
  }

  #put(at: number, high: number, low: number): void {
    this.#slots[at] = high;
    this.#slots[at + 1] = low;
  }

  #grow(): void {
    const old = this.#slots;
    this.#slots = new Uint32Array(2 * old.length);
    for (let at = 0; at < old.length; at += 2) {
      const [high, low] = [old[at]!, old[at + 1]!];
      if (high !== 0) this.#put(this.#find(high, low), high, low);
    }
  }

  /** Hashes the id as JSON, so that 1 and "1" differ. The first word is never 0. */
  #hash(id: BatchId): readonly [high: number, low: number] {
    const digest = createHash("sha256").update(this.#key).update(JSON.stringify(id)).digest();
    return [digest.readUInt32LE(0) || 1, digest.readUInt32LE(4)];
  }
}
