/** Files of conversations: a JSON list of messages, as in OpenAI's API. */
import { ForgeError } from "../../errors.ts";
import { isJsonObject, type JsonValue } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import type { ChatMessage } from "../../mod.ts";
import { readMessages } from "../../requests/messages.ts";
import { replaceFile } from "../output/streams.ts";
import { readTextFile } from "../input/text_source.ts";

/**
 * Reads messages: a list of them, or an object with a key `messages`.
 *
 * @throws {ForgeError} `not_found`; `bad_input`, naming the invalid message
 */
export async function loadMessages(path: string): Promise<ChatMessage[]> {
  const text = await readTextFile(path);
  try {
    const value: JsonValue = JSON.parse(text);
    return readMessages(isJsonObject(value) ? value.messages : value);
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/\p{Cc}+/gu, " ") : String(error);
    const kind = error instanceof SyntaxError ? "not valid JSON" : "not a conversation";
    throw new ForgeError("bad_input", `${quote(path)} is ${kind}: ${reason}`, { cause: error });
  }
}

/**
 * Writes messages. Replaces an existing file only if it is a conversation.
 *
 * @throws {ForgeError} `usage` if the file is something else; `device` if it cannot be written
 */
export async function saveMessages(path: string, messages: readonly ChatMessage[]): Promise<void> {
  if (await isSomethingElse(path)) {
    throw new ForgeError(
      "usage",
      `${quote(path)} exists and is not a conversation; name another file`,
    );
  }
  await replaceFile(path, `${JSON.stringify(messages, null, 2)}\n`);
}

async function isSomethingElse(path: string): Promise<boolean> {
  try {
    await loadMessages(path);
    return false;
  } catch (error) {
    if (!(error instanceof ForgeError)) throw error;
    return !(error.cause instanceof Deno.errors.NotFound);
  }
}
