import { Constraints } from "../../../src/constrain/constraints.ts";
import type { ConstraintSpec } from "../../../src/constrain/spec.ts";
import type { Constraint } from "../../../src/engine/request/constraint.ts";
import type { Tokenizer } from "../../../src/tokenizer/tokenizer.ts";
import type { Random } from "../../support/random.ts";

const encoder = new TextEncoder();

/**
 * Ids below 256 are bytes; then some words and parts of characters, an end token, a control token.
 */
const WORDS: readonly Uint8Array[] = [
  ...['"', '":', '", "', "{", "}", '{"', "true", "null", "12", " ", ", ", "ab", "é", "日本", '"}'],
].map((word) => encoder.encode(word)).concat([
  Uint8Array.of(0xe6, 0x97), // the beginning of 日
  Uint8Array.of(0xa9, 0x22), // the end of é, and a quote
  // The longest tokens of two trees of tokens, and a longer one.
  ...[8, 24, 26].map((length) => encoder.encode("ab".repeat(length / 2))),
]);
export const END_TOKEN = 256 + WORDS.length;
export const CONTROL_TOKEN = END_TOKEN + 1;
export const EMPTY_TOKEN = END_TOKEN + 2;
const SIZE = END_TOKEN + 3;
/** The model's vocabulary, padded. */
export const VOCAB_SIZE = SIZE + 37;

/**
 * A tokenizer of bytes, some words and parts of characters, with the methods that constraints use.
 */
export const byteTokenizer: Tokenizer = {
  vocabSize: SIZE,
  bosId: undefined,
  eosIds: [END_TOKEN],
  addBos: false,
  addEos: false,
  stripsLeadingSpace: false,
  pair: [],
  description: "bytes",
  encode: (text) => Int32Array.from(encoder.encode(text)),
  encodeInSlices: () => {
    throw new Error("constraints encode no long texts");
  },
  decode: (ids) => decodeTokens([...ids]),
  tokenBytes: (id) =>
    id < 256
      ? Uint8Array.of(id)
      : WORDS[id - 256] ?? (id === CONTROL_TOKEN ? encoder.encode("<control>") : new Uint8Array(0)),
  tokenText: String,
  isSpecial: (id) => id === CONTROL_TOKEN || id === END_TOKEN,
  idOf: () => undefined,
};

/** Returns the text of ids; throws if it is not UTF-8. */
function decodeTokens(ids: readonly number[]): string {
  const bytes = Uint8Array.from(ids.flatMap((id) => [...byteTokenizer.tokenBytes(id)]));
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

/** Runs `work` with constraints that are disposed of afterwards. */
export async function withConstraints<T>(work: (c: Constraints) => Promise<T>): Promise<T> {
  const constraints = new Constraints(byteTokenizer, VOCAB_SIZE, [END_TOKEN]);
  try {
    return await work(constraints);
  } finally {
    constraints.dispose();
  }
}

/** Returns the ids that a mask allows. */
export function allowedIn(mask: Uint32Array): number[] {
  return Array.from({ length: 32 * mask.length }, (_, id) => id)
    .filter((id) => (mask[id >> 5]! >>> (id & 31) & 1) === 1);
}

/**
 * Returns a random text of a constraint, or `undefined` if it has not ended after `most` tokens.
 * End tokens are preferred, because few texts would end otherwise.
 */
export function randomText(
  constraint: Constraint,
  random: Random,
  most = 400,
): string | undefined {
  const state = constraint.start();
  const mask = new Uint32Array(Math.ceil(VOCAB_SIZE / 32));
  const ids: number[] = [];
  try {
    while (!state.isTerminated) {
      if (ids.length === most) return undefined;
      state.fillMask(mask);
      const allowed = allowedIn(mask);
      const closing = allowed.filter((id) => id === END_TOKEN || ENDINGS.has(id));
      const choices = closing.length > 0 && random.uniform() < 0.3 ? closing : allowed;
      const id = choices[random.int(0, choices.length - 1)]!;
      if (id === END_TOKEN) break;
      state.accept(id);
      ids.push(id);
    }
    return decodeTokens(ids);
  } finally {
    state.dispose();
  }
}

const ENDINGS: ReadonlySet<number> = new Set(Array.from('"]}', (c) => c.charCodeAt(0)));

/** True if a text is accepted as a whole. */
export function acceptsText(constraint: Constraint, text: string): boolean {
  const state = constraint.start();
  const mask = new Uint32Array(Math.ceil(VOCAB_SIZE / 32));
  try {
    for (const byte of encoder.encode(text)) {
      state.fillMask(mask);
      if (!allowedIn(mask).includes(byte)) return false;
      state.accept(byte);
    }
    state.fillMask(mask);
    return allowedIn(mask).includes(END_TOKEN);
  } finally {
    state.dispose();
  }
}

/** Shorthands of specifications. */
export const spec = {
  regex: (pattern: string): ConstraintSpec => ({ kind: "regex", pattern }),
  grammar: (source: string): ConstraintSpec => ({ kind: "grammar", source }),
  schema: (schema: unknown): ConstraintSpec => ({
    kind: "json_schema",
    schema: JSON.parse(JSON.stringify(schema)),
  }),
};
