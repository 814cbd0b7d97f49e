/**
 * What kind of failure an error is. The command line maps `usage` to exit code 2 and the rest to 1;
 * a program can branch on it without reading the message.
 *
 * - `usage`: an option or argument is wrong; nothing was started.
 * - `not_found`: a file, model or library is not where it was looked for.
 * - `bad_model`: a model file, config, tokenizer or template is damaged or contradicts itself.
 * - `bad_input`: a prompt, token id or other run-time input cannot be used.
 * - `unsupported`: well-formed, but forge does not implement it.
 * - `device`: a native library or device refused or failed.
 * - `cancelled`: stopped on request.
 */
export type ErrorCode =
  | "usage"
  | "not_found"
  | "bad_model"
  | "bad_input"
  | "unsupported"
  | "device"
  | "cancelled";

/**
 * Every error forge raises on purpose. The message is one clear line: what was wrong, quoting the
 * offending value, and what is valid.
 */
export class ForgeError extends Error {
  /** The kind of failure. */
  readonly code: ErrorCode;

  /** An error of a kind; `message` is one line: what was wrong, and what is valid. */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "ForgeError";
    this.code = code;
  }
}
