import { JsonText } from "./json_text.ts";
import type { CallBody, Part } from "./part_reader.ts";

/** What comes next between the texts, objects and lists of the JSON. */
type Place = "start" | "list" | "key" | "colon" | "value" | "scalar" | "comma";

/** Keys of a call's arguments. */
const ARGUMENTS = ["arguments", "parameters"];

/** A text, object or list that is being read. */
interface Reading {
  readonly role: "key" | "name" | "arguments" | "other";
  readonly json: JsonText;
  written: string;
}

/**
 * Reads calls in JSON as they are written: `{"name": …, "arguments": {…}}`, or a list of them. A call is
 * told when its name and the beginning of its arguments are known, these as they come, less the white space
 * between their parts. What they hold is not looked at: that it is JSON, and conforms, is a constraint's
 * to see to.
 */
export class JsonCalls implements CallBody {
  state: CallBody["state"] = "open";
  rest = "";
  readonly #isList: boolean;
  readonly #isKnown: (name: string) => boolean;
  readonly #most: number;
  #unsaid: string;
  #place: Place = "start";
  #isInList = false;
  #reading: Reading | undefined;
  #key: string | undefined;
  #nCalls = 0;
  /** Of the call that is being read: its name, what of its arguments was not passed on, and whether it was told. */
  #name: string | undefined;
  #arguments: string | undefined;
  #isTold = false;

  /**
   * @param mark what stood before; it is content where no call follows
   * @param isList whether calls may stand in a list
   * @param isKnown whether there is a function of a name
   * @param most calls that are wanted
   */
  constructor(mark: string, isList: boolean, isKnown: (name: string) => boolean, most: number) {
    this.#unsaid = mark;
    this.#isList = isList;
    this.#isKnown = isKnown;
    this.#most = most;
  }

  get unsaid(): string {
    // Between the calls of a list there is nothing to say.
    return this.#place === "list" && this.#nCalls > 0 ? "" : this.#unsaid;
  }

  push(text: string): Part[] {
    const parts: Part[] = [];
    let at = 0;
    while (at < text.length && this.state === "open" && this.#take(text[at]!, parts)) at++;
    this.rest = text.slice(at);
    this.#tell(parts);
    return parts;
  }

  end(): Part[] {
    return [];
  }

  /** @returns false for a character that belongs to no call, and may begin something else */
  #take(character: string, parts: Part[]): boolean {
    const { unsaid } = this;
    this.#unsaid = this.#isTold ? "" : unsaid + character;
    if (this.#reading !== undefined) {
      this.#read(this.#reading, character, parts);
    } else if (character.trim() !== "" && !this.#step(character, parts)) {
      this.#unsaid = unsaid;
      this.state = "broken";
      return false;
    }
    return true;
  }

  /** Reads what stands between texts, objects and lists. @returns whether it may stand there */
  #step(character: string, parts: Part[]): boolean {
    switch (this.#place) {
      case "start":
        if (character === "[" && this.#isList) {
          this.#isInList = true;
          return this.#goTo("list");
        }
        return character === "{" && this.#goTo("key");
      case "list":
        if (character === "]") this.state = "ended";
        return character === "]" || character === "," || (character === "{" && this.#goTo("key"));
      case "key":
        if (character === "}") return this.#endCall(parts);
        return character === '"' && this.#begin("key", character);
      case "colon":
        return character === ":" && this.#goTo("value");
      case "value":
        return this.#stepIntoValue(character);
      case "scalar":
      case "comma":
        if (character === "}") return this.#endCall(parts);
        if (character === ",") return this.#goTo("key");
        return this.#place === "scalar";
    }
  }

  #stepIntoValue(character: string): boolean {
    const isArguments = ARGUMENTS.includes(this.#key ?? "") && this.#arguments === undefined;
    if (isArguments) {
      if (character === "{") return this.#begin("arguments", character);
      // Those that are null are none.
      return character === "n" && this.#goTo("scalar");
    }
    if (this.#key === "name" && this.#name === undefined) {
      return character === '"' && this.#begin("name", character);
    }
    if (['"', "{", "["].includes(character)) return this.#begin("other", character);
    return /[\w-]/.test(character) && this.#goTo("scalar");
  }

  #goTo(place: Place): true {
    this.#place = place;
    return true;
  }

  #begin(role: Reading["role"], character: string): true {
    const json = new JsonText();
    json.take(character);
    if (role === "arguments") this.#arguments = character;
    this.#reading = { role, json, written: character };
    return true;
  }

  #read(reading: Reading, character: string, parts: Part[]): void {
    const { role, json } = reading;
    if (json.take(character)) {
      if (role === "arguments") this.#arguments += character;
      else if (role !== "other") reading.written += character;
    }
    if (!json.isEnded) return;
    this.#reading = undefined;
    this.#goTo(role === "key" ? "colon" : "comma");
    if (role === "key") this.#key = textOf(reading.written);
    else if (role === "name") this.#name = textOf(reading.written);
    if (role === "name" && !(this.#name !== undefined && this.#isKnown(this.#name))) {
      this.state = "broken";
    } else this.#tell(parts);
  }

  /** Tells what is certain of the call: that it is one, and its arguments. */
  #tell(parts: Part[]): void {
    if (this.#name === undefined || this.#arguments === undefined || this.state === "broken") {
      return;
    }
    if (!this.#isTold) parts.push({ kind: "call", name: this.#name });
    if (this.#arguments !== "") parts.push({ kind: "arguments", text: this.#arguments });
    this.#arguments = "";
    this.#isTold = true;
    this.#unsaid = "";
  }

  /** @returns whether the object was a call */
  #endCall(parts: Part[]): boolean {
    if (this.#name === undefined) return false;
    this.#arguments ??= "{}";
    this.#tell(parts);
    parts.push({ kind: "called" });
    this.#name = this.#arguments = this.#key = undefined;
    this.#isTold = false;
    this.#goTo("list");
    if (++this.#nCalls === this.#most || !this.#isInList) this.state = "ended";
    return true;
  }
}

/** What a JSON text says; `undefined` where it is none. */
function textOf(json: string): string | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === "string" ? value : undefined;
  } catch {
    return undefined;
  }
}
