import { fromByteLevel } from "../byte_level.ts";
import type { LeadingStrip } from "../tokenizer.ts";
import type { Fields } from "./fields.ts";
import { checkGrowth, growthLimit, readReplace } from "./normalizers.ts";

/** Converts pieces to text. */
export interface Decoder {
  /**
   * Returns the bytes that a piece adds to a text.
   *
   * @param isFirst true for the first piece of a whole text, which some decoders strip
   */
  readonly toBytes: (piece: string, isFirst: boolean) => Uint8Array;
  /** Prefix that encoding adds to a text and decoding removes. */
  readonly strip: LeadingStrip | undefined;
  /** True if pieces are written in GPT-2's byte alphabet. Added tokens are always plain text. */
  readonly byteLevel: boolean;
}

const SUPPORTED = [
  "ByteLevel",
  "Metaspace",
  "WordPiece",
  "Replace",
  "ByteFallback",
  "Fuse",
  "Strip",
  "Sequence",
] as const;

const encoder = new TextEncoder();

/** Decodes pieces in GPT-2's byte alphabet. */
export const byteLevelDecoder: Decoder = {
  toBytes: (piece) => fromByteLevel(piece) ?? encoder.encode(piece),
  strip: undefined,
  byteLevel: true,
};

/** Decodes SentencePiece pieces: "▁" is a space and "<0x0A>" a byte. */
export function sentencePieceDecoder(stripsSpace: boolean): Decoder {
  return {
    toBytes: (piece) => byteOf(piece) ?? encoder.encode(piece.replaceAll("▁", " ")),
    strip: stripsSpace ? { character: " ", count: 1 } : undefined,
    byteLevel: false,
  };
}

/** A step of a decoder: rewrites a piece, or converts it to bytes, which skips later steps. */
type Step = (piece: string, isFirst: boolean, limit: number) => string | Uint8Array;

/**
 * Builds the `decoder` of a tokenizer.json. Without one, pieces are in the byte alphabet if the
 * pre-tokenizer writes it (`bytes`), else words separated by spaces.
 *
 * @throws ForgeError `bad_model` or `unsupported`
 */
export function readDecoder(json: Fields | undefined, bytes: boolean): Decoder {
  if (json === undefined && bytes) return byteLevelDecoder;
  const steps: Step[] = [];
  let byteLevel = false, fused = false;
  let strip: LeadingStrip | undefined;
  if (json === undefined) steps.push((piece, isFirst) => isFirst ? piece : ` ${piece}`);
  for (const step of json === undefined ? [] : flattenSequence(json)) {
    const type = step.string("type");
    // After Fuse, a step applies to the whole text. Only Strip can be applied piece by piece.
    if (fused && type !== "Strip" && type !== "Fuse") throw step.unsupportedType(["Strip"]);
    if (type === "Fuse") fused = true;
    else if (type === "Strip" && fused) strip = readTextStrip(step);
    else steps.push(readStep(step, type));
    byteLevel ||= type === "ByteLevel";
  }
  const toBytes = (piece: string, isFirst: boolean) => {
    const limit = growthLimit(piece);
    let text = piece;
    for (const step of steps) {
      const result = step(text, isFirst, limit);
      if (typeof result !== "string") return result;
      text = checkGrowth(result, limit, json?.where ?? "decoder");
    }
    return encoder.encode(text);
  };
  return { toBytes, strip, byteLevel };
}

function flattenSequence(json: Fields): Fields[] {
  if (json.string("type") !== "Sequence") return [json];
  return json.objects("decoders").flatMap(flattenSequence);
}

function readStep(json: Fields, type: string): Step {
  switch (type) {
    case "ByteLevel":
      return (piece) => fromByteLevel(piece) ?? piece;
    case "ByteFallback":
      return (piece) => byteOf(piece) ?? piece;
    case "Metaspace":
      return readMetaspace(json);
    case "WordPiece":
      return readWordPiece(json);
    case "Replace": {
      const replace = readReplace(json);
      return (piece, _isFirst, limit) => replace(piece, limit);
    }
    case "Strip":
      return stripPiece(json);
  }
  throw json.unsupportedType(SUPPORTED);
}

/** Returns the byte of a piece such as "<0x0A>", or `undefined`. */
function byteOf(piece: string): Uint8Array | undefined {
  const digits = /^<0x([0-9A-Fa-f]{2})>$/.exec(piece)?.[1];
  return digits === undefined ? undefined : Uint8Array.of(parseInt(digits, 16));
}

/** Replaces marks by spaces. Drops the mark of the first piece if encoding may have added it. */
function readMetaspace(json: Fields): Step {
  const replacement = json.insert("replacement", "▁");
  const prepends = json.boolean("add_prefix_space", true) &&
    json.string("prepend_scheme", "always") !== "never";
  return (piece, isFirst) => piece.replaceAll(replacement, isFirst && prepends ? "" : " ");
}

/** The spaces before punctuation and contractions that `cleanup` removes, in order. */
const CLEANUPS: readonly (readonly [string, string])[] = [
  [" .", "."],
  [" ?", "?"],
  [" !", "!"],
  [" ,", ","],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [" do not", " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
];

function readWordPiece(json: Fields): Step {
  const prefix = json.insert("prefix", "##");
  const cleans = json.boolean("cleanup", true);
  return (piece, isFirst) => {
    let text = piece;
    if (!isFirst) text = piece.startsWith(prefix) ? piece.replace(prefix, "") : ` ${piece}`;
    if (!cleans) return text;
    return CLEANUPS.reduce((cleaned, [from, to]) => cleaned.replaceAll(from, to), text);
  };
}

function readTextStrip(json: Fields): LeadingStrip {
  const character = json.string("content");
  if (json.count("stop", 0) > 0) throw json.wrong("stop", "0 after Fuse");
  return { character, count: json.count("start", 0) };
}

/** Strips each piece separately. */
function stripPiece(json: Fields): Step {
  const character = json.string("content");
  const fromStart = json.count("start", 0), fromEnd = json.count("stop", 0);
  return (piece) => {
    const characters = Array.from(piece);
    let start = 0, end = characters.length;
    while (start < Math.min(fromStart, end) && characters[start] === character) start++;
    for (let cut = 0; cut < fromEnd && end > start && characters[end - 1] === character; cut++) {
      end--;
    }
    return characters.slice(start, end).join("");
  };
}
