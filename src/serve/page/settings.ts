/// <reference lib="dom" />
/** Options of answers, and the dialog that sets them. */

/** Options as they are typed; an empty text leaves an option to the server. */
interface Settings {
  readonly temperature: string;
  readonly top_k: string;
  readonly top_p: string;
  readonly min_p: string;
  readonly repeat_penalty: string;
  readonly seed: string;
  readonly max_tokens: string;
  readonly reasoning_effort: string;
  readonly schema: string;
  readonly tools: string;
  readonly probabilities: boolean;
}

const STORAGE_KEY = "forge.settings";
const NUMBERS = [
  "temperature",
  "top_k",
  "top_p",
  "min_p",
  "repeat_penalty",
  "seed",
  "max_tokens",
] as const;
const TEXTS = [...NUMBERS, "reasoning_effort", "schema", "tools"] as const;

/** Alternatives that are reported for each token. */
const TOP_LOGPROBS = 5;

const NOTHING = Object.fromEntries(TEXTS.map((name) => [name, ""]));

/** Returns the stored options. */
function storedSettings(): Settings {
  let stored: Record<string, unknown> = {};
  try {
    stored = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "{}");
  } catch {
    // Damaged: the defaults apply.
  }
  return { ...NOTHING, probabilities: false, ...stored } as Settings;
}

/**
 * Returns the keys of a request that the options stand for.
 *
 * @throws {Error} if the schema or the tools are not JSON
 */
export function requestKeys(settings: Settings): Record<string, unknown> {
  const numbers = NUMBERS.filter((name) => settings[name] !== "")
    .map((name) => [name, Number(settings[name])]);
  const { reasoning_effort, schema, tools, probabilities } = settings;
  return {
    ...Object.fromEntries(numbers),
    ...(reasoning_effort === "" ? {} : { reasoning_effort }),
    ...(schema.trim() === "" ? {} : {
      response_format: {
        type: "json_schema",
        json_schema: { name: "answer", schema: readJson(schema, "The JSON schema") },
      },
    }),
    ...(tools.trim() === "" ? {} : { tools: readJson(tools, "The list of tools") }),
    ...(probabilities ? { logprobs: true, top_logprobs: TOP_LOGPROBS } : {}),
  };
}

function readJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not valid JSON: ${(error as Error).message}`);
  }
}

/** The dialog of the options and the system prompt. */
export class SettingsDialog {
  readonly #dialog: HTMLDialogElement;
  readonly #form: HTMLFormElement;
  readonly #error: HTMLElement;
  #settings = storedSettings();
  #applySystem: (system: string) => void = () => {};

  constructor(dialog: HTMLDialogElement) {
    this.#dialog = dialog;
    this.#form = dialog.querySelector("form")!;
    this.#error = dialog.querySelector("[role=alert]")!;
    this.#form.addEventListener("submit", (event) => this.#submit(event));
  }

  /** The options in use. */
  get settings(): Settings {
    return this.#settings;
  }

  /** @param applySystem called with the system prompt if the options are applied */
  open(system: string, applySystem: (system: string) => void): void {
    this.#applySystem = applySystem;
    this.#error.textContent = "";
    this.#field("system").value = system;
    for (const name of TEXTS) this.#field(name).value = this.#settings[name];
    (this.#field("probabilities") as HTMLInputElement).checked = this.#settings.probabilities;
    this.#dialog.showModal();
  }

  #submit(event: SubmitEvent): void {
    if ((event.submitter as HTMLButtonElement | null)?.value === "cancel") return;
    const texts = Object.fromEntries(TEXTS.map((name) => [name, this.#field(name).value]));
    const { checked } = this.#field("probabilities") as HTMLInputElement;
    const settings = { ...texts, probabilities: checked } as unknown as Settings;
    try {
      requestKeys(settings);
    } catch (error) {
      event.preventDefault();
      this.#error.textContent = (error as Error).message;
      return;
    }
    this.#settings = settings;
    localStorage.setItem(STORAGE_KEY, JSON.stringify(settings));
    this.#applySystem(this.#field("system").value);
  }

  #field(name: string): HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement {
    return this.#form.elements.namedItem(name) as HTMLInputElement;
  }
}
