/**
 * Philox4x32-10, a random number generator of a counter and a key: J. K. Salmon, M. A. Moraes, R. O. Dror
 * and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
 */
export type Words4 = readonly [number, number, number, number];

/** Four random words, of 32 bits each. */
export function philox4x32(counter: Words4, key: readonly [number, number]): Words4 {
  let [a, b, c, d] = counter;
  let [low, high] = key;
  for (let round = 0; round < 10; round++) {
    const [leftHigh, leftLow] = multiply(0xd2511f53, a);
    const [rightHigh, rightLow] = multiply(0xcd9e8d57, c);
    [a, b, c, d] = [
      (rightHigh ^ b ^ low) >>> 0,
      rightLow,
      (leftHigh ^ d ^ high) >>> 0,
      leftLow,
    ];
    low = (low + 0x9e3779b9) >>> 0;
    high = (high + 0xbb67ae85) >>> 0;
  }
  return [a, b, c, d];
}

/** The uniform number in (0, 1) of one draw. @param seed 64 bits */
export function philoxUniform(seed: bigint, position: number, stream: number): number {
  const key = [
    Number(BigInt.asUintN(32, seed)),
    Number(BigInt.asUintN(32, seed >> 32n)),
  ] as const;
  return (philox4x32([position >>> 0, stream >>> 0, 0, 0], key)[0] + 0.5) * 2 ** -32;
}

/** The high and low 32 bits of a product. */
function multiply(x: number, y: number): readonly [number, number] {
  const xHigh = x >>> 16, xLow = x & 0xffff;
  const middle = xHigh * y, bottom = xLow * y;
  // middle and bottom have 48 bits each, so that all sums are exact.
  const low = (middle % 0x10000) * 0x10000 + bottom;
  const high = Math.floor(middle / 0x10000) + Math.floor(low / 0x100000000);
  return [high, low >>> 0];
}
