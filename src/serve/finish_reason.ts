import type { FinishReason } from "../engine/generation/request.ts";

/** Why an answer ended, as OpenAI's API says it. */
export function finishReason(reason: FinishReason): string {
  return reason === "constraint_complete" ? "stop" : reason;
}
