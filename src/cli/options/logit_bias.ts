/** `--logit-bias TOKEN=X`: parsing, and translation into the library's option. */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { Tokenizer } from "../../mod.ts";

/** Bias added to the logit of one token. */
export interface TokenBias {
  /** Id or text of the token. */
  readonly token: number | string;
  readonly bias: number;
}

/** Valid values, for errors. */
export const VALID_BIASES =
  'ID=X or TEXT=X with a number or -inf, such as 42=-5, " the"=-inf or \'"42"=3\'';

/** Parses `42=-5`, `the=-inf` or `"42"=3`; returns `undefined` for other text. */
export function parseTokenBias(text: string): TokenBias | undefined {
  const [, name = "", number = ""] = /^(.+)=([^=]+)$/s.exec(text) ?? [];
  const isNumber = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(number);
  if (!isNumber && number !== "-inf") return undefined;
  const bias = isNumber ? Number(number) : -Infinity;
  if (/^\d+$/.test(name)) return { token: Number(name), bias };
  const [, quoted] = /^"(.+)"$/s.exec(name) ?? [];
  return { token: quoted ?? name, bias };
}

/**
 * Returns biases by token id.
 *
 * @throws {ForgeError} `usage` for a text that is not one token of the model
 */
export function logitBias(
  biases: readonly TokenBias[] | undefined,
  tokenizer: Tokenizer,
): Readonly<Record<string, number>> | undefined {
  if (biases === undefined) return undefined;
  return Object.fromEntries(biases.map(({ token, bias }) => [idOf(token, tokenizer), bias]));
}

function idOf(token: number | string, tokenizer: Tokenizer): number {
  if (typeof token === "number") return token;
  const ids = tokenizer.encode(token, { addSpecial: false });
  const [id] = ids;
  if (id !== undefined && ids.length === 1) return id;
  throw new ForgeError(
    "usage",
    `--logit-bias: ${quote(token)} is ${ids.length} tokens (${ids.join(", ")}); ` +
      "give a bias for each, by id",
  );
}
