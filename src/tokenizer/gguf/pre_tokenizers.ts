import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { chain, GPT2_PATTERN, type PreTokenizer, splitter } from "../steps/pre_tokenizers.ts";
import { regexFinder } from "../steps/split.ts";

/*
 * The regular expressions of each family of models, in Oniguruma's syntax, as in the models'
 * tokenizer.json. Each pattern cuts the pieces of the previous pattern. Its matches and the text
 * between them are pieces.
 */

/** 's, 't, 're, 've, 'm, 'll, 'd in either case. */
const CONTRACTION = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`;
/** The alternatives for whitespace that end most patterns. */
const SPACES = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;
/** Words, and punctuation with the newlines after it. */
const WORD = String.raw`[^\r\n\p{L}\p{N}]?\p{L}+`;
const PUNCTUATION = String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*`;

const DIGIT = String.raw`\p{N}`;
const UP_TO_THREE_DIGITS = String.raw`\p{N}{1,3}`;

/** Words of o200k: upper case, then lower case, with combining marks. */
const UPPER = String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const LOWER = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;
const START = String.raw`[^\r\n\p{L}\p{N}]?`;
const PATHS = String.raw` ?[^\s\p{L}\p{N}]+[\r\n/]*`;

function cased(ending: string): string {
  return `${START}${UPPER}*${LOWER}+${ending}|${START}${UPPER}+${LOWER}*${ending}`;
}

const QWEN2_PATTERN = `${CONTRACTION}|${WORD}|${DIGIT}|${PUNCTUATION}|${SPACES}`;
const LLAMA3_PATTERN = `${CONTRACTION}|${WORD}|${UP_TO_THREE_DIGITS}|${PUNCTUATION}|${SPACES}`;
const O200K_PATTERN = `${cased(`${CONTRACTION}?`)}|${UP_TO_THREE_DIGITS}|${PATHS}|${SPACES}`;

const CJK = String.raw`[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+`;
const CJK_AND_HANGUL = String.raw`[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+`;
const ASCII_WORDS = String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_${"`"}{|}~][A-Za-z]+` +
  String.raw`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+`;
const DEEPSEEK_V3_WORDS = String.raw`${ASCII_WORDS}| ?[\p{P}\p{S}]+[\r\n]*|${SPACES}`;

/** Letters that have case, as Unicode had them when DeepSeek LLM was trained. */
const CASED_LETTERS = String.raw`A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba` +
  String.raw`\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d` +
  String.raw`\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481` +
  String.raw`\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba` +
  String.raw`\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d` +
  String.raw`\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d` +
  String.raw`\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3` +
  String.raw`\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113` +
  String.raw`\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139` +
  String.raw`\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4` +
  String.raw`\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787` +
  String.raw`\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a` +
  String.raw`\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}` +
  String.raw`\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}`;

/** A run of CJK, kana, Thai, Lao, Khmer, Myanmar or Hangul characters. */
const UNSPACED_SCRIPTS = String.raw`[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f` +
  String.raw`\u30a0-\u30ff\uff65-\uff9f\u2e80-\u2fdf\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff` +
  String.raw`\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+`;

/** BLOOM: everything up to whitespace or one of these characters. */
const BLOOM_PATTERN = String.raw` ?[^(\s|[.,!?…。，、।۔،])]+`;

/** The patterns of each family. */
export const PATTERNS = {
  default: [String.raw`[\p{P}\$\+<=>\^~\|]+`, GPT2_PATTERN, String.raw`\p{N}+`, "[0-9][0-9][0-9]"],
  gpt2: [GPT2_PATTERN],
  starcoder: [DIGIT, GPT2_PATTERN],
  falcon: [String.raw`[\p{P}$+<=>^~|${"`"}]+`, GPT2_PATTERN, "[0-9][0-9][0-9]"],
  llama3: [LLAMA3_PATTERN],
  qwen2: [QWEN2_PATTERN],
  ufakzeka: [`${WORD}|${DIGIT}|${PUNCTUATION}|${SPACES}`],
  laguna: ["[^\\n]+|\\n+", QWEN2_PATTERN],
  qwen35: [
    String.raw`${CONTRACTION}|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|${DIGIT}` +
    String.raw`| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|${SPACES}`,
  ],
  deepseekLlm: [
    String.raw`[\r\n]`,
    String.raw`\s?[${CASED_LETTERS}]+`,
    String.raw`\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+`,
    String.raw`\s+$`,
    CJK_AND_HANGUL,
    DIGIT,
  ],
  deepseekCoder: [
    String.raw`[\r\n]`,
    String.raw`\s?\p{L}+`,
    String.raw`\s?\p{P}+`,
    CJK_AND_HANGUL,
    DIGIT,
  ],
  deepseekV3: [UP_TO_THREE_DIGITS, CJK, DEEPSEEK_V3_WORDS],
  spark: [
    UP_TO_THREE_DIGITS,
    CJK,
    String.raw`${ASCII_WORDS}| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+`,
    DIGIT,
  ],
  youtu: [
    String.raw`[\uac00-\ud7a3\u3131-\u318e]+` +
    String
      .raw`|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+` +
    String.raw`|[\u3105-\u312f]+|${CJK}`,
    `${cased(`${CONTRACTION}?`)}|${DIGIT}|${PATHS}|${SPACES}`,
  ],
  tekken: [`${cased("")}|${DIGIT}|${PATHS}|${SPACES}`],
  o200k: [O200K_PATTERN],
  tinyAya: [String.raw`\d{1,3}(?=(?:\d{3})*\b)`, O200K_PATTERN],
  kimiK2: [
    String.raw`\p{Han}+` +
    String.raw`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*` +
    String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+${CONTRACTION}?` +
    String.raw`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+` +
    String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*${CONTRACTION}?` +
    `|${UP_TO_THREE_DIGITS}|${PUNCTUATION}|${SPACES}`,
  ],
  superbpe: [String.raw`\p{N}+`, String.raw`(?=(\d{3})+(?!\d))`],
  bailing: [
    String.raw`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|${DIGIT}` +
    String.raw`| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
  ],
  seedCoder: [
    String.raw`${CONTRACTION}|${WORD}|${DIGIT}| ?[^\s\p{L}\p{N}\r\n]+|${SPACES}`,
  ],
  exaoneMoe: [
    String.raw`${CONTRACTION}|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|${DIGIT}` +
    String.raw`| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`,
  ],
  minicpm5: [
    UP_TO_THREE_DIGITS,
    String.raw`${CONTRACTION}|${WORD}|\p{N}+|${PUNCTUATION}|${SPACES}`,
  ],
  afmoe: [
    String.raw`\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))`,
    UNSPACED_SCRIPTS,
    DEEPSEEK_V3_WORDS,
  ],
  jais2: [
    String.raw`${CONTRACTION}|${WORD}|${UP_TO_THREE_DIGITS}|${PUNCTUATION}|\s*[\r\n]+` +
    String.raw`|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)` +
    String.raw`|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`,
  ],
  chameleon: [
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    String.raw`([\t\n]|    |  )`,
    DIGIT,
    String.raw`[\p{P}!-/:-@\[-${"`"}{-~]`,
    GPT2_PATTERN,
  ],
  bloom: [BLOOM_PATTERN],
  viking: [BLOOM_PATTERN, DIGIT],
  whitespace: [String.raw`\S+`],
  newlines: [String.raw`[^\n]+|\n+`],
} as const satisfies Record<string, readonly string[]>;

