import { ForgeError } from "../../errors.ts";
import { LIMITS } from "../../formats/limits.ts";
import { toByteLevel } from "../byte_level.ts";
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
  "ByteLevel",
] as const;

/** A part of a normalizer or decoder; what it makes has at most `limit` characters. */
export type RewriteStep = (text: string, limit: number) => string;

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
 * Applies steps one after the other. A few that put a short text in place of each character would
 * otherwise make gigabytes of a line.
 *
 * @param where the place of the steps, for messages
 */
export function rewriteBy(steps: readonly RewriteStep[], where: string): Normalizer {
  return (text) => {
    const limit = 1024 + LIMITS.tokenizerGrowth * text.length;
    return steps.reduce((rewritten, step) => {
      const result = step(rewritten, limit);
      if (result.length > limit) throw grown(where, limit);
      return result;
    }, text);
  };
}

function grown(where: string, limit: number): ForgeError {
  const most = `${LIMITS.tokenizerGrowth} for each of its characters and 1024 more`;
  return new ForgeError(
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
    case "ByteLevel":
      return [toByteLevel];
  }
  throw json.unsupportedType(SUPPORTED);
}

/** Builds a `Replace`, which is a normalizer and a decoder alike. */
export function readReplace(json: Fields): RewriteStep {
  const content = json.insert("content");
  const pattern = compilePattern(json, "pattern");
  return (text, limit) => {
    let replaced = "", done = 0;
    pattern(text, (start, end) => {
      replaced += text.slice(done, start) + content;
      done = end;
      if (replaced.length > limit) throw grown(json.where, limit);
    });
    return done === 0 && replaced === "" ? text : replaced + text.slice(done);
  };
}

/** Lowercase character by character: unlike JavaScript's, a final sigma is no special case. */
function lowercase(text: string): string {
  const lower = text.toLowerCase();
  if (!lower.includes("ς")) return lower;
  return Array.from(text, (character) => character.toLowerCase()).join("");
}

const SPACE_AT_START = /^\p{White_Space}+/u;
// The lookbehind keeps a run of spaces inside the text from being tried at each of its characters.
const SPACE_AT_END = /(?<!\p{White_Space})\p{White_Space}+$/u;

function strip(text: string, left: boolean, right: boolean): string {
  const rest = left ? text.replace(SPACE_AT_START, "") : text;
  return right ? rest.replace(SPACE_AT_END, "") : rest;
}
