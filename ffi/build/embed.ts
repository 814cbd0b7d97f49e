/**
 * Files that a library carries inside: a C++ source with their text, so that the library needs
 * nothing beside it at run time.
 */
import { ForgeError } from "../../src/errors.ts";

/** A file to embed. */
interface EmbeddedFile {
  /** What the library finds it by. */
  readonly name: string;
  readonly text: string;
}

/** Ends the raw string literals; no embedded text may contain `)` and it and `"` in a row. */
const delimiter = "embedded";

/**
 * A C++ source that defines `forge::embedded_files`: name and text of each file in turn, then null.
 *
 * @throws {ForgeError} `unsupported` for a text that no raw string literal can hold.
 */
export function embeddedSource(files: readonly EmbeddedFile[]): string {
  const entries = files.map(({ name, text }) => {
    if (text.includes(`)${delimiter}"`) || text.includes("\0")) {
      throw new ForgeError(
        "unsupported",
        `${name} cannot be embedded: it holds )${delimiter}" or NUL`,
      );
    }
    return `    ${JSON.stringify(name)}, R"${delimiter}(${text})${delimiter}",\n`;
  });
  return `namespace forge {
extern const char* const embedded_files[];
const char* const embedded_files[] = {
${entries.join("")}    nullptr,
};
}  // namespace forge
`;
}
