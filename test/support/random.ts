/**
 * Reproducible random test inputs: all numbers derive from one seed, which is new in every run,
 * printed, and can be set by the environment variable `FORGE_TEST_SEED`.
 */

const SEED_VARIABLE = "FORGE_TEST_SEED";

let printedSeed: number | undefined;

/** The seed of this run. */
function testSeed(): number {
  if (printedSeed === undefined) {
    const fixed = Deno.env.get(SEED_VARIABLE);
    printedSeed = fixed === undefined
      ? crypto.getRandomValues(new Uint32Array(1))[0]!
      : Number.parseInt(fixed);
    if (!Number.isSafeInteger(printedSeed)) throw new Error(`${SEED_VARIABLE}="${fixed}"`);
    console.error(`random inputs: repeat them with ${SEED_VARIABLE}=${printedSeed}`);
  }
  return printedSeed;
}

/**
 * The order in which an emulator runs blocks and threads, in the format of `FORGE_EMULATOR_SEED`,
 * derived from the seed of this run.
 */
export function emulatorSeed(): string {
  return String(Math.max(1, testSeed()));
}

/** FNV-1a. */
function hash(text: string, seed: number): number {
  let value = (0x811c9dc5 ^ seed) >>> 0;
  for (let i = 0; i < text.length; i++) {
    value = Math.imul(value ^ text.charCodeAt(i), 0x01000193) >>> 0;
  }
  return value;
}

/** A stream of random numbers: Marsaglia's xorshift128, "Xorshift RNGs", 2003. */
export class Random {
  readonly #name: string;
  readonly #seed: number | undefined;
  #isSeeded = false;
  #x = 0;
  #y = 0;
  #z = 0;
  #w = 0;

  /**
   * Streams of different names are independent, so a test that names its own can be run by itself.
   * The default seed is {@linkcode testSeed}, evaluated when the first number is drawn.
   */
  constructor(name: string, seed?: number) {
    this.#name = name;
    this.#seed = seed;
  }

  #start(): void {
    this.#isSeeded = true;
    const seed = this.#seed ?? testSeed();
    this.#x = hash(`${this.#name}/x`, seed);
    this.#y = hash(`${this.#name}/y`, seed);
    this.#z = hash(`${this.#name}/z`, seed);
    this.#w = hash(`${this.#name}/w`, seed) | 1;
    // Similar names give similar states; mixing spreads the differing bits.
    for (let i = 0; i < 32; i++) this.u32();
  }

  u32(): number {
    if (!this.#isSeeded) this.#start();
    const mixed = this.#x ^ (this.#x << 11);
    this.#x = this.#y;
    this.#y = this.#z;
    this.#z = this.#w;
    this.#w = (this.#w ^ (this.#w >>> 19) ^ mixed ^ (mixed >>> 8)) >>> 0;
    return this.#w;
  }

  /** Uniform in [0, 1). */
  uniform(): number {
    return this.u32() / 2 ** 32;
  }

  /** A whole number from `low` to `high`, inclusive. */
  int(low: number, high: number): number {
    return low + Math.floor(this.uniform() * (high - low + 1));
  }

  chance(probability: number): boolean {
    return this.uniform() < probability;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.int(0, items.length - 1)]!;
  }

  /** A normally distributed number with mean 0: Box and Muller's transform. */
  normal(deviation = 1): number {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return deviation * radius * Math.cos(2 * Math.PI * this.uniform());
  }

  /** `count` float32 numbers from the normal distribution. */
  normals(count: number, deviation = 1): Float32Array<ArrayBuffer> {
    return Float32Array.from({ length: count }, () => this.normal(deviation));
  }

  bytes(count: number): Uint8Array<ArrayBuffer> {
    return Uint8Array.from({ length: count }, () => this.u32() >>> 24);
  }

  /** The whole numbers from 0 to `count - 1` in random order. */
  permutation(count: number): number[] {
    const items = Array.from({ length: count }, (_, i) => i);
    for (let i = count - 1; i > 0; i--) {
      const j = this.int(0, i);
      [items[i], items[j]] = [items[j]!, items[i]!];
    }
    return items;
  }
}
