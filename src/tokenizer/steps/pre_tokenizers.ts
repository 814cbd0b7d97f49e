import { ForgeError } from "../../errors.ts";
import { toByteLevel } from "../byte_level.ts";
import type { Fields } from "./fields.ts";
import { RUST_WORD } from "../regex/ast.ts";
import {
  compilePattern,
  type Finder,
  regexFinder,
  SPLIT_BEHAVIORS,
  type SplitBehavior,
  splitText,
} from "./split.ts";

/** Receives a piece of text; `atStart` is true for the beginning of the whole text. */
type PieceSink = (piece: string, atStart: boolean) => void;

/** Cuts text into pieces that are tokenized separately. */
export type PreTokenizer = (text: string, atStart: boolean, emit: PieceSink) => void;

/** A pre-tokenizer and the encoding of its pieces. */
interface PreTokenization {
  readonly run: PreTokenizer;
  /** True if pieces are tokenized as bytes in GPT-2's byte alphabet. */
  readonly bytes: boolean;
}

const SUPPORTED = [
  "Sequence",
  "ByteLevel",
  "Split",
  "Digits",
  "Metaspace",
  "Whitespace",
  "WhitespaceSplit",
  "Punctuation",
  "BertPreTokenizer",
] as const;

/** The pattern of GPT-2, which ByteLevel uses by default. */
export const GPT2_PATTERN =
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** Maximum number of steps, since each takes stack; known tokenizers have far fewer. */
const MOST_STEPS = 64;

/** Emits the text as one piece. */
export const wholeText: PreTokenizer = (text, atStart, emit) => emit(text, atStart);

/** Chains pre-tokenizers: each cuts the pieces of the previous one. */
export function chain(steps: readonly PreTokenizer[]): PreTokenizer {
  return steps.reduceRight<PreTokenizer>(
    (rest, step) => (text, atStart, emit) =>
      step(text, atStart, (piece, first) => rest(piece, first, emit)),
    wholeText,
  );
}

/** Creates a pre-tokenizer that cuts at matches. */
export function splitter(find: Finder, behavior: SplitBehavior, invert = false): PreTokenizer {
  return (text, atStart, emit) =>
    splitText(text, find, behavior, invert, (start, end) => {
      emit(text.slice(start, end), atStart && start === 0);
    });
}

/** Cuts before each "▁" that follows another character. */
export const splitBeforeMarkers: PreTokenizer = (text, atStart, emit) => {
  let start = 0;
  for (let at = text.indexOf("▁", 1); at >= 0; at = text.indexOf("▁", at + 1)) {
    if (text[at - 1] === "▁") continue;
    emit(text.slice(start, at), atStart && start === 0);
    start = at;
  }
  emit(text.slice(start), atStart && start === 0);
};

/**
 * Builds the `pre_tokenizer` of a tokenizer.json.
 *
 * @throws ForgeError `bad_model` or `unsupported`
 */
export function readPreTokenizer(json: Fields | undefined): PreTokenization {
  const steps = json === undefined ? [] : flattenSequence(json);
  if (steps.length > MOST_STEPS) {
    throw new ForgeError("unsupported", `${json?.where} has ${steps.length} steps`);
  }
  // A final ByteLevel need not rewrite the pieces: the model reads their bytes.
  const bytes = steps.at(-1)?.string("type") === "ByteLevel";
  const run = chain(steps.map((step, i) => readStep(step, bytes && i === steps.length - 1)));
  return { run, bytes };
}

function flattenSequence(json: Fields): Fields[] {
  if (json.string("type") !== "Sequence") return [json];
  return json.objects("pretokenizers").flatMap(flattenSequence);
}

function readStep(json: Fields, isLastByteLevel: boolean): PreTokenizer {
  switch (json.string("type")) {
    case "ByteLevel":
      return readByteLevel(json, isLastByteLevel);
    case "Split": {
      const behavior = json.oneOf("behavior", SPLIT_BEHAVIORS, "Isolated");
      return splitter(compilePattern(json, "pattern"), behavior, json.boolean("invert", false));
    }
    case "Digits": {
      const behavior = json.boolean("individual_digits", false) ? "Isolated" : "Contiguous";
      return splitter(regexFinder("\\p{N}", json.where), behavior);
    }
    case "Metaspace":
      return readMetaspace(json);
    case "Whitespace":
      return splitter(rustWords, "Removed", true);
    case "BertPreTokenizer":
      return bertPreTokenizer(json.where);
    case "WhitespaceSplit":
      return splitter(regexFinder("\\s", json.where), "Removed");
    case "Punctuation": {
      const behavior = json.oneOf("behavior", SPLIT_BEHAVIORS, "Isolated");
      return splitter(regexFinder(PUNCTUATION, json.where), behavior);
    }
  }
  throw json.unsupportedType(SUPPORTED);
}

/** Punctuation of ASCII, which includes symbols of Unicode, and punctuation of Unicode. */
const PUNCTUATION = "[\\p{P}$+<=>^`|~]";

/** Cuts at whitespace and around each punctuation character, as BERT does. */
export function bertPreTokenizer(where: string): PreTokenizer {
  return chain([
    splitter(regexFinder("\\s", where), "Removed"),
    splitter(regexFinder(PUNCTUATION, where), "Isolated"),
  ]);
}

/** Finds words, and runs without words and whitespace, as Rust's `\w+|[^\w\s]+` does. */
const rustWords: Finder = (text, onMatch) => {
  const pattern = new RegExp(`${RUST_WORD}+|(?:(?!${RUST_WORD})\\P{White_Space})+`, "gu");
  for (const { 0: word, index } of text.matchAll(pattern)) onMatch(index, index + word.length);
};

function readByteLevel(json: Fields, isLast: boolean): PreTokenizer {
  const addPrefixSpace = json.boolean("add_prefix_space", true);
  const steps: PreTokenizer[] = [];
  if (addPrefixSpace) {
    steps.push((text, atStart, emit) => emit(text.startsWith(" ") ? text : ` ${text}`, atStart));
  }
  if (json.boolean("use_regex", true)) {
    steps.push(splitter(regexFinder(GPT2_PATTERN, json.where), "Isolated"));
  }
  if (!isLast) steps.push((text, atStart, emit) => emit(toByteLevel(text), atStart));
  return chain(steps);
}

function readMetaspace(json: Fields): PreTokenizer {
  const replacement = json.insert("replacement", "▁");
  if ([...replacement].length !== 1) throw json.wrong("replacement", "one character");
  const schemes = ["always", "first", "never"] as const;
  const declared = json.oneOf("prepend_scheme", schemes, "always");
  // Older files have add_prefix_space instead.
  const adds = json.boolean("add_prefix_space", true);
  if (!adds && declared !== "never" && json.get("prepend_scheme") !== undefined) {
    throw new ForgeError(
      "bad_model",
      `${json.where} has "add_prefix_space": false and "prepend_scheme": "${declared}"`,
    );
  }
  const scheme = adds ? declared : "never";
  const mark: PreTokenizer = (text, atStart, emit) => {
    const marked = text.replaceAll(" ", replacement);
    const prepends = scheme === "always" || (scheme === "first" && atStart);
    emit(prepends && !marked.startsWith(replacement) ? replacement + marked : marked, atStart);
  };
  if (!json.boolean("split", true)) return mark;
  const cut = splitter((text, onMatch) => {
    for (let at = text.indexOf(replacement); at >= 0;) {
      onMatch(at, at + replacement.length);
      at = text.indexOf(replacement, at + replacement.length);
    }
  }, "MergedWithNext");
  return chain([mark, cut]);
}
