/** Floats for JSON, with no more digits than tell each from its neighbours. */
export function floatsOf(vector: Float32Array): number[] {
  return Array.from(vector, (value) => Number(value.toPrecision(9)));
}
