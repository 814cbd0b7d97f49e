/** The commands of a chat, for its help. */
const COMMANDS: readonly (readonly [usage: string, help: string])[] = [
  ["/help", "show this"],
  ["/system TEXT", "set the system message; without TEXT take it away"],
  ["/undo", "take back the last message and its answer"],
  ["/retry", "have the last message answered again"],
  ["/drop", "forget the oldest half of the conversation, to make room"],
  ["/reset", "forget all of it but the system message"],
  ["/save FILE", "write the conversation as JSON"],
  ["/load FILE", "go on with one that was saved"],
  ["/exit", "end the chat"],
];

/** Their names, such as `/help, /exit`. */
export const CHAT_COMMANDS = COMMANDS.map(([usage]) => usage.split(" ")[0]).join(", ");

/** What other programs call them. */
export const CHAT_ALIASES: Readonly<Record<string, string>> = {
  "/bye": "/exit",
  "/quit": "/exit",
  "/clear": "/reset",
  "/new": "/reset",
  "/regen": "/retry",
};

/** What `/help` prints. */
export const CHAT_HELP = [
  ...COMMANDS.map(([usage, help]) => `  ${usage.padEnd(14)}${help}`),
  '  \\ at the end of a line, or """ before and after, make a message of several lines; //… is a',
  "  message that begins with /. Ctrl-C stops an answer; twice at the prompt, or Ctrl-D, ends the chat.",
  "",
].join("\n");
