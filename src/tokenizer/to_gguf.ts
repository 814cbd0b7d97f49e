/** Writes the tokenizer of a Hugging Face folder as metadata of a GGUF file. */
import { ForgeError } from "../errors.ts";
import type { GgufField } from "../formats/gguf/writer.ts";
import { quote } from "../formats/quote.ts";
import { tokenizerFromGguf } from "./from_gguf.ts";
import { buildPreTokenizer, ggufPreTokenizers } from "./gguf/pre_tokenizers.ts";
import { BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED } from "./gguf/tokens.ts";
import { Fields } from "./steps/fields.ts";
import { type Normalizer, readNormalizer } from "./steps/normalizers.ts";
import { type PreTokenizer, readPreTokenizer } from "./steps/pre_tokenizers.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** The tokenizer of a folder. */
interface FolderTokenizer {
  /** The parsed tokenizer.json. */
  readonly json: unknown;
  /** The tokenizer that was read from it. */
  readonly tokenizer: Tokenizer;
  /** The folder, for messages. */
  readonly path: string;
  /** Rows of the model's embedding: GGUF files have a token for each. */
  readonly rows: number;
  /** All tokens that end an answer. */
  readonly endIds: readonly number[];
  readonly chatTemplate?: string | undefined;
}

/**
 * A text on which the known ways to cut text differ: contractions, digits, punctuation, whitespace,
 * marks, and many scripts.
 */
const PROBE =
  "Hello, world! I'm HERE'S they'LL we've DON'T  3 33 333 3333 33333 3.14 1,000,000\n\n\n" +
  " \t\ttabs   spaces    more\r\n\r\n  end \n x=a+b**2; //path/to/file.txt #$%^&*()_+-={}[]|\\:\"'<>?~`\n" +
  "camelCaseWord UPPERCase mixedÀéîõü naïve cafe\u0301 A\u030angstro\u0308m \u212b \ufb01 ½ ²³ Ⅷ ٣٤٥ १२३ 一二三\n" +
  "我能吞下玻璃而不伤身体。ひらがなカタカナ、漢字！한국어 텍스트 ภาษาไทย ລາວ ខ្មែរ မြန်မာ русский ТЕКСТ " +
  "ελληνικά العربية، עברית हिन्दी தமிழ் ქართული 🚀🚀 👩‍👩‍👧 ™®© “quoted” ‘single’ — – … ¿qué? «oui»\n" +
  "'s 'S 'll 'LL 't 'T'm ''' \u200b\u00a0\u3000x\u2028y   \n   \n z(a)(b)[c]{d}!!!???...---===   ";

/**
 * Returns the metadata of a tokenizer. The result, read as a GGUF file, must give the tokens of the
 * folder for a text with every kind of character.
 *
 * @throws {ForgeError} `unsupported` for a tokenizer that GGUF cannot express
 */
export function ggufTokenizer(source: FolderTokenizer): Record<string, GgufField> {
  const root = new Fields(source.json, `${source.path}:`);
  const model = root.object("model");
  const isBpe = model?.get("merges") !== undefined;
  if (model === undefined || !isBpe) {
    throw cannotWrite(
      source,
      `is of the type ${quote(model?.string("type", "?") ?? "?")}, not BPE`,
    );
  }
  const { run, bytes } = readPreTokenizer(root.object("pre_tokenizer"));
  const tokens = vocabulary(source, root, model, bytes);
  const common = { ...tokens, ...specialTokens(source) };
  if (bytes) {
    const name = preTokenizerName(source, model, readNormalizer(root.object("normalizer")), run);
    const candidate: Record<string, GgufField> = {
      "tokenizer.ggml.model": ["string", "gpt2"],
      "tokenizer.ggml.pre": ["string", name],
      ...common,
      "tokenizer.ggml.merges": ["array", "string", mergesOf(model).map((pair) => pair.join(" "))],
    };
    if (agrees(source, candidate)) return candidate;
    throw cannotWrite(source, `cuts text differently from ${quote(name)}`);
  }
  const scores = pieceScores(source, mergesOf(model));
  for (const addsSpace of [true, false]) {
    const candidate: Record<string, GgufField> = {
      "tokenizer.ggml.model": ["string", "llama"],
      "tokenizer.ggml.pre": ["string", "default"],
      ...common,
      "tokenizer.ggml.scores": ["array", "f32", scores],
      "tokenizer.ggml.add_space_prefix": ["bool", addsSpace],
    };
    if (agrees(source, candidate)) return candidate;
  }
  throw cannotWrite(source, "treats spaces or characters differently from SentencePiece");
}

function cannotWrite({ path }: FolderTokenizer, reason: string): ForgeError {
  return new ForgeError(
    "unsupported",
    `the tokenizer of ${quote(path)} ${reason}; forge writes byte-level BPE with a pre-tokenizer ` +
      "of llama.cpp, and SentencePiece's BPE",
  );
}

