import { assertEquals, assertThrows } from "@std/assert";
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
