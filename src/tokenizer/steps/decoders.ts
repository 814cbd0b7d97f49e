import { fromByteLevel } from "../byte_level.ts";
import type { Fields } from "./fields.ts";
import { readReplace, rewriteBy, type RewriteStep } from "./normalizers.ts";

/** How pieces become text again. */
export interface Decoder {
  /** The bytes of one piece wherever it stands, its leading space included. */
  readonly toBytes: (piece: string) => Uint8Array;
  /** What encoding puts before the text, and decoding takes off its start. */
  readonly strip: LeadingStrip | undefined;
  /** Whether pieces are written in GPT-2's byte alphabet; added tokens then are not. */
  readonly byteLevel: boolean;
}

/** A character that is taken off the start of a text. */
export interface LeadingStrip {
  readonly character: string;
  /** At most how often. */
  readonly count: number;
  /** Whether it belongs to the first piece: a text that begins with an added token has none. */
  readonly ofPiece: boolean;
}

const SUPPORTED = [
  "ByteLevel",
  "Metaspace",
  "Replace",
  "ByteFallback",
  "Fuse",
  "Strip",
  "Sequence",
] as const;

const encoder = new TextEncoder();

/** Pieces in GPT-2's byte alphabet. */
export const byteLevelDecoder: Decoder = {
  toBytes: (piece) => fromByteLevel(piece) ?? encoder.encode(piece),
  strip: undefined,
  byteLevel: true,
};

/** SentencePiece pieces: "▁" is a space and "<0x0A>" a byte. */
export function sentencePieceDecoder(stripsSpace: boolean): Decoder {
  return {
    toBytes: (piece) => byteOf(piece) ?? encoder.encode(piece.replaceAll("▁", " ")),
    strip: stripsSpace ? { character: " ", count: 1, ofPiece: false } : undefined,
    byteLevel: false,
  };
}

/**
 * Builds the `decoder` of a tokenizer.json. Without one, pieces are bytes where `bytes` says that
 * the pre-tokenizer made them so, and text as it is otherwise.
 *
 * @throws ForgeError `bad_model` or `unsupported`
 */
export function readDecoder(json: Fields | undefined, bytes: boolean): Decoder {
  if (json === undefined && bytes) return byteLevelDecoder;
  const rewrites: RewriteStep[] = [];
  let byteLevel = false, byteFallback = false;
  let strip: LeadingStrip | undefined;
  let fused = false;
  for (const step of json === undefined ? [] : flattenSequence(json)) {
    const type = step.string("type");
    // After Fuse a step sees the whole text at once, which only Strip can be made to fit.
    if (fused && type !== "Strip" && type !== "Fuse") throw step.unsupportedType(["Strip"]);
    switch (type) {
      case "ByteLevel":
        byteLevel = true;
        break;
      case "Metaspace": {
        const replacement = step.insert("replacement", "▁");
        rewrites.push((piece) => piece.replaceAll(replacement, " "));
        if (addsSpace(step)) strip = { character: " ", count: 1, ofPiece: true };
        break;
      }
      case "Replace":
        rewrites.push(readReplace(step));
        break;
      case "ByteFallback":
        byteFallback = true;
        break;
      case "Fuse":
        fused = true;
        break;
      case "Strip":
        if (fused) strip = readStrip(step);
        else rewrites.push(stripPiece(step));
        break;
      default:
        throw step.unsupportedType(SUPPORTED);
    }
  }
  const rewrite = rewriteBy(rewrites, json?.where ?? "decoder");
  const toBytes = (piece: string) => {
    const byte = byteFallback ? byteOf(piece) : undefined;
    if (byte) return byte;
    const text = rewrite(piece);
    return (byteLevel ? fromByteLevel(text) : undefined) ?? encoder.encode(text);
  };
  return { toBytes, strip, byteLevel };
}

function flattenSequence(json: Fields): Fields[] {
  if (json.string("type") !== "Sequence") return [json];
  return json.objects("decoders").flatMap(flattenSequence);
}

/** The byte of a piece such as "<0x0A>", or `undefined`. */
function byteOf(piece: string): Uint8Array | undefined {
  const digits = /^<0x([0-9A-Fa-f]{2})>$/.exec(piece)?.[1];
  return digits === undefined ? undefined : Uint8Array.of(parseInt(digits, 16));
}

function addsSpace(metaspace: Fields): boolean {
  return metaspace.boolean("add_prefix_space", true) &&
    metaspace.string("prepend_scheme", "always") !== "never";
}

function readStrip(json: Fields): LeadingStrip {
  const character = json.string("content");
  if (json.count("stop", 0) > 0) throw json.wrong("stop", "0 after Fuse");
  return { character, count: json.count("start", 0), ofPiece: false };
}

/** Strips each piece by itself. */
function stripPiece(json: Fields): RewriteStep {
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
