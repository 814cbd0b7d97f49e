import type { JsonValue } from "../../formats/json.ts";
import { invalid, isGiven, RequestError } from "../../requests/values.ts";

/** OpenAI's efforts. */
const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh"] as const;

/** Those that templates with a variable of this name know: gpt-oss's. */
const TOLD_EFFORTS = ["low", "medium", "high"];

/**
 * What `reasoning_effort` is for a chat template: a variable that it has, or whether there are thoughts at all.
 *
 * @param given what the request sets itself, which must not say something else
 * @returns variables of the template, or `undefined` where the request sets none
 * @throws {RequestError} for an effort that the model cannot be told
 */
export function effortVariables(
  effort: JsonValue | undefined,
  template: string | undefined,
  given: Readonly<Record<string, unknown>> = {},
): Readonly<Record<string, unknown>> | undefined {
  const name = "reasoning_effort";
  if (!isGiven(effort)) return undefined;
  if (!EFFORTS.some((known) => known === effort)) {
    throw invalid(name, effort, EFFORTS.map((known) => JSON.stringify(known)).join(", "));
  }
  const isTold = template?.includes(name) ?? false;
  const variable = isTold ? name : "enable_thinking";
  if (!isTold && !template?.includes(variable)) {
    throw new RequestError(
      `${name} cannot be told to this model: its chat template has no variable for it; valid is null`,
      name,
    );
  }
  if (variable in given) {
    throw new RequestError(`give ${name} or chat_template_kwargs.${variable}, not both`, name);
  }
  if (!isTold) return { ...given, [variable]: effort !== "none" };
  if (TOLD_EFFORTS.some((known) => known === effort)) return { ...given, [variable]: effort };
  throw invalid(
    name,
    effort,
    `${TOLD_EFFORTS.map((known) => JSON.stringify(known)).join(", ")} for this model`,
  );
}
