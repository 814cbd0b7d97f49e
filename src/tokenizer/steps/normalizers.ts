import { ForgeError } from "../../errors.ts";
import { LIMITS } from "../../formats/limits.ts";
import { toByteLevel } from "../byte_level.ts";
import { Charsmap } from "./charsmap.ts";
import type { Fields } from "./fields.ts";
import { compilePattern } from "./split.ts";

/** Rewrites text before it is cut into pieces. */
export type Normalizer = (text: string) => string;

const SUPPORTED = [
  "Sequence",
  "NFC",
  "NFD",
  "NFKC",
  "NFKD",
  "Lowercase",
  "Prepend",
  "Replace",
  "Strip",
  "StripAccents",
  "BertNormalizer",
  "Precompiled",
  "Nmt",
  "ByteLevel",
] as const;

/** A step of a normalizer or decoder; its result has at most `limit` characters. */
type RewriteStep = (text: string, limit: number) => string;

/**
 * Builds the `normalizer` of a tokenizer.json.
 *
 * @throws ForgeError `bad_model` or `unsupported`
 */
export function readNormalizer(json: Fields | undefined): Normalizer {
  if (json === undefined) return (text) => text;
  return rewriteBy(readSteps(json), json.where);
}

/**
 * Applies steps in order and limits the growth of the text: a few steps that replace each character
 * by a short text could otherwise expand a line to gigabytes.
 *
 * @param where the file and key of the steps, for messages
 */
export function rewriteBy(steps: readonly RewriteStep[], where: string): Normalizer {
  return (text) => {
    const limit = growthLimit(text);
    return steps.reduce(
      (rewritten, step) => checkGrowth(step(rewritten, limit), limit, where),
      text,
    );
  };
}

/** Returns the maximum number of characters that steps may expand a text to. */
export function growthLimit(text: string): number {
  return 1024 + LIMITS.tokenizerGrowth * text.length;
}

/**
 * Returns the result of a step if it is within the limit.
 *
 * @throws ForgeError `bad_model`
 */
export function checkGrowth(result: string, limit: number, where: string): string {
  if (result.length <= limit) return result;
  const most = `${LIMITS.tokenizerGrowth} for each of its characters and 1024 more`;
  throw new ForgeError(
    "bad_model",
    `${where} makes more than ${limit} characters of a text; at most ${most} are made`,
  );
}

function readSteps(json: Fields): RewriteStep[] {
  const type = json.string("type");
  switch (type) {
    case "Sequence":
      return json.objects("normalizers").flatMap(readSteps);
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD":
      return [(text) => text.normalize(type)];
    case "Lowercase":
      return [lowercase];
    case "Prepend": {
      const prefix = json.insert("prepend");
      return [(text) => text === "" ? "" : prefix + text];
    }
    case "Replace":
      return [readReplace(json)];
    case "Strip": {
      const left = json.boolean("strip_left", true), right = json.boolean("strip_right", true);
      return [(text) => strip(text, left, right)];
    }
    case "StripAccents":
      return [(text) => text.replace(/\p{M}+/gu, "")];
    case "BertNormalizer":
      return [readBertNormalizer(json)];
    case "Precompiled": {
      const charsmap = readCharsmap(json, "precompiled_charsmap");
      return charsmap ? [(text, limit) => charsmap.replaceGraphemes(text, limit)] : [];
    }
    case "Nmt":
      return [(text) => text.replace(NMT_REMOVED, "").replace(NMT_SPACES, " ")];
    case "ByteLevel":
      return [toByteLevel];
  }
  throw json.unsupportedType(SUPPORTED);
}

function readCharsmap(json: Fields, key: string): Charsmap | undefined {
  const base64 = json.string(key, "");
  if (base64 === "") return undefined;
  let bytes: Uint8Array;
  try {
    bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    throw json.wrong(key, "bytes in base64");
  }
  return new Charsmap(bytes, json.path(key));
}

function readBertNormalizer(json: Fields): Normalizer {
  const lowercases = json.boolean("lowercase", true);
  return bertNormalizer({
    cleansText: json.boolean("clean_text", true),
    separatesChinese: json.boolean("handle_chinese_chars", true),
    stripsAccents: json.boolean("strip_accents", lowercases),
    lowercases,
  });
}

/** Steps of BERT's normalizer. */
interface BertNormalizerSteps {
  /** Removes control characters and replaces whitespace by spaces. */
  readonly cleansText: boolean;
  /** Puts spaces around Chinese characters, so that each is a word. */
  readonly separatesChinese: boolean;
  readonly stripsAccents: boolean;
  readonly lowercases: boolean;
}

/** Builds the normalizer of BERT. */
export function bertNormalizer(steps: BertNormalizerSteps): Normalizer {
  return (text) => {
    let result = text;
    if (steps.cleansText) {
      result = result.replace(BERT_REMOVED, "").replace(/\p{White_Space}/gu, " ");
    }
    if (steps.separatesChinese) result = result.replace(CHINESE, " $& ");
    if (steps.stripsAccents) result = result.normalize("NFD").replace(/\p{Mn}+/gu, "");
    return steps.lowercases ? lowercase(result) : result;
  };
}

/** Control, format and private characters, except the whitespace among them, and U+FFFD. */
const BERT_REMOVED = /(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}\ufffd]/gu;
/** Chinese characters, as listed by Hugging Face's tokenizers: without U+2B820 to U+2B91F. */
const CHINESE = new RegExp(
  String.raw`[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2b81f}` +
    String.raw`\u{2b920}-\u{2ceaf}\u{2f800}-\u{2fa1f}]`,
  "gu",
);
// deno-lint-ignore no-control-regex
const NMT_REMOVED = /[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]/g;
const NMT_SPACES = /[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]/g;

/** Builds a `Replace`, which is both a normalizer and a decoder. */
export function readReplace(json: Fields): RewriteStep {
  const content = json.insert("content");
  const pattern = compilePattern(json, "pattern");
  return (text, limit) => {
    let replaced = "", done = 0;
    pattern(text, (start, end) => {
      replaced += text.slice(done, start) + content;
      done = end;
      checkGrowth(replaced, limit, json.where);
    });
    return replaced + text.slice(done);
  };
}

/**
 * Lowercases each character separately, so that a final sigma is not special, unlike JavaScript.
 */
function lowercase(text: string): string {
  const lower = text.toLowerCase();
  if (!lower.includes("ς")) return lower;
  return Array.from(text, (character) => character.toLowerCase()).join("");
}

const SPACE_AT_START = /^\p{White_Space}+/u;
// The lookbehind tries a run of spaces only once, at its start: trying each character is quadratic.
const SPACE_AT_END = /(?<!\p{White_Space})\p{White_Space}+$/u;

function strip(text: string, left: boolean, right: boolean): string {
  const rest = left ? text.replace(SPACE_AT_START, "") : text;
  return right ? rest.replace(SPACE_AT_END, "") : rest;
}
