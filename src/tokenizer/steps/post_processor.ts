import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { Fields } from "./fields.ts";
import type { Vocabulary } from "../vocabulary.ts";

/** Ids added before and after a text. */
export interface Affixes {
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
}

/** A part of a pair of texts: ids, or the first or second text, and their token type. */
export interface PairPiece {
  /** Ids of control tokens, or the text whose ids stand here. */
  readonly ids: readonly number[] | "first" | "second";
  /** Token type of the ids. */
  readonly type: number;
}

/**
 * Returns a pair of texts one after the other, each with its affixes, and the second without the
 * prefix, as in RoBERTa: `<s> A </s></s> B </s>` with `isDoubled`, or `<s> A </s> B </s>`.
 */
export function plainPair({ prefix, suffix }: Affixes, isDoubled = false): PairPiece[] {
  return [
    { ids: prefix, type: 0 },
    { ids: "first", type: 0 },
    { ids: isDoubled ? [...suffix, ...suffix] : suffix, type: 0 },
    { ids: "second", type: 0 },
    { ids: suffix, type: 0 },
  ];
}

/** Returns BERT's pair of texts, whose second has the type 1: `[CLS] A [SEP] B [SEP]`. */
export function bertPair({ prefix, suffix }: Affixes): PairPiece[] {
  return plainPair({ prefix, suffix }).map((piece, i) => ({ ...piece, type: i < 3 ? 0 : 1 }));
}

/** Ids added around a text, and the ids of BOS and EOS. */
interface AffixSettings {
  readonly affixes: Affixes;
  readonly pair: readonly PairPiece[];
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
}

/**
 * Reads the ids added around a text from the `post_processor` of tokenizer.json; `add_bos_token`
 * and `add_eos_token` of tokenizer_config.json override it.
 *
 * @throws ForgeError `bad_model` or `unsupported`
 */
export function readAffixes(
  json: Fields,
  config: Fields | undefined,
  vocabulary: Vocabulary,
): AffixSettings {
  const post = json.object("post_processor");
  const { prefix, suffix } = readPostProcessor(post);
  const pair = readPairPieces(post) ?? plainPair({ prefix, suffix });
  const inPair = pair.flatMap(({ ids }) => typeof ids === "string" ? [] : ids);
  for (const id of [...prefix, ...suffix, ...inPair]) {
    if (id >= vocabulary.size) {
      throw new ForgeError(
        "bad_model",
        `${json.path("post_processor")} adds the id ${id}; ` +
          `the vocabulary ends at ${vocabulary.size - 1}`,
      );
    }
  }
  // Without a config, the first token of the template is BOS.
  const bosId = config ? namedToken(config, "bos_token", vocabulary) : prefix[0];
  const eosId = config ? namedToken(config, "eos_token", vocabulary) : suffix[0];
  return {
    affixes: {
      prefix: withToken(prefix, bosId, config?.get("add_bos_token"), (ids, id) => [id, ...ids]),
      suffix: withToken(suffix, eosId, config?.get("add_eos_token"), (ids, id) => [...ids, id]),
    },
    pair,
    bosId,
    eosId,
  };
}

/** Reads how a `post_processor` joins two texts; `undefined` if it says nothing. */
function readPairPieces(json: Fields | undefined): readonly PairPiece[] | undefined {
  switch (json?.string("type")) {
    case "Sequence":
      return json!.objects("processors").map(readPairPieces).find((pair) => pair !== undefined);
    case "BertProcessing":
      return bertPair(readPostProcessor(json));
    case "RobertaProcessing":
      return plainPair(readPostProcessor(json), true);
    case "TemplateProcessing": {
      const pieces = json!.objects("pair").map((piece): PairPiece => {
        const text = piece.object("Sequence");
        const kind = text ?? piece.object("SpecialToken");
        const type = kind?.get("type_id") === undefined ? 0 : kind.count("type_id");
        const ids = text === undefined
          ? specialIds(json!, piece)
          : text.string("id") === "B"
          ? "second"
          : "first";
        return { ids, type };
      });
      const texts = pieces.filter(({ ids }) => typeof ids === "string").map(({ ids }) => ids);
      return texts.join() === "first,second" ? pieces : undefined;
    }
  }
  return undefined;
}

