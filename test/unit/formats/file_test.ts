/** Files that are replaced whole, or left as they were. */
import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { Replacement } from "../../../src/formats/file.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const write = (replacement: Replacement, text: string) =>
  void replacement.file.writeSync(new TextEncoder().encode(text));
const names = (folder: TempFolder) => [...Deno.readDirSync(folder.path)].map(({ name }) => name);

Deno.test("a file that is not completed leaves the old one, and nothing else", () => {
  using folder = new TempFolder();
  const path = folder.write("a", "old");
  for (const isRemoved of [false, true]) {
    {
      using replacement = new Replacement(path);
      write(replacement, "new");
      assertEquals(Deno.readTextFileSync(path), "old");
      const [other] = names(folder).filter((name) => name !== "a");
      if (isRemoved) Deno.removeSync(folder.at(other!));
    }
    assertEquals([names(folder), Deno.readTextFileSync(path)], [["a"], "old"]);
  }
});

Deno.test("a completed file replaces the one that a link names, with its permissions", () => {
  using folder = new TempFolder();
  const path = folder.write("a", "old");
  Deno.chmodSync(path, 0o640);
  Deno.symlinkSync("a", folder.at("link"));
  {
    using replacement = new Replacement(folder.at("link"));
    write(replacement, "new");
    using _file = replacement.commit();
  }
  assertEquals(names(folder).sort(), ["a", "link"]);
  assertEquals([Deno.readTextFileSync(path), Deno.statSync(path).mode! & 0o777], ["new", 0o640]);
  assertEquals(Deno.lstatSync(folder.at("link")).isSymlink, true);
  {
    using replacement = new Replacement(folder.at("b"));
    using _file = replacement.commit();
  }
  assertEquals(Deno.readTextFileSync(folder.at("b")), "");
  assertThrows(() => new Replacement(folder.path), ForgeError, "is not a regular file and cannot");
  assertThrows(() => new Replacement("/dev/null"), ForgeError, "is not a regular file and cannot");
});
