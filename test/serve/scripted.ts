/** Models that say a text that tests give them, served. */
import type { TempFolder } from "../support/temp_folder.ts";
import { type TinyLlamaOptions, writeScriptedLlama } from "../support/tiny_llama.ts";
import { Client } from "./client.ts";

export const CHAT = "/v1/chat/completions";

/** A template that shows what it is given. */
export const GIVEN = "{{ tools | tojson if tools else 'none' }}{% for m in messages %}" +
  "[{{ m.role }}:{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}]{% endfor %}";

/** A client of a model that says a text, whose pieces differ. */
export async function scripted(
  folder: TempFolder,
  script: readonly string[],
  options: TinyLlamaOptions,
): Promise<Client> {
  writeScriptedLlama(folder.path, script, { contextLength: 4096, ...options });
  return await Client.open(folder.path);
}
