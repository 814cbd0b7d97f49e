import { assertEquals, assertThrows } from "@std/assert";
import { loadOptions } from "../../../src/cli/options/library_options.ts";
import { OPTIONS } from "../../../src/cli/options/options.ts";
import { MODEL_OPTIONS } from "../../../src/cli/options/tables/model.ts";
import { parseOptionValue } from "../../../src/cli/options/value.ts";
import { ForgeError } from "../../../src/errors.ts";

const parse = (text: string) => parseOptionValue(MODEL_OPTIONS.kvMemory, text, undefined);

Deno.test("--kv-memory takes bytes with an optional binary unit", () => {
  for (
    const [text, bytes] of [
      ["1000", 1000],
      ["64k", 64 * 2 ** 10],
      ["512M", 512 * 2 ** 20],
      ["1.5G", 1.5 * 2 ** 30],
      ["8GiB", 8 * 2 ** 30],
      ["2 gb", 2 * 2 ** 30],
      ["1T", 2 ** 40],
    ] as const
  ) {
    assertEquals(parse(text), bytes, text);
  }
});

Deno.test("--kv-memory rejects invalid sizes", () => {
  for (const text of ["", "0", "-1G", "G", "8X", "1e9", "0.1", "9999999T", "half"]) {
    const error = assertThrows(() => parse(text), ForgeError);
    assertEquals(error.code, "usage");
    assertEquals(
      error.message,
      `--kv-memory is ${JSON.stringify(text)}; valid are sizes such as 512M, 1.5G or 8GiB`,
    );
  }
});

Deno.test("counts add up over several options, and 1 is not between 0 and 2", () => {
  const counts = (text: string, previous: unknown) =>
    parseOptionValue(OPTIONS.nPrompt, text, previous);
  assertEquals(counts("8-10", counts("1,4", undefined)), [1, 4, 8, 9, 10]);
  const mirostat = (text: string) => parseOptionValue(OPTIONS.mirostat, text, undefined);
  assertEquals([mirostat("0"), mirostat("2")], [0, 2]);
  assertThrows(() => mirostat("1"), ForgeError, '--mirostat is "1"; valid are 0 and 2');
});

Deno.test("--lora takes a path with an optional name and scale", () => {
  for (
    const [text, name, path, scale] of [
      ["a/b", undefined, "a/b", undefined],
      ["a/b:0.5", undefined, "a/b", 0.5],
      ["sql=b.gguf:-1e-1", "sql", "b.gguf", -0.1],
      ["C:\\a", undefined, "C:\\a", undefined],
      ["x=a:b:2", "x", "a:b", 2],
      ["a/b=c", undefined, "a/b=c", undefined],
    ] as const
  ) {
    const flags = { lora: [text] } as unknown as Parameters<typeof loadOptions>[0];
    assertEquals(loadOptions(flags).lora, [{ name, path, scale }], text);
  }
});
