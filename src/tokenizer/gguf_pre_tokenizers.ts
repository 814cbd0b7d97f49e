import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import { PATTERNS } from "./gguf_patterns.ts";
import { chain, type PreTokenizer, splitter } from "./pre_tokenizers.ts";
import { regexFinder } from "./split.ts";

/** What the name in `tokenizer.ggml.pre` stands for. */
export interface GgufPreTokenizer {
  /** The patterns text is cut at; see `PATTERNS`. */
  readonly patterns: keyof typeof PATTERNS;
  /** Whether a word that is a token becomes that token without any merging. */
  readonly ignoreMerges?: boolean;
  /** Whether BOS is added where `tokenizer.ggml.add_bos_token` does not say, or whatever it says. */
  readonly addBos?: boolean | "always";
  /** Whether pieces are text with "▁" for spaces and byte fallback, not GPT-2's byte alphabet. */
  readonly characters?: boolean;
}

const LLAMA3: GgufPreTokenizer = { patterns: "llama3", ignoreMerges: true, addBos: true };
const GPT2: GgufPreTokenizer = { patterns: "gpt2" };
const STARCODER: GgufPreTokenizer = { patterns: "starcoder" };
const QWEN2: GgufPreTokenizer = { patterns: "qwen2" };
const DEEPSEEK_V3: GgufPreTokenizer = { patterns: "deepseekV3" };
const O200K: GgufPreTokenizer = { patterns: "o200k" };
const BAILING: GgufPreTokenizer = { patterns: "bailing" };
const BLOOM: GgufPreTokenizer = { patterns: "bloom" };

/**
 * The names that llama.cpp's converter writes for models that generate text, and what it makes of
 * them (https://github.com/ggml-org/llama.cpp, src/llama-vocab.cpp).
 */
const PRE_TOKENIZERS: ReadonlyMap<string, GgufPreTokenizer> = new Map([
  ["default", { patterns: "default" }],
  ["llama3", LLAMA3],
  ["llama-v3", LLAMA3],
  ["llama-bpe", LLAMA3],
  ["falcon3", LLAMA3],
  ["falcon-h1", LLAMA3],
  ["pixtral", LLAMA3],
  ["midm-2.0", LLAMA3],
  ["lfm2", LLAMA3],
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
  ["falcon", { patterns: "falcon" }],
  ["starcoder", STARCODER],
  ["refact", STARCODER],
  ["command-r", STARCODER],
  ["smollm", STARCODER],
  ["codeshell", STARCODER],
  ["exaone", STARCODER],
  ["minerva-7b", STARCODER],
  ["mellum2", STARCODER],
  ["gpt-2", GPT2],
  ["phi-2", GPT2],
  ["mpt", GPT2],
  ["olmo", GPT2],
  ["jais", GPT2],
  ["gigachat", GPT2],
  ["a.x-4.0", GPT2],
  ["mellum", GPT2],
  ["exaone4", GPT2],
  ["trillion", GPT2],
  ["granite-docling", GPT2],
  ["qwen2", QWEN2],
  ["deepseek-r1-qwen", QWEN2],
  ["kormo", QWEN2],
  ["megrez", QWEN2],
  ["stablelm2", QWEN2],
  ["hunyuan", QWEN2],
  ["solar-open", QWEN2],
  ["grok-2", QWEN2],
  ["qwen35", { patterns: "qwen35" }],
  ["exaone-moe", { patterns: "exaoneMoe" }],
  ["tekken", { patterns: "tekken", ignoreMerges: true, addBos: true }],
  ["gpt-4o", O200K],
  ["llama4", O200K],
  ["kanana2", O200K],
  ["minimax-m2", O200K],
  ["tiny_aya", { patterns: "tinyAya" }],
  ["cohere2moe", { patterns: "tinyAya" }],
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
  ["gemma4", { patterns: "newlines", characters: true, addBos: "always" }],
  ["sarvam-moe", { patterns: "newlines", characters: true }],
]);

/**
 * What a name in `tokenizer.ggml.pre` stands for.
 *
 * @throws ForgeError `bad_model` without a name, `unsupported` for one that is not known: text cut
 * in another way than the model learned is understood badly, and nothing shows it
 */
export function ggufPreTokenizer(name: string | undefined, where: string): GgufPreTokenizer {
  const found = name === undefined ? undefined : PRE_TOKENIZERS.get(name);
  if (found) return found;
  throw new ForgeError(
    name === undefined ? "bad_model" : "unsupported",
    `${where} is ${name === undefined ? "missing" : quote(name)}; ` +
      `known are ${[...PRE_TOKENIZERS.keys()].join(", ")}`,
  );
}

/** The patterns of a family as a pre-tokenizer. */
export function buildPreTokenizer(family: keyof typeof PATTERNS, where: string): PreTokenizer {
  return chain(
    PATTERNS[family].map((pattern) => splitter(regexFinder(pattern, where), "Isolated")),
  );
}
