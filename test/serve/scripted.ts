/** Serves models that generate a given text. */
import type { TempFolder } from "../support/temp_folder.ts";
import { type TinyLlamaOptions, writeScriptedLlama } from "../support/tiny_llama.ts";
import { Client } from "./client.ts";

export const CHAT = "/v1/chat/completions";

/** Chat template that prints its tools and messages. */
export const GIVEN = "{{ tools | tojson if tools else 'none' }}{% for m in messages %}" +
  "[{{ m.role }}:{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}]{% endfor %}";

/** Opens a client of a model that generates a text, given as distinct pieces. */
export async function scripted(
  folder: TempFolder,
  script: readonly string[],
  options: TinyLlamaOptions,
): Promise<Client> {
  writeScriptedLlama(folder.path, script, { contextLength: 4096, ...options });
  return await Client.open(folder.path);
}
