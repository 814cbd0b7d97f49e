/** Records of outputs: what makes a step run again. */
import { assertEquals } from "@std/assert";
import type { Step } from "../../../ffi/build/graph.ts";
import { commit, FileSignatures, isCurrent } from "../../../ffi/build/record.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const STEP: Step = {
  label: "a.cpp",
  output: "a.o",
  record: "a.o.json",
  command: ["g++", "-O2", "a.cpp"],
  checks: ["-Wall"],
  compiler: "g++ 12",
  inputs: ["a.cpp"],
  hasDepfile: true,
  isSlow: false,
};

/** A time in milliseconds, after that of the files. */
const START = 2_000_000_000_000;

/** Writes the files of a step, runs it, and returns the folder. */
function built(inputTime = START - 5000): TempFolder {
  const folder = new TempFolder();
  for (const name of ["a.cpp", "a.h", "a.tmp"]) {
    Deno.utimeSync(folder.write(name, name), inputTime / 1000, inputTime / 1000);
  }
  const signatures = new FileSignatures(folder.path);
  commit(folder.path, STEP, signatures, folder.at("a.tmp"), ["a.h"], START);
  return folder;
}

Deno.test("record: another command, compiler or check makes an output outdated", () => {
  using folder = built();
  const current = (changes: Partial<Step>) =>
    isCurrent(folder.path, { ...STEP, ...changes }, new FileSignatures(folder.path));
  assertEquals(current({}), true);
  assertEquals(current({ checks: [] }), true);
  const outdated: readonly Partial<Step>[] = [
    { command: ["g++", "-O3", "a.cpp"] },
    { command: ["g++", "-O2"] },
    { command: [...STEP.command, "-g"] },
    { compiler: "g++ 13" },
    { checks: ["-Wall", "-Werror"] },
    { record: "b.o.json" },
  ];
  for (const changes of outdated) assertEquals(current(changes), false, JSON.stringify(changes));
});

Deno.test("record: a file of another size or time, and a missing one, make an output outdated", () => {
  for (const name of ["a.cpp", "a.h", "a.o"]) {
    const time = START / 1000 - 5;
    const changes: readonly ((path: string) => void)[] = [
      (path) => Deno.utimeSync(path, time, time + 1),
      (path) => Deno.removeSync(path),
      (path) => {
        Deno.writeTextFileSync(path, "more bytes");
        Deno.utimeSync(path, time, time);
      },
    ];
    for (const change of changes) {
      using folder = built();
      change(folder.at(name));
      const signatures = new FileSignatures(folder.path);
      assertEquals(isCurrent(folder.path, STEP, signatures), false, name);
    }
  }
});

Deno.test("record: an input that changed while it was read makes an output outdated", () => {
  for (const [time, expected] of [[START, true], [START + 1000, false]] as const) {
    using folder = built(time);
    assertEquals(isCurrent(folder.path, STEP, new FileSignatures(folder.path)), expected);
  }
});