/** The pre-tokenizer that a name in `tokenizer.ggml.pre` stands for. */
interface GgufPreTokenizer {
  /** The patterns that cut the text; see `PATTERNS`. */
  readonly patterns: keyof typeof PATTERNS;
  /**
   * The Unicode normal form of the model's own tokenizer. llama.cpp does not normalize, so its ids
   * of decomposed text (e and U+0301) differ from those in training.
   */
  readonly form?: "NFC" | "NFKC";
  /** True if a word that is a token becomes that token without merging. */
  readonly ignoreMerges?: boolean;
  /** Adds BOS if `tokenizer.ggml.add_bos_token` is missing ("always": even if it is false). */
  readonly addBos?: boolean | "always";
  /**
   * True if pieces are plain text with byte fallback ("marked": and "▁" for spaces) instead of
   * GPT-2's byte alphabet.
   */
  readonly characters?: "marked" | "plain";
}

const LLAMA3: GgufPreTokenizer = { patterns: "llama3", ignoreMerges: true, addBos: true };
const GPT2: GgufPreTokenizer = { patterns: "gpt2" };
const STARCODER: GgufPreTokenizer = { patterns: "starcoder" };
const GPT2_NFC: GgufPreTokenizer = { patterns: "gpt2", form: "NFC" };
const QWEN2: GgufPreTokenizer = { patterns: "qwen2" };
const QWEN2_NFC: GgufPreTokenizer = { patterns: "qwen2", form: "NFC" };
const DEEPSEEK_V3: GgufPreTokenizer = { patterns: "deepseekV3" };
const O200K: GgufPreTokenizer = { patterns: "o200k" };
const BAILING: GgufPreTokenizer = { patterns: "bailing" };
const BLOOM: GgufPreTokenizer = { patterns: "bloom" };
const COHERE2: GgufPreTokenizer = { patterns: "tinyAya", form: "NFC" };
const GEMMA4: GgufPreTokenizer = { patterns: "newlines", characters: "marked", addBos: "always" };

