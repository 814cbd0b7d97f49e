/**
 * Kinds of failure, so that programs need not parse messages. The command line maps `usage` to exit
 * code 2 and the rest to 1.
 *
 * - `usage`: an option or argument is wrong; nothing was started.
 * - `not_found`: a file, model or library is missing.
 * - `bad_model`: a model file, config, tokenizer or template is damaged or contradicts itself.
 * - `bad_input`: a prompt, token id or other run-time input cannot be used.
 * - `unsupported`: well-formed, but forge does not implement it.
 * - `device`: a native library or device failed or rejected the request.
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
 * Every error that forge raises on purpose. The message is one line: what was wrong, quoting the
 * value, then what is valid.
 */
export class ForgeError extends Error {
  /** The kind of failure. */
  readonly code: ErrorCode;

  /** Creates an error; `message` is one line: what was wrong, then what is valid. */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "ForgeError";
    this.code = code;
  }
}
