/** Files that are replaced whole, or left as they were, and facts about files and paths. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import {
  exists,
  expandHome,
  fileIdentity,
  InputFile,
  isSameFile,
  listFolder,
  reasonOf,
  Replacement,
} from "../../../src/formats/file.ts";
import { heldFiles, TempFolder } from "../../support/temp_folder.ts";

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
  // Only the superuser may give files away.
  if (Deno.uid() === 0) Deno.chownSync(path, 12, 34);
  const { uid, gid } = Deno.statSync(path);
  Deno.symlinkSync("a", folder.at("link"));
  {
    using replacement = new Replacement(folder.at("link"));
    write(replacement, "new");
    using _file = replacement.commit();
  }
  assertEquals(names(folder).sort(), ["a", "link"]);
  assertEquals([Deno.readTextFileSync(path), Deno.statSync(path).mode! & 0o777], ["new", 0o640]);
  assertEquals([Deno.statSync(path).uid, Deno.statSync(path).gid], [uid, gid]);
  assertEquals(Deno.lstatSync(folder.at("link")).isSymlink, true);
  {
    using replacement = new Replacement(folder.at("b"));
    using _file = replacement.commit();
  }
  assertEquals(Deno.readTextFileSync(folder.at("b")), "");
  assertThrows(() => new Replacement(folder.path), ForgeError, "is not a regular file and cannot");
  assertThrows(() => new Replacement("/dev/null"), ForgeError, "is not a regular file and cannot");
});

Deno.test("a Git LFS pointer is rejected and closed", () => {
  using folder = new TempFolder();
  const start = "version https://git-lfs";
  const path = folder.write("a", `${start}.github.com/spec/v1\noid sha256:0\nsize 5\n`);
  const error = assertThrows(() => InputFile.open(path), ForgeError, "is a Git LFS pointer");
  assertEquals(error.code, "bad_model");
  // Larger files only begin like one.
  InputFile.open(folder.write("b", start.padEnd(1025)))[Symbol.dispose]();
  if (Deno.build.os === "linux") assertEquals(heldFiles(folder.path), []);
});

Deno.test("a file that shrinks after it was opened ends where it ends now", () => {
  using folder = new TempFolder();
  using file = InputFile.open(folder.write("a", "abcdef"));
  Deno.truncateSync(file.path, 3);
  const bytes = new Uint8Array(2);
  file.readAt(1, bytes);
  assertEquals(new TextDecoder().decode(bytes), "bc");
  const error = assertThrows(() => file.readAt(2, new Uint8Array(3)), ForgeError);
  assertEquals(error.code, "bad_model");
  const reason = "ends at byte 3 while reading 3 bytes at offset 2";
  assertEquals(error.message, `"${file.path}" ${reason}`);
});

Deno.test("the same regular file has the same device and number", () => {
  const file = { isFile: true, dev: 1, ino: 2 };
  assert(isSameFile(file, { ...file }));
  for (const other of [{ dev: 2 }, { ino: 3 }, { isFile: false }]) {
    assert(!isSameFile(file, { ...file, ...other }));
    assert(!isSameFile({ ...file, ...other }, file));
  }
  const unknown = { ...file, ino: null };
  assert(!isSameFile(unknown, unknown));
});

Deno.test("the identity of a file changes with its size and its time", () => {
  using folder = new TempFolder();
  const identity = (text: string, seconds: number) => {
    Deno.writeTextFileSync(folder.at("a"), text);
    Deno.utimeSync(folder.at("a"), seconds, seconds);
    return fileIdentity(folder.at("a"));
  };
  const first = identity("a", 1e9);
  assertEquals(identity("b", 1e9), first);
  assert(identity("ab", 1e9) !== first);
  assert(identity("a", 1e9 + 1) !== first);
});

Deno.test("a tilde alone or before a slash is the home folder", () => {
  const variables = ["HOME", "USERPROFILE"];
  const before = variables.map((name) => Deno.env.get(name));
  try {
    Deno.env.set("HOME", "/home/a");
    Deno.env.set("USERPROFILE", "/users/a");
    const paths = ["~", "~/b", "~b", "b/~", ""].map(expandHome);
    assertEquals(paths, ["/home/a", "/home/a/b", "~b", "b/~", ""]);
    Deno.env.set("HOME", "");
    assertEquals(expandHome("~/b"), "/users/a/b");
    Deno.env.delete("USERPROFILE");
    assertEquals(expandHome("~/b"), "~/b");
  } finally {
    for (const [i, value] of before.entries()) {
      if (value === undefined) Deno.env.delete(variables[i]!);
      else Deno.env.set(variables[i]!, value);
    }
  }
});

Deno.test("a broken link exists, and names in a folder are sorted", () => {
  using folder = new TempFolder();
  Deno.symlinkSync("nothing", folder.at("link"));
  assert(exists(folder.at("link")));
  assert(!exists(folder.at("nothing")));
  assert(!exists(folder.at("link", "a")));
  const letters = [..."hgfedcba"];
  for (const name of letters) folder.write(name, "");
  assertEquals(listFolder(folder.path), [...letters.toSorted(), "link"]);
});

Deno.test("the reason of a system error is one line without its call and number", () => {
  using folder = new TempFolder();
  const reason = (run: () => unknown) => {
    try {
      run();
    } catch (error) {
      return reasonOf(error);
    }
  };
  assertEquals(reason(() => Deno.readDirSync(folder.write("a", ""))), "Not a directory");
  assertEquals(reason(() => Deno.readFileSync(folder.at("b"))), "No such file or directory");
  assertEquals([reasonOf(new Error("a: b\nc")), reasonOf("text")], ["a: b", "text"]);
});