/** Returns the texts and types of all tokens. Ids without a token get a name that is never used. */
function vocabulary(
  source: FolderTokenizer,
  root: Fields,
  model: Fields,
  bytes: boolean,
): Record<string, GgufField> {
  const { tokenizer, rows } = source;
  if (tokenizer.vocabSize > rows) {
    throw cannotWrite(source, `has ${tokenizer.vocabSize} tokens for an embedding of ${rows} rows`);
  }
  const texts = Array.from({ length: rows }, (_, id) => {
    return id < tokenizer.vocabSize ? tokenizer.tokenText(id) : "";
  });
  const types = Int32Array.from(texts, (text) => text === "" ? UNUSED : NORMAL);
  const unknown = model.string("unk_token", "");
  if (!bytes) {
    const hasBytes = model.boolean("byte_fallback", false);
    texts.forEach((text, id) => {
      if (hasBytes && /^<0x[0-9A-F]{2}>$/.test(text)) types[id] = BYTE;
    });
  }
  for (const token of root.objects("added_tokens")) {
    const id = tokenizer.idOf(token.string("content"));
    if (id === undefined) continue;
    types[id] = token.boolean("special", false) ? CONTROL : USER_DEFINED;
  }
  const unknownId = unknown === "" ? undefined : tokenizer.idOf(unknown);
  if (unknownId !== undefined && !bytes) types[unknownId] = UNKNOWN;
  return {
    "tokenizer.ggml.tokens": ["array", "string", texts.map((text, id) => text || `[PAD${id}]`)],
    "tokenizer.ggml.token_type": ["array", "i32", types],
    ...(unknownId === undefined ? {} : { "tokenizer.ggml.unknown_token_id": ["u32", unknownId] }),
  };
}

function specialTokens(source: FolderTokenizer): Record<string, GgufField> {
  const { tokenizer, endIds, chatTemplate } = source;
  const fields: Record<string, GgufField> = {
    "tokenizer.ggml.add_bos_token": ["bool", tokenizer.addBos],
    "tokenizer.ggml.add_eos_token": ["bool", tokenizer.addEos],
  };
  if (tokenizer.bosId !== undefined) {
    fields["tokenizer.ggml.bos_token_id"] = ["u32", tokenizer.bosId];
  }
  // The format has places for three tokens; readers find the usual others by their names.
  ["eos", "eot", "eom"].forEach((name, i) => {
    const id = endIds[i];
    if (id !== undefined) fields[`tokenizer.ggml.${name}_token_id`] = ["u32", id];
  });
  if (chatTemplate !== undefined) fields["tokenizer.chat_template"] = ["string", chatTemplate];
  return fields;
}

/** Returns the name of the pre-tokenizer that cuts the probe into the same pieces. */
function preTokenizerName(
  source: FolderTokenizer,
  model: Fields,
  normalize: Normalizer,
  run: PreTokenizer,
): string {
  const pieces = (normalized: string, cut: PreTokenizer) => {
    const found: string[] = [];
    cut(normalized, true, (piece) => found.push(piece));
    return found.join("\0");
  };
  const text = normalize(PROBE);
  const wanted = pieces(text, run);
  const ignoresMerges = model.boolean("ignore_merges", false);
  for (const [name, pre] of ggufPreTokenizers()) {
    if (pre.characters !== undefined || pre.addBos === "always") continue;
    if ((pre.ignoreMerges ?? false) !== ignoresMerges) continue;
    if ((pre.form ? PROBE.normalize(pre.form) : PROBE) !== text) continue;
    if (pieces(text, buildPreTokenizer(pre.patterns, name)) === wanted) return name;
  }
  throw cannotWrite(source, "cuts text in a way that has no name in llama.cpp");
}

function mergesOf(model: Fields): [string, string][] {
  return (model.array("merges") ?? []).flatMap((merge): [string, string][] => {
    if (Array.isArray(merge)) return [[String(merge[0]), String(merge[1])]];
    const text = String(merge), end = text.indexOf(" ", 1);
    return text.startsWith("#version") ? [] : [[text.slice(0, end), text.slice(end + 1)]];
  });
}

/**
 * Returns the scores with which SentencePiece joins pieces in the order of a list of merges. The
 * list must join a piece in every way in which the vocabulary allows it, and all ways together, as
 * lists made from SentencePiece models do.
 */
function pieceScores(
  source: FolderTokenizer,
  merges: readonly (readonly [string, string])[],
): Float32Array<ArrayBuffer> {
  const { tokenizer, rows } = source;
  const ranks = new Map<string, number>();
  const pairs = new Set<string>();
  let last = "";
  for (const [left, right] of merges) {
    const piece = left + right;
    if (piece !== last && ranks.has(piece)) {
      throw cannotWrite(
        source,
        `joins ${quote(piece)} at several ranks, which scores cannot express`,
      );
    }
    if (piece !== last) ranks.set(piece, ranks.size);
    last = piece;
    pairs.add(`${left}\0${right}`);
  }
  for (const piece of ranks.keys()) {
    for (let at = 1; at < piece.length; at++) {
      const left = piece.slice(0, at), right = piece.slice(at);
      const isPair = isJoined(tokenizer, ranks, left) && isJoined(tokenizer, ranks, right);
      if (isPair && !pairs.has(`${left}\0${right}`)) {
        throw cannotWrite(
          source,
          `does not join ${quote(left)} and ${quote(right)}, which SentencePiece would`,
        );
      }
    }
  }
  return Float32Array.from({ length: rows }, (_, id) => {
    const rank = id < tokenizer.vocabSize ? ranks.get(tokenizer.tokenText(id)) : undefined;
    return rank === undefined ? -ranks.size : -rank;
  });
}

/** True if a text is one character, or the result of a merge. */
function isJoined(tokenizer: Tokenizer, ranks: ReadonlyMap<string, number>, text: string): boolean {
  return ranks.has(text) || ([...text].length === 1 && tokenizer.idOf(text) !== undefined);
}

/** True if the metadata gives the tokens of the folder. */
function agrees({ tokenizer, path }: FolderTokenizer, fields: Record<string, GgufField>): boolean {
  const values = Object.entries(fields).map(([key, field]) => [key, field.at(-1)] as const);
  const written = tokenizerFromGguf(new Map(values), path, () => {});
  return [PROBE, " x", "x", ""].every((text) => {
    const [own, other] = [tokenizer.encode(text), written.encode(text)];
    return own.length === other.length && own.every((id, i) => id === other[i]) &&
      tokenizer.decode(own) === written.decode(other);
  });
}
