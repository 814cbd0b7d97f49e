import { ForgeError } from "../errors.ts";

/** A model on a hub: `org/name` or `org/name:FILE-OR-QUANTIZATION`, either with `@revision`. */
interface ModelReference {
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
        `with @REVISION after the name`,
    );
  }
  return {
    repository: groups.repository!,
    revision: groups.revision ?? "main",
    selector: groups.selector,
  };
}
