import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { Fields } from "./fields.ts";
import type { Vocabulary } from "../vocabulary.ts";

/** Ids added before and after a text. */
export interface Affixes {
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
}

/** Ids added around a text, and the ids of BOS and EOS. */
interface AffixSettings {
  readonly affixes: Affixes;
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
}

/**
 * Reads the ids added around a text from the `post_processor` of tokenizer.json; `add_bos_token` and
 * `add_eos_token` of tokenizer_config.json override it.
 *
 * @throws ForgeError `bad_model` or `unsupported`
 */
export function readAffixes(
  json: Fields,
  config: Fields | undefined,
  vocabulary: Vocabulary,
): AffixSettings {
  const { prefix, suffix } = readPostProcessor(json.object("post_processor"));
  for (const id of [...prefix, ...suffix]) {
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
    bosId,
    eosId,
  };
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
  const specials = json.object("special_tokens");
  let seenText = false;
  for (const piece of json.objects("single")) {
    if (piece.object("Sequence")) {
      if (seenText) throw new ForgeError("unsupported", `${json.where}.single has the text twice`);
      seenText = true;
      continue;
    }
    const name = piece.object("SpecialToken")?.string("id");
    if (name === undefined) {
      throw new ForgeError(
        "bad_model",
        `${piece.where} has neither "Sequence" nor "SpecialToken"`,
      );
    }
    const ids = specials?.object(name)?.array("ids");
    if (ids === undefined) {
      throw new ForgeError("bad_model", `${json.where}.special_tokens has no ${quote(name)}`);
    }
    for (const id of ids) {
      if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 0) {
        throw new ForgeError(
          "bad_model",
          `${json.where}: ${quote(name)} has an id that is not a whole number`,
        );
      }
      (seenText ? suffix : prefix).push(id);
    }
  }
  if (!seenText) throw new ForgeError("bad_model", `${json.where}.single leaves out the text`);
  return { prefix, suffix };
}
