import { basename } from "node:path";
import { DEFAULT_PARALLEL } from "../engine/limits.ts";
import type { Model } from "../engine/model.ts";
import type { GenerateOptions } from "../engine/request/options.ts";
import { Slices } from "../engine/request/prompt.ts";
import type { JsonObject } from "../formats/json.ts";
import { quote, quoteList } from "../formats/quote.ts";
import { isGiven, readString } from "../requests/values.ts";
import { EnforceableTools } from "./chat/tools.ts";
import { HttpError } from "./http/http_error.ts";
import { Metrics } from "./metrics.ts";
import { KeptResponses } from "./openai/kept_responses.ts";
import { DEFAULT_QUEUE, type ServeOptions } from "./options.ts";

/** State that all endpoints share. */
export class Service {
  readonly model: Model;
  /** Names of the model; responses use the first. */
  readonly names: readonly [string, ...string[]];
  /** Options of generations where a request sets none. */
  readonly defaults: GenerateOptions;
  readonly admission: Admission;
  readonly enforceable = new EnforceableTools();
  /** Encoding of texts that are not prompts. */
  readonly slices = new Slices();
  readonly responses = new KeptResponses();
  readonly metrics = new Metrics();
  /** Start of the service, in seconds since 1970. */
  readonly created = Math.floor(Date.now() / 1000);
  readonly onError: (error: unknown) => void;

  constructor(model: Model, options: ServeOptions) {
    const { names: [name, ...others] = [], defaults = {}, maxAnswers, onError } = options;
    this.model = model;
    this.names = [name ?? nameOf(model.checkpoint.path), ...others];
    this.defaults = defaults;
    this.admission = new Admission(maxAnswers ?? DEFAULT_PARALLEL + DEFAULT_QUEUE);
    this.onError = onError ?? ((error) => console.error(error));
  }

  get name(): string {
    return this.names[0];
  }

  /** @throws {HttpError} 404 if the request names another model */
  checkModel({ model }: JsonObject): void {
    if (isGiven(model)) this.findModel(readString(model, "model"));
  }

  /** @throws {HttpError} 404 if the model has no such name */
  findModel(name: string): string {
    if (this.names.includes(name)) return name;
    throw new HttpError(
      404,
      `the model ${quote(name)} is not served here; valid is ${quoteList(this.names)}`,
      { param: "model", code: "model_not_found" },
    );
  }
}

/** Returns the base name of a path without the extension .gguf. */
function nameOf(path: string): string {
  return basename(path).replace(/^\.+$|\.gguf$/i, "") || "model";
}

/** Counts the answers in progress, computed or queued, and limits them. */
class Admission {
  readonly #limit: number;
  #inProgress = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get inProgress(): number {
    return this.#inProgress;
  }

  /**
   * Admits answers until the result is disposed of. A request that exceeds the limit by itself is
   * admitted when no other is in progress.
   *
   * @throws {HttpError} 503 when too many are in progress
   */
  enter(answers: number): Disposable {
    if (this.#inProgress > 0 && this.#inProgress + answers > this.#limit) {
      throw new HttpError(
        503,
        `${this.#inProgress} answers are in progress and ${answers} more were requested; ` +
          `the limit is ${this.#limit}, try again later`,
        { code: "queue_full", headers: { "retry-after": "1" } },
      );
    }
    this.#inProgress += answers;
    let entered = answers;
    return {
      [Symbol.dispose]: () => {
        this.#inProgress -= entered;
        entered = 0;
      },
    };
  }
}
