/**
 * Translates Metal kernels to C++ for the emulator. MSL is C++14 with address spaces and
 * attributes. `shim/metal_stdlib` turns the keywords into macros; the rest is rewritten here, line
 * by line, so that reports name the line of the kernel's own file:
 *
 * - `threadgroup float partial[32];` becomes memory of the threadgroup,
 * - `uint lane [[thread_index_in_simdgroup]]` becomes a parameter of the type of that name,
 * - the last such declaration of a kernel is followed by a mark, before which the kernel does
 *   nothing else, so that the sizes can be measured,
 * - `threadgroup float* values [[threadgroup(0)]]` becomes the memory of the launch,
 * - other attributes are removed, and kernels that are not templates are registered like instances.
 */

/** Blanks out comments, keeping the length, so that patterns do not match in them. */
export function withoutComments(text: string): string {
  return text.replaceAll(/\/\/.*/g, (comment) => " ".repeat(comment.length));
}

/** The parameters between the parenthesis at `open` and its matching one. */
function parameters(text: string, open: number): string {
  let depth = 0;
  for (let at = open; at < text.length; ++at) {
    if (text[at] === "(") ++depth;
    if (text[at] === ")" && --depth === 0) return text.slice(open + 1, at);
  }
  throw new Error("a parameter list without an end");
}

interface Kernel {
  readonly name: string;
  readonly isTemplate: boolean;
  readonly parameters: string;
}

/** The kernels that a file defines. */
export function kernelsOf(source: string): Kernel[] {
  const text = withoutComments(source);
  const pattern = /(template <[^;{]*>\s+)?(?:\[\[kernel\b[^\]]*\]\]|\bkernel)\s+void\s+(\w+)\s*\(/g;
  return Array.from(text.matchAll(pattern), (match) => ({
    name: match[2] ?? "",
    isTemplate: match[1] !== undefined,
    parameters: parameters(text, match.index + match[0].length - 1),
  }));
}

/** Fails unless buffers are numbered in order, as arguments.h lists them. */
function checkBuffers(file: string, kernel: Kernel): void {
  const indices = Array.from(kernel.parameters.matchAll(/\[\[buffer\((\d+)\)\]\]/g), (m) => m[1]);
  indices.forEach((index, place) => {
    if (Number(index) !== place) {
      throw new Error(`${file}: ${kernel.name} has buffer ${index} in place ${place}`);
    }
  });
  if (indices.length === 0) throw new Error(`${file}: ${kernel.name} takes no buffers`);
}

const KERNEL = /(?:\[\[kernel\b[^\]]*\]\]|\bkernel)\s+void\s+\w+\s*\(/g;
const THREADGROUP_ARRAY = /^ *threadgroup [\w:<>, ]+ \w+(?:\[[^\]]*\])*;/gm;

/** Marks the end of each kernel's declarations of threadgroup memory. */
function withMarks(source: string): string {
  const text = withoutComments(source);
  const starts = Array.from(text.matchAll(KERNEL), (match) => match.index + match[0].length - 1);
  const arrays = Array.from(
    text.matchAll(THREADGROUP_ARRAY),
    (match) => match.index + match[0].length,
  );
  const marks = starts.map((open, i) => {
    const end = starts[i + 1] ?? text.length;
    const last = arrays.findLast((at) => open < at && at < end);
    return last ?? text.indexOf("{", open + parameters(text, open).length) + 1;
  });
  let result = "", done = 0;
  for (const mark of marks) {
    result += source.slice(done, mark) + " THREADGROUP_MEMORY_END;";
    done = mark;
  }
  return result + source.slice(done);
}

/** Returns the C++ of a kernel file or header; `file` is its path, for reports. */
export function translate(file: string, source: string): string {
  const kernels = kernelsOf(source);
  for (const kernel of kernels) checkBuffers(file, kernel);
  const body = withMarks(source)
    .replaceAll(
      /^( *)threadgroup ([\w:<>, ]+) (\w+)((?:\[[^\]]*\])*);/gm,
      "$1THREADGROUP_MEMORY(($2), $3, ($4));",
    )
    .replaceAll(
      /\bthreadgroup (\w+)\*\s+(\w+)\s+\[\[threadgroup\(0\)\]\]/g,
      "LaunchedMemory<$1> $2",
    )
    .replaceAll(/\b(uint[23]?)\s+(\w+)\s+\[\[([a-z_]+)\]\]/g, "$3<$1> $2")
    .replaceAll(/\[\[(kernel|buffer|host_name)\b[^\]]*\]\]/g, "");
  const registrations = kernels.filter(({ isTemplate }) => !isTemplate)
    .map(({ name }) => `PLAIN_KERNEL(${name})\n`);
  return `#line 1 "${file}"\n${body}${registrations.join("")}`;
}
