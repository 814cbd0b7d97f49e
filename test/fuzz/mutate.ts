/** Damages valid input at random. */
import type { JsonObject, JsonValue } from "../../src/formats/json.ts";
import { isJsonObject } from "../../src/formats/json.ts";
import type { Random } from "../support/random.ts";

/** Lengths, counts and offsets at which parsers go wrong. */
const EDGES = [
  0n,
  1n,
  2n,
  255n,
  2n ** 16n,
  2n ** 31n - 1n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 32n,
  2n ** 40n,
  2n ** 53n - 1n,
  2n ** 53n,
  2n ** 60n,
  2n ** 63n - 1n,
  2n ** 63n,
  2n ** 64n - 1n,
];

/** Number of changes: usually one, which gets furthest before it is detected, at most four. */
export function changeCount(random: Random): number {
  return random.chance(2 / 3) ? 1 : random.int(2, 4);
}

/** Returns a copy of `bytes` with one to four random changes. */
export function mutateBytes(
  bytes: Uint8Array<ArrayBuffer>,
  random: Random,
): Uint8Array<ArrayBuffer> {
  let mutant = bytes.slice();
  for (let left = changeCount(random); left > 0 && mutant.length > 0; left--) {
    mutant = mutateOnce(mutant, random);
  }
  return mutant;
}

function mutateOnce(bytes: Uint8Array<ArrayBuffer>, random: Random): Uint8Array<ArrayBuffer> {
  const at = random.int(0, bytes.length - 1);
  const end = at + 1 + random.int(0, Math.min(64, bytes.length - at) - 1);
  switch (random.int(0, 7)) {
    case 0: // a flipped bit
      bytes[at]! ^= 1 << random.int(0, 7);
      return bytes;
    case 1: // another byte
      bytes[at] = random.pick([0, 1, 0x7f, 0x80, 0xff, random.int(0, 255)]);
      return bytes;
    case 2: // cut off
      return bytes.slice(0, at);
    case 3: // a length or an offset replaced
    case 4:
      return replaceNumber(bytes, random);
    case 5: // a range copied over another place
      bytes.copyWithin(random.int(0, bytes.length - 1), at, end);
      return bytes;
    case 6: // a range taken out
      return splice(bytes, at, end, new Uint8Array());
    default: // a range put in once more
      return splice(bytes, at, at, bytes.slice(at, end));
  }
}

function replaceNumber(bytes: Uint8Array<ArrayBuffer>, random: Random): Uint8Array<ArrayBuffer> {
  const wide = random.chance(1 / 2);
  const width = wide ? 8 : 4;
  if (bytes.length < width) return bytes;
  const at = random.int(0, bytes.length - width);
  const view = new DataView(bytes.buffer);
  const near = BigInt(random.int(0, 2 * bytes.length - 1));
  const value = random.chance(1 / 2) ? random.pick(EDGES) : near;
  if (wide) view.setBigUint64(at, value, true);
  else view.setUint32(at, Number(value & 0xffffffffn), true);
  return bytes;
}

function splice(bytes: Uint8Array, from: number, to: number, insert: Uint8Array) {
  const result = new Uint8Array(bytes.length - (to - from) + insert.length);
  result.set(bytes.subarray(0, from));
  result.set(insert, from);
  result.set(bytes.subarray(to), from + insert.length);
  return result;
}

/** Returns a copy of a text with characters and ranges changed, dropped, repeated or moved. */
export function mutateText(text: string, random: Random): string {
  let mutant = text;
  for (let left = changeCount(random); left > 0 && mutant.length > 0; left--) {
    const at = random.int(0, mutant.length - 1);
    const end = at + 1 + random.int(0, Math.min(24, mutant.length - at) - 1);
    const to = random.int(0, mutant.length - 1);
    const piece = mutant.slice(at, end);
    switch (random.int(0, 3)) {
      case 0:
        mutant = mutant.slice(0, at) + random.pick([..."{}%#()[]|.,=~'\"\\\n -*9xé\0"]) +
          mutant.slice(at + 1);
        break;
      case 1:
        mutant = mutant.slice(0, at) + mutant.slice(end);
        break;
      case 2:
        mutant = mutant.slice(0, to) + piece + mutant.slice(to);
        break;
      default:
        mutant = mutant.slice(0, to) + piece.repeat(1 + random.int(0, 49)) + mutant.slice(to);
    }
  }
  return mutant;
}

/**
 * Returns a copy of a JSON object with one to four values replaced, removed, renamed or swapped.
 */
export function mutateJson(json: JsonObject, random: Random): JsonObject {
  const mutant = structuredClone(json);
  for (let left = changeCount(random); left > 0; left--) {
    const place = pickPlace(mutant, random);
    const other = pickPlace(mutant, random);
    if (place !== undefined && other !== undefined) mutatePlace(place, other, random);
  }
  return mutant;
}

interface Place {
  readonly holder: JsonValue[] | JsonObject;
  readonly key: string;
}

/** Descends a random number of levels, so that large arrays do not attract every change. */
function pickPlace(root: JsonObject, random: Random): Place | undefined {
  let place: Place | undefined;
  let value: JsonValue | undefined = root;
  while (Array.isArray(value) || isJsonObject(value)) {
    const keys = Object.keys(value);
    if (keys.length === 0 || (place !== undefined && random.chance(1 / 4))) break;
    place = { holder: value, key: random.pick(keys) };
    value = read(place);
  }
  return place;
}

function read({ holder, key }: Place): JsonValue | undefined {
  return Array.isArray(holder) ? holder[Number(key)] : holder[key];
}

function write({ holder, key }: Place, value: JsonValue): void {
  if (Array.isArray(holder)) {
    holder[Number(key)] = value;
    return;
  }
  // Plain assignment to "__proto__" would change the prototype.
  const property = { value, configurable: true, enumerable: true, writable: true };
  Object.defineProperty(holder, key, property);
}

function remove({ holder, key }: Place): void {
  if (Array.isArray(holder)) holder.splice(Number(key), 1);
  else delete holder[key];
}

function repeat(place: Place, random: Random): void {
  const { holder, key } = place;
  const value = structuredClone(read(place) ?? null);
  if (Array.isArray(holder)) holder.push(value);
  else write({ holder, key: random.pick(["", "__proto__", "type", `${key} `]) }, value);
}

function mutatePlace(place: Place, other: Place, random: Random): void {
  switch (random.int(0, 5)) {
    case 0:
      return remove(place);
    case 1:
      return repeat(place, random);
    case 2:
      return write(place, structuredClone(read(other) ?? null));
    default:
      return write(place, strangeValue(read(place), random));
  }
}

function strangeValue(value: JsonValue | undefined, random: Random): JsonValue {
  if (typeof value === "string" && random.chance(1 / 2)) return mutateText(value, random);
  if (typeof value === "number" && random.chance(1 / 2)) {
    return value + random.pick([-1, 1, 0.5, 1e9]);
  }
  const nested: JsonValue[] = [[[[[]]]]];
  return random.pick<JsonValue>([
    null,
    true,
    false,
    0,
    -1,
    1.5,
    1e308,
    2 ** 31,
    2 ** 53,
    "",
    "..",
    "\ud800",
    "(a+)+$",
    "x".repeat(2000),
    [],
    {},
    nested,
    [0, "a", null],
    { type: "Sequence" },
  ]);
}