/** Returns the id of a token that tokenizer_config.json names as a string or `{"content": ...}`. */
function namedToken(config: Fields, key: string, vocabulary: Vocabulary): number | undefined {
  const value = config.get(key);
  if (value === undefined) return undefined;
  const text = typeof value === "string" ? value : config.object(key)?.string("content") ?? "";
  const id = vocabulary.idOf(text);
  if (id < 0) {
    throw new ForgeError(
      "bad_model",
      `${config.path(key)} is ${quote(text)}, which is not in the vocabulary`,
    );
  }
  return id;
}

/** Adds or removes `id` according to `wanted`; returns `ids` unchanged if that is undefined. */
function withToken(
  ids: readonly number[],
  id: number | undefined,
  wanted: unknown,
  add: (ids: readonly number[], id: number) => number[],
): readonly number[] {
  if (id === undefined || typeof wanted !== "boolean" || ids.includes(id) === wanted) return ids;
  return wanted ? add(ids, id) : ids.filter((other) => other !== id);
}

const SUPPORTED = [
  "TemplateProcessing",
  "BertProcessing",
  "RobertaProcessing",
  "ByteLevel",
  "Sequence",
] as const;

/** Reads the ids that the `post_processor` of a tokenizer.json adds around a single text. */
function readPostProcessor(json: Fields | undefined): Affixes {
  if (json === undefined) return { prefix: [], suffix: [] };
  switch (json.string("type")) {
    case "ByteLevel": // only trims offsets, which forge does not report
      return { prefix: [], suffix: [] };
    case "Sequence":
      return json.objects("processors").map(readPostProcessor).reduce((inner, outer) => ({
        prefix: [...outer.prefix, ...inner.prefix],
        suffix: [...inner.suffix, ...outer.suffix],
      }), { prefix: [], suffix: [] });
    case "TemplateProcessing":
      return readTemplate(json);
    case "BertProcessing":
    case "RobertaProcessing":
      return { prefix: [readPair(json, "cls")], suffix: [readPair(json, "sep")] };
  }
  throw json.unsupportedType(SUPPORTED);
}

/** Returns the id of a pair such as `["[CLS]", 101]`. */
function readPair(json: Fields, key: string): number {
  const id = json.array(key)?.[1];
  if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 0) {
    throw json.wrong(key, "a token and its id");
  }
  return id;
}

function readTemplate(json: Fields): Affixes {
  const prefix: number[] = [], suffix: number[] = [];
  let seenText = false;
  for (const piece of json.objects("single")) {
    if (piece.object("Sequence")) {
      if (seenText) throw new ForgeError("unsupported", `${json.where}.single has the text twice`);
      seenText = true;
      continue;
    }
    (seenText ? suffix : prefix).push(...specialIds(json, piece));
  }
  if (!seenText) throw new ForgeError("bad_model", `${json.where}.single leaves out the text`);
  return { prefix, suffix };
}

/** Returns the ids of a special token of a template. */
function specialIds(template: Fields, piece: Fields): number[] {
  const name = piece.object("SpecialToken")?.string("id");
  if (name === undefined) {
    throw new ForgeError("bad_model", `${piece.where} has neither "Sequence" nor "SpecialToken"`);
  }
  const ids = template.object("special_tokens")?.object(name)?.array("ids");
  if (ids === undefined) {
    throw new ForgeError("bad_model", `${template.where}.special_tokens has no ${quote(name)}`);
  }
  return ids.map((id) => {
    if (typeof id === "number" && Number.isSafeInteger(id) && id >= 0) return id;
    throw new ForgeError(
      "bad_model",
      `${template.where}: ${quote(name)} has an id that is not a whole number`,
    );
  });
}
