import { ForgeError } from "../../errors.ts";
import type { JsonObject } from "../../formats/json.ts";
import { RequestError } from "../../requests/values.ts";
import { type CallFormat, callSchema } from "./call_formats.ts";
import type { Tool } from "./tools.ts";

/** Sets of tools that are remembered. */
const MOST_KEPT = 32;

/** What stands in for parameters that cannot be enforced. */
const ANY_ARGUMENTS: JsonObject = { type: "object" };

/**
 * Finds out which parameters of tools can be enforced. A model is free to call a tool or not, and its
 * tools may come from programs that know nothing of forge: where their schemas say more than can be
 * enforced, the arguments are any object, unless they are said to be strict.
 */
export class EnforceableTools {
  readonly #known = new Map<string, readonly Tool[]>();

  /**
   * The tools with parameters that can be enforced.
   *
   * @throws {RequestError} for a strict tool whose parameters cannot be, with the reason
   */
  async of(format: CallFormat, tools: readonly Tool[]): Promise<readonly Tool[]> {
    const key = JSON.stringify([format.open, tools]);
    const found = this.#known.get(key) ?? await settle(format, tools);
    this.#known.delete(key);
    this.#known.set(key, found);
    const [oldest] = this.#known.keys();
    if (this.#known.size > MOST_KEPT) this.#known.delete(oldest!);
    return found;
  }
}

async function settle(format: CallFormat, tools: readonly Tool[]): Promise<readonly Tool[]> {
  const { translate } = await import("../../constrain/grammar/translate.ts");
  const refusal = (some: readonly Tool[]): ForgeError | undefined => {
    try {
      translate({ kind: "json_schema", schema: callSchema(format, some, Infinity) }, false);
      return undefined;
    } catch (error) {
      if (error instanceof ForgeError) return error;
      throw error;
    }
  };
  if (refusal(tools) === undefined) return tools;
  const each = tools.map((tool) => {
    const reason = refusal([tool]);
    if (reason === undefined) return tool;
    if (!tool.isStrict) return { ...tool, parameters: ANY_ARGUMENTS };
    throw new RequestError(
      `the strict tool ${tool.name} cannot be enforced: ${reason.message}`,
      "tools",
    );
  });
  const together = refusal(each);
  if (together === undefined) return each;
  if (each.some(({ isStrict }) => isStrict)) {
    throw new RequestError(`the tools cannot be enforced together: ${together.message}`, "tools");
  }
  return each.map((tool) => ({ ...tool, parameters: ANY_ARGUMENTS }));
}
