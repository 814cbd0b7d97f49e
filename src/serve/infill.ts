/** Prompts for the text between two others, for models that were trained to fill in the middle. */
import { encodeTextInSlices } from "../engine/request/prompt.ts";
import type { Model } from "../engine/model.ts";
import { RequestError } from "../requests/values.ts";
import type { Service } from "./service.ts";

/** Tokens before each part of a prompt. */
interface InfillMarks<Mark> {
  readonly prefix: Mark;
  readonly suffix: Mark;
  /** The text in the middle follows it; `undefined` if it follows the prefix. */
  readonly middle?: Mark | undefined;
}

/** Names of the marks in the vocabularies of model families. */
const KNOWN_MARKS: readonly InfillMarks<string>[] = [
  // Qwen Coder, Granite, Seed-Coder.
  { prefix: "<|fim_prefix|>", suffix: "<|fim_suffix|>", middle: "<|fim_middle|>" },
  // StarCoder, CodeGemma's relatives.
  { prefix: "<fim_prefix>", suffix: "<fim_suffix>", middle: "<fim_middle>" },
  { prefix: "<｜fim▁begin｜>", suffix: "<｜fim▁hole｜>", middle: "<｜fim▁end｜>" },
  { prefix: "▁<PRE>", suffix: "▁<SUF>", middle: "▁<MID>" },
  // Codestral: the suffix comes first.
  { prefix: "[PREFIX]", suffix: "[SUFFIX]" },
];

/** Keys of GGUF files with the ids of the marks. */
const GGUF_KEYS = {
  prefix: "tokenizer.ggml.fim_pre_token_id",
  suffix: "tokenizer.ggml.fim_suf_token_id",
  middle: "tokenizer.ggml.fim_mid_token_id",
};

/**
 * Returns the prompt after which a model writes what stands between two texts.
 *
 * @throws {RequestError} for a model without tokens for it
 * @throws {ForgeError} `bad_input` for texts far beyond the context; `cancelled` by the signal
 */
export async function infillPrompt(
  { model, server: { slices } }: Service,
  prefix: string,
  suffix: string,
  signal: AbortSignal,
): Promise<Int32Array> {
  const { tokenizer, contextLength } = model;
  const marks = findMarks(model);
  if (marks === undefined) {
    throw new RequestError(
      "suffix is not supported by this model: its vocabulary has no tokens for filling in the middle",
      "suffix",
    );
  }
  const how = { addSpecial: false, parseSpecial: false };
  const encode = (text: string, name: string) =>
    slices.run(encodeTextInSlices(text, tokenizer, contextLength, name, how), signal);
  const before = [marks.prefix, ...await encode(prefix, "prompt")];
  const after = [marks.suffix, ...await encode(suffix, "suffix")];
  const parts = marks.middle === undefined ? [...after, ...before] : [...before, ...after];
  return Int32Array.from([
    ...(tokenizer.addBos && tokenizer.bosId !== undefined ? [tokenizer.bosId] : []),
    ...parts,
    ...(marks.middle === undefined ? [] : [marks.middle]),
  ]);
}

function findMarks({ checkpoint, tokenizer }: Model): InfillMarks<number> | undefined {
  const [prefix, suffix, middle] = Object.values(GGUF_KEYS).map((key) =>
    checkpoint.metadata?.get(key)
  );
  const isId = (id: unknown): id is number =>
    typeof id === "number" && id >= 0 && id < tokenizer.vocabSize;
  if (isId(prefix) && isId(suffix) && isId(middle)) return { prefix, suffix, middle };
  for (const names of KNOWN_MARKS) {
    const ids = {
      prefix: tokenizer.idOf(names.prefix),
      suffix: tokenizer.idOf(names.suffix),
      middle: names.middle && tokenizer.idOf(names.middle),
    };
    const isWhole = names.middle === undefined || ids.middle !== undefined;
    if (ids.prefix !== undefined && ids.suffix !== undefined && isWhole) {
      return ids as InfillMarks<number>;
    }
  }
  return undefined;
}
