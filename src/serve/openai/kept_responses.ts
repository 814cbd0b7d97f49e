import type { JsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import { HttpError } from "../http/http_error.ts";

/** A response, and the items of its conversation, its own included. */
interface KeptResponse {
  readonly response: JsonObject;
  readonly items: readonly JsonObject[];
}

/** Most responses that are kept, and most characters of their JSON together. */
const MAX_RESPONSES = 1000;
const MAX_CHARACTERS = 64 * 2 ** 20;

/** Responses kept in memory for later turns. The least recently used ones are dropped. */
export class KeptResponses {
  readonly #all = new Map<string, KeptResponse & { readonly size: number }>();
  #size = 0;

  /** Keeps a response. */
  add(response: JsonObject, items: readonly JsonObject[]): void {
    const size = JSON.stringify(response).length + JSON.stringify(items).length;
    this.#all.set(response.id as string, { response, items, size });
    this.#size += size;
    while (this.#all.size > MAX_RESPONSES || (this.#size > MAX_CHARACTERS && this.#all.size > 1)) {
      this.delete(this.#all.keys().next().value!);
    }
  }

  /** @throws {HttpError} 404 for a response that is not kept */
  get(id: string): KeptResponse {
    const known = this.#all.get(id);
    if (known === undefined) {
      throw new HttpError(
        404,
        `the response ${quote(id)} is not kept here; the latest ${MAX_RESPONSES} are, unless ` +
          '"store" is false',
        { param: "previous_response_id", code: "previous_response_not_found" },
      );
    }
    this.#all.delete(id);
    this.#all.set(id, known);
    return known;
  }

  /**
   * Returns an item of a kept response by its id.
   *
   * @throws {HttpError} 404 for an item that is not kept
   */
  item(id: string): JsonObject {
    for (const { items } of [...this.#all.values()].reverse()) {
      const found = items.findLast((item) => item.id === id);
      if (found !== undefined) return found;
    }
    throw new HttpError(404, `the item ${quote(id)} belongs to no response that is kept here`, {
      param: "input",
      code: "item_not_found",
    });
  }

  /** Forgets a response. */
  delete(id: string): void {
    this.#size -= this.#all.get(id)?.size ?? 0;
    this.#all.delete(id);
  }
}
