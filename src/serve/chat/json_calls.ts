/** Readers of tool calls whose arguments are JSON. */
import type { CallBody, Part } from "./dialect.ts";

/** Position between the strings, objects and lists of the JSON. */
type Place = "start" | "list" | "key" | "colon" | "value" | "scalar" | "comma";

/** Keys of a call's arguments. */
const ARGUMENTS = ["arguments", "parameters"];

/** A string, object or list that is being read. */
interface Reading {
  readonly role: "key" | "name" | "arguments" | "other";
  readonly json: JsonText;
  written: string;
}

/**
 * Reads calls in JSON as they are written: `{"name": …, "arguments": {…}}`, or a list of them. A
 * call is reported once its name and the beginning of its arguments are known. Arguments follow as
 * they arrive, without the white space between their parts. They are not checked: a constraint
 * makes them valid.
 */
export class JsonCalls implements CallBody {
  state: CallBody["state"] = "open";
  rest = "";
  readonly #isList: boolean;
  readonly #isKnown: (name: string) => boolean;
  readonly #most: number;
  #unreported: string;
  #place: Place = "start";
  #isInList = false;
  #reading: Reading | undefined;
  #key: string | undefined;
  #nCalls = 0;
  /** Name of the call that is being read. */
  #name: string | undefined;
  /** Its arguments that were not reported yet. */
  #arguments: string | undefined;
  /** True if the call was reported. */
  #isReported = false;

  /**
   * @param mark text before the body; it is content if no call follows
   * @param isList true if calls may be in a list
   * @param isKnown true for names of tools
   * @param most limit of calls
   */
  constructor(mark: string, isList: boolean, isKnown: (name: string) => boolean, most: number) {
    this.#unreported = mark;
    this.#isList = isList;
    this.#isKnown = isKnown;
    this.#most = most;
  }

  get unreported(): string {
    // Text between the calls of a list is never content.
    return this.#place === "list" && this.#nCalls > 0 ? "" : this.#unreported;
  }

  push(text: string): Part[] {
    const parts: Part[] = [];
    let at = 0;
    while (at < text.length && this.state === "open" && this.#take(text[at]!, parts)) at++;
    this.rest = text.slice(at);
    this.#report(parts);
    return parts;
  }

  end(): Part[] {
    return [];
  }

  /** @returns false for a character that cannot continue a call */
  #take(character: string, parts: Part[]): boolean {
    const { unreported } = this;
    this.#unreported = this.#isReported ? "" : unreported + character;
    if (this.#reading !== undefined) {
      this.#read(this.#reading, character, parts);
    } else if (character.trim() !== "" && !this.#step(character, parts)) {
      this.#unreported = unreported;
      this.state = "broken";
      return false;
    }
    return true;
  }

  /**
   * Reads a character between strings, objects and lists. @returns false if it is not valid there
   */
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
      // Arguments may be null.
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
    } else this.#report(parts);
  }

  /** Reports the call once it is certain, and its arguments so far. */
  #report(parts: Part[]): void {
    if (this.#name === undefined || this.#arguments === undefined || this.state === "broken") {
      return;
    }
    if (!this.#isReported) parts.push({ kind: "call", name: this.#name });
    if (this.#arguments !== "") parts.push({ kind: "arguments", text: this.#arguments });
    this.#arguments = "";
    this.#isReported = true;
    this.#unreported = "";
  }

  /** @returns false if the object has no name */
  #endCall(parts: Part[]): boolean {
    if (this.#name === undefined) return false;
    this.#arguments ??= "{}";
    this.#report(parts);
    parts.push({ kind: "called" });
    this.#name = this.#arguments = this.#key = undefined;
    this.#isReported = false;
    this.#goTo("list");
    if (++this.#nCalls === this.#most || !this.#isInList) this.state = "ended";
    return true;
  }
}

/** Parses a JSON string; returns `undefined` if it is not one. */
function textOf(json: string): string | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === "string" ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Reads the arguments of a call whose name is known. Text that is not an object is content. */
export class CallArguments {
  readonly #name: string;
  readonly #json = new JsonText();
  #state: "before" | "inside" | "after" | "content" = "before";
  /** White space that was not reported yet. */
  #gap = "";

  constructor(name: string) {
    this.#name = name;
  }

  push(text: string): Part[] {
    const parts: Part[] = [];
    let at = 0;
    if (this.#state === "before") {
      at = text.length - text.trimStart().length;
      this.#gap += text.slice(0, at);
      if (at === text.length) return parts;
      this.#state = text[at] === "{" ? "inside" : "content";
      if (this.#state === "inside") parts.push({ kind: "call", name: this.#name });
    }
    let written = "";
    for (; at < text.length && this.#state === "inside"; at++) {
      if (this.#json.take(text[at]!)) written += text[at];
      if (this.#json.isEnded) this.#state = "after";
    }
    if (written !== "") parts.push({ kind: "arguments", text: written });
    if (written !== "" && this.#state === "after") {
      parts.push({ kind: "called" });
      this.#gap = "";
    }
    this.#reportRest(text.slice(at), parts);
    return parts;
  }

  /** Returns the parts held back, at the end of the message. */
  end(): Part[] {
    return this.#state === "before" && this.#gap !== ""
      ? [{ kind: "content", text: this.#gap }]
      : [];
  }

  /** Skips white space after the object. Other text is content. */
  #reportRest(text: string, parts: Part[]): void {
    const rest = this.#gap + text;
    if (this.#state === "inside" || (this.#state === "after" && rest.trim() === "")) {
      this.#gap = this.#state === "after" ? rest : "";
      return;
    }
    this.#state = "content";
    this.#gap = "";
    if (rest !== "") parts.push({ kind: "content", text: rest });
  }
}

/**
 * Finds the end of a JSON string, object or list, one character at a time. Contents are not
 * checked.
 */
class JsonText {
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  /** True if the last character ended the value. */
  get isEnded(): boolean {
    return this.#depth === 0 && !this.#isInString;
  }

  /** Takes a character. @returns false for white space between parts */
  take(character: string): boolean {
    if (this.#isInString) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (character === "\\") this.#isEscaped = true;
      else if (character === '"') this.#isInString = false;
      return true;
    }
    if (character === '"') this.#isInString = true;
    else if (character === "{" || character === "[") this.#depth++;
    else if (character === "}" || character === "]") this.#depth--;
    return character.trim() !== "";
  }
}