/** The pre-tokenizers by the names that llama.cpp's converter writes. */
const PRE_TOKENIZERS: ReadonlyMap<string, GgufPreTokenizer> = new Map([
  ["default", { patterns: "default" }],
  ["llama-bpe", LLAMA3],
  ["llama3", LLAMA3],
  ["llama-v3", LLAMA3],
  ["falcon3", LLAMA3],
  ["falcon-h1", LLAMA3],
  ["pixtral", LLAMA3],
  ["midm-2.0", LLAMA3],
  ["lfm2", LLAMA3],
  ["jina-v5-nano", LLAMA3],
  ["dbrx", { patterns: "llama3" }],
  ["smaug-bpe", { patterns: "llama3" }],
  ["chatglm-bpe", { patterns: "llama3" }],
  ["glm4", { patterns: "llama3" }],
  ["jais-2", { patterns: "jais2" }],
  ["deepseek-llm", { patterns: "deepseekLlm" }],
  ["deepseek-coder", { patterns: "deepseekCoder" }],
  ["deepseek-v3", DEEPSEEK_V3],
  ["hunyuan-dense", DEEPSEEK_V3],
  ["joyai-llm", DEEPSEEK_V3],
  ["hy_v4", DEEPSEEK_V3],
  ["spark2_5", { patterns: "spark" }],
  ["youtu", { patterns: "youtu", ignoreMerges: true }],
  ["falcon", { patterns: "falcon" }],
  ["starcoder", STARCODER],
  ["refact", STARCODER],
  ["command-r", { patterns: "starcoder", form: "NFC" }],
  ["smollm", STARCODER],
  ["codeshell", STARCODER],
  ["exaone", { patterns: "starcoder", form: "NFKC" }],
  ["minerva-7b", STARCODER],
  ["mellum2", STARCODER],
  ["gpt-2", GPT2],
  ["phi-2", GPT2],
  ["mpt", GPT2_NFC],
  ["olmo", GPT2_NFC],
  ["jais", GPT2],
  ["gigachat", GPT2],
  ["a.x-4.0", GPT2],
  ["mellum", GPT2],
  ["exaone4", { patterns: "gpt2", form: "NFKC" }],
  ["trillion", GPT2],
  ["granite-docling", GPT2],
  ["modern-bert", GPT2_NFC],
  ["roberta-bpe", GPT2],
  ["jina-v1-en", GPT2],
  ["jina-v2-code", GPT2],
  ["jina-v2-de", GPT2],
  ["jina-v2-es", GPT2],
  ["jina-de", GPT2],
  ["jina-es", GPT2],
  ["qwen2", QWEN2_NFC],
  ["deepseek-r1-qwen", QWEN2_NFC],
  ["f2llmv2", QWEN2_NFC],
  ["megrez", QWEN2],
  ["kormo", QWEN2],
  ["stablelm2", QWEN2_NFC],
  ["hunyuan", QWEN2],
  ["solar-open", QWEN2],
  ["grok-2", QWEN2],
  ["ufakzeka", { patterns: "ufakzeka" }],
  ["laguna", { patterns: "laguna" }],
  ["qwen35", { patterns: "qwen35", form: "NFC" }],
  ["exaone-moe", { patterns: "exaoneMoe", form: "NFC" }],
  ["tekken", { patterns: "tekken", ignoreMerges: true, addBos: true }],
  ["gpt-4o", O200K],
  ["llama4", O200K],
  ["kanana2", O200K],
  ["minimax-m2", O200K],
  ["talkie", O200K],
  ["granite-embed-multi-97m", { patterns: "o200k", ignoreMerges: true }],
  ["tiny_aya", COHERE2],
  ["cohere2moe", COHERE2],
  ["kimi-k2", { patterns: "kimiK2" }],
  ["superbpe", { patterns: "superbpe" }],
  ["bailingmoe", BAILING],
  ["bailingmoe2", BAILING],
  ["llada-moe", BAILING],
  ["seed-coder", { patterns: "seedCoder" }],
  ["minicpm5", { patterns: "minicpm5", ignoreMerges: true }],
  ["afmoe", { patterns: "afmoe" }],
  ["chameleon", { patterns: "chameleon", addBos: true }],
  ["bloom", BLOOM],
  ["poro-chat", BLOOM],
  ["gpt3-finnish", BLOOM],
  ["viking", { patterns: "viking" }],
  ["gemma4", GEMMA4],
  ["granite-embed-multi-311m", GEMMA4],
  ["sarvam-moe", { patterns: "newlines", characters: "marked" }],
  ["whitespace", { patterns: "whitespace", characters: "plain" }],
]);

/**
 * Looks up a name of `tokenizer.ggml.pre`.
 *
 * @throws ForgeError `unsupported` for an unknown name: cutting text in another way than in
 * training would silently lower the quality of answers
 */
export function ggufPreTokenizer(name: string, where: string): GgufPreTokenizer {
  const found = PRE_TOKENIZERS.get(name);
  if (found) return found;
  throw new ForgeError(
    "unsupported",
    `${where} is ${quote(name)}; known are ${[...PRE_TOKENIZERS.keys()].join(", ")}`,
  );
}

/**
 * Returns all pre-tokenizers by name; of equal ones, the name that most readers know is the first.
 */
export function ggufPreTokenizers(): ReadonlyMap<string, GgufPreTokenizer> {
  return PRE_TOKENIZERS;
}

/** Builds the pre-tokenizer of a family from its patterns. */
export function buildPreTokenizer(family: keyof typeof PATTERNS, where: string): PreTokenizer {
  return chain(
    PATTERNS[family].map((pattern) => splitter(regexFinder(pattern, where), "Isolated")),
  );
}
