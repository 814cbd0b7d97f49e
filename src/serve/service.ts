import { basename } from "@std/path";
import type { GenerateOptions } from "../engine/request/options.ts";
import type { Model } from "../engine/model.ts";
import type { JsonObject } from "../formats/json.ts";
import { quote, quoteList } from "../formats/quote.ts";
import { isGiven, readString } from "../requests/values.ts";
import { Admission } from "./admission.ts";
import { EnforceableTools } from "./chat/enforceable.ts";
import { HttpError } from "./http/http_error.ts";
import { DEFAULT_QUEUE, type ServeOptions } from "./options.ts";
import { DEFAULT_PARALLEL } from "../engine/limits.ts";

/** What endpoints share. */
export class Service {
  readonly model: Model;
  /** What the model is called; the first is its name in answers. */
  readonly names: readonly [string, ...string[]];
  readonly defaults: GenerateOptions;
  readonly admission: Admission;
  readonly enforceable = new EnforceableTools();
  /** When the service began, in seconds since 1970. */
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

  /**
   * Refuses a request for another model.
   *
   * @throws {HttpError} 404
   */
  checkModel({ model }: JsonObject): void {
    if (isGiven(model)) this.findModel(readString(model, "model"));
  }

  /** @throws {HttpError} 404 for a name that is not the model's */
  findModel(name: string): string {
    if (this.names.includes(name)) return name;
    throw new HttpError(
      404,
      `the model ${quote(name)} is not served here; valid is ${quoteList(this.names)}`,
      { param: "model", code: "model_not_found" },
    );
  }
}

/** The name of a file or folder, without what says its format. */
function nameOf(path: string): string {
  return basename(path).replace(/^\.+$|\.gguf$/i, "") || "model";
}
