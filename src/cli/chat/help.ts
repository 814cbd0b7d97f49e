/** Commands of a chat, with their help. */
import { columnsOf, formatColumns, wrap } from "../output/terminal_text.ts";

const COMMANDS: readonly (readonly [usage: string, help: string])[] = [
  ["/help", "show this help"],
  ["/system TEXT", "set the system message; without TEXT, remove it"],
  ["/undo", "remove the last message and its answer"],
  ["/retry", "answer the last message again"],
  ["/drop", "remove the oldest messages until half of the context is free"],
  ["/reset", "remove all messages except the system message"],
  ["/save FILE", "write the conversation to a JSON file"],
  ["/load FILE", "continue a saved conversation"],
  ["/exit", "end the chat"],
];

/** Names of the commands: `/help, /system, …`. */
export const CHAT_COMMANDS = COMMANDS.map(([usage]) => usage.split(" ")[0]).join(", ");

/** Commands of other programs, for the advice on an unknown command. */
export const CHAT_ALIASES: Readonly<Record<string, string>> = {
  "/bye": "/exit",
  "/quit": "/exit",
  "/clear": "/reset",
  "/new": "/reset",
  "/regen": "/retry",
};

const NOTES =
  'A \\ at the end of a line, or """ before and after, makes a message of several lines. Begin with ' +
  "// for a message that begins with /. Ctrl-C stops an answer. Ctrl-D, or Ctrl-C twice, ends the " +
  "chat.";

/** Returns the text of `/help`. */
export function chatHelp(): string {
  const columns = Math.min(100, columnsOf(Deno.stderr) ?? 100);
  const notes = wrap(NOTES, columns - 2).map((line) => `  ${line}\n`).join("");
  return `${formatColumns(COMMANDS, { columns, indent: 2 })}\n${notes}`;
}
