/** `POST /tokenize` and `POST /detokenize`, with the keys of llama-server. */
import { checkTokens, encodeTextInSlices } from "../engine/request/prompt.ts";
import type { JsonObject } from "../formats/json.ts";
import { readMessages } from "../requests/messages.ts";
import {
  checkKeys,
  invalid,
  isGiven,
  isTokenIds,
  readBoolean,
  readString,
  RequestError,
} from "../requests/values.ts";
import type { Service } from "./service.ts";

const TEXT_FIELDS = ["model", "content", "messages", "add_special", "parse_special"];
const ALIASES = { prompt: "content", add_special_tokens: "add_special" };

/** Returns the token ids of a text, or of a conversation rendered by the model's template. */
export async function tokenize(
  service: Service,
  request: Request,
  body: JsonObject,
): Promise<Response> {
  checkKeys(body, TEXT_FIELDS, ALIASES);
  const tokens = await encode(service, body, request.signal);
  return Response.json({ tokens: [...tokens], count: tokens.length });
}

async function encode(
  { model, server: { slices } }: Service,
  body: JsonObject,
  signal: AbortSignal,
): Promise<Int32Array> {
  const { content, messages, add_special, parse_special } = body;
  if (isGiven(content) === isGiven(messages)) {
    const problem = isGiven(content) ? "give content or messages, not both" : "content is missing";
    throw new RequestError(problem, "content");
  }
  if (isGiven(messages)) {
    return (await model.encodePromptInSlices(readMessages(messages), { signal })).tokens;
  }
  const text = readString(content, "content");
  const encoding = encodeTextInSlices(text, model.tokenizer, model.contextLength, "content", {
    addSpecial: isGiven(add_special) && readBoolean(add_special, "add_special"),
    parseSpecial: !isGiven(parse_special) || readBoolean(parse_special, "parse_special"),
  });
  return await slices.run(encoding, signal);
}

/** Returns the text of token ids. */
export function detokenize(service: Service, _: Request, body: JsonObject): Response {
  checkKeys(body, ["model", "tokens"]);
  const { tokens } = body;
  if (!isTokenIds(tokens)) throw invalid("tokens", tokens, "a list of token ids");
  const { tokenizer } = service.model;
  checkTokens(tokens, tokenizer.vocabSize, "tokens");
  return Response.json({ content: tokenizer.decode(tokens, { skipSpecial: false }) });
}
