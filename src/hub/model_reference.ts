import { ForgeError } from "../errors.ts";

/** A model on a hub: `org/name` or `org/name:FILE-OR-QUANTIZATION`, either with `@revision`. */
export interface ModelReference {
  /** `org/name` */
  readonly repository: string;
  /** Branch, tag or commit. */
  readonly revision: string;
  /** A file name, or part of one such as `Q4_K_M`. */
  readonly selector: string | undefined;
}

const PART = "[A-Za-z0-9][A-Za-z0-9._-]*";
const PATTERN = new RegExp(
  `^(?<repository>${PART}/${PART})(?:@(?<revision>${PART}))?(?::(?<selector>[^:]+))?$`,
);

/** Addresses of pages and files of a model, as browsers show them. */
const ADDRESS = new RegExp(
  `^(?:https?://)?(?:www\\.)?(?:huggingface\\.co|hf\\.co)/(?<repository>${PART}/${PART})` +
    `(?:/(?:tree|blob|resolve)/(?<revision>${PART})(?:/(?<file>[^?#]+))?)?/?(?:[?#].*)?$`,
);

/** Returns the name of the hub for its address with `hf.co` or `huggingface.co`, else the text. */
export function hubName(text: string): string {
  // A selector may follow the name of a repository: hf.co/org/name:Q4_K_M.
  const [, address = text, selector = ""] = /^(.+\/[^:/]+)(:[^:/]+)$/.exec(text) ?? [];
  const groups = ADDRESS.exec(address)?.groups;
  if (groups === undefined) return text;
  const { repository, revision = "main", file } = groups;
  const at = revision === "main" ? "" : `@${revision}`;
  const isModelFile = file !== undefined && /\.gguf$/i.test(file);
  return `${repository}${at}${isModelFile ? `:${decodeURIComponent(file)}` : selector}`;
}

/** True if a text has the form of a hub name. */
export function isModelReference(text: string): boolean {
  return PATTERN.test(text);
}

/** @throws {ForgeError} `usage` if the text is not a hub name */
export function parseModelReference(text: string): ModelReference {
  const groups = PATTERN.exec(text)?.groups;
  if (groups === undefined) {
    throw new ForgeError(
      "usage",
      `"${text}" is not a hub name; valid are org/name, org/name:FILE and org/name:QUANTIZATION, ` +
        `with @REVISION after the name, and addresses of models on huggingface.co`,
    );
  }
  return {
    repository: groups.repository!,
    revision: groups.revision ?? "main",
    selector: groups.selector,
  };
}
