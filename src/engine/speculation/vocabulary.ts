import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";

/** Vocabularies may differ by so many tokens at their end, control tokens mostly. */
const MOST_MORE = 256;

/**
 * Checks that a draft model means by each token what the model does.
 *
 * @throws {ForgeError} `usage`, naming the first token that differs
 */
export function checkSameVocabulary(model: Tokenizer, draft: Tokenizer, path: string): void {
  const problem = difference(model, draft);
  if (problem === undefined) return;
  throw new ForgeError(
    "usage",
    `the draft model ${quote(path)} has another vocabulary than the model: ${problem}`,
  );
}

function difference(model: Tokenizer, draft: Tokenizer): string | undefined {
  const common = Math.min(model.vocabSize, draft.vocabSize);
  if (Math.max(model.vocabSize, draft.vocabSize) > common + MOST_MORE) {
    return `${draft.vocabSize} tokens, not ${model.vocabSize}`;
  }
  for (let id = 0; id < common; id++) {
    const expected = model.tokenText(id), actual = draft.tokenText(id);
    if (actual !== expected) return `token ${id} is ${quote(actual)}, not ${quote(expected)}`;
  }
  return undefined;
}
