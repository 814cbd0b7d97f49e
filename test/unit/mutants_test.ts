/** The list of mutants against the sources: what it names is there, and exactly once. */
import { assert, assertEquals } from "@std/assert";
import { basename, join } from "@std/path";
import { areaOf, MUTANTS } from "../mutants/mutant.ts";
import { withNativeSwitches } from "../mutants/native_switches.ts";
import { memoryOf } from "../mutants/switch_memory.ts";
import { withSwitches } from "../mutants/switches.ts";
import { filesBelow, ROOT } from "../support/checkout.ts";
import { TempFolder } from "../support/temp_folder.ts";

Deno.test("mutants: each changes one place of one file, which is there exactly once", () => {
  for (const { name, file, find, replace } of MUTANTS) {
    assert(find !== replace, name);
    const text = Deno.readTextFileSync(join(ROOT, file));
    assertEquals(text.split(find).length - 1, 1, `${name}: ${file} does not hold once: ${find}`);
  }
});

Deno.test("mutants: there are at least 120, under names of their own", () => {
  const names = MUTANTS.map(({ name }) => name);
  assertEquals(new Set(names).size, names.length);
  assert(names.every((name) => /^[a-z_]+\/[a-z0-9-]+$/.test(name)), names.join(" "));
  assert(names.length >= 120, `${names.length} mutants`);
  const areas = [
    ...["cpu", "cuda_kernels", "cuda_host", "flash_attn", "metal"],
    ...["engine", "formats", "tokenizer", "constrain", "serve", "hub", "cli"],
  ];
  assertEquals([...new Set(MUTANTS.map(areaOf))].sort(), areas.sort());
});

Deno.test("mutants: STATUS.md counts them", () => {
  const status = Deno.readTextFileSync(join(ROOT, "STATUS.md"));
  const rows = Array.from(
    status.matchAll(/^\| ([a-z_]+) \| (\d+) \| (\d+) \| (\d+) \|$/gm),
    ([, area, ...counts]) => [area, ...counts.map(Number)] as const,
  );
  const areas = Map.groupBy(MUTANTS, areaOf);
  assertEquals(
    rows.map(([area, count]) => [area, count] as const).sort(),
    Array.from(areas, ([area, own]) => [area, own.length] as const).sort(),
  );
  for (const [area, count = 0, judged = 0, caught = 0] of rows) {
    assert(caught <= judged && judged <= count, `${area}`);
  }
});

Deno.test("mutants: the tests that must catch them exist", () => {
  const kernelTests = filesBelow("test/emulator/kernels", ".cpp")
    .map((path) => Deno.readTextFileSync(join(ROOT, path))).join("\n");
  // Kernels that only tests launch.
  const testKernels = new Set(filesBelow("test/emulator", ".cu").map((path) => basename(path)));
  for (const { name, file, caughtBy } of MUTANTS) {
    if ("tests" in caughtBy) {
      for (const test of caughtBy.tests) {
        assert(Deno.statSync(join(ROOT, test)).isFile, `${name}: ${test}`);
        if (caughtBy.filter === undefined) continue;
        const text = Deno.readTextFileSync(join(ROOT, test));
        // A name may be made of pieces: the words of the filter must be there.
        for (const word of caughtBy.filter.split(" ")) {
          assert(text.includes(word), `${name}: ${word}`);
        }
      }
      continue;
    }
    for (const test of caughtBy.kernelTests) {
      const isDeclared = [`TEST(${test})`, `(${test},`].some((text) => kernelTests.includes(text));
      assert(isDeclared, `${name}: ${test}`);
    }
    const folder = file.split("/").slice(0, 2).join("/");
    for (const kernel of caughtBy.kernels) {
      assert(testKernels.has(kernel) || Deno.statSync(join(ROOT, folder, kernel)).isFile);
    }
  }
});

Deno.test("mutants: a switch changes what a program computes, and none does while it is off", async () => {
  const source = `/** Sums the numbers of a list up to a limit. */
export function sum(numbers, limit) {
  let total = 0;
  for (const number of numbers) {
    if (number < 0 || number === 13) continue;
    total += number;
  }
  return total > limit ? limit : Math.max(total % 100, 1);
}
`;
  const prelude = "const __on = globalThis.__on;";
  const { source: switched, switches } = withSwitches("sum.ts", source, 7, () => true, prelude);
  const on = { id: -1 };
  Object.assign(globalThis, { __on: (id: number) => id === on.id });
  const { sum } = await import(`data:text/javascript,${encodeURIComponent(switched)}`);
  const results = (id: number) => {
    on.id = id;
    return [[[5, -2, 0], 9], [[13, 4, 14], 90], [[], 3], [[70, 70], 500], [[6], 6], [[8], 6]]
      .map(([numbers, limit]) => sum(numbers, limit));
  };
  assertEquals(results(-1), [5, 18, 1, 40, 6, 6]);
  assertEquals(switches.map(({ id }) => id), switches.map((_, i) => 7 + i));
  const same = switches.filter(({ id }) => JSON.stringify(results(id)) === "[5,18,1,40,6,6]");
  // A zero adds nothing, and a total at the limit is the limit.
  assertEquals(same.map(({ before, after }) => [before, after]), [
    ["0", "1"],
    ["number < 0", "number <= 0"],
    ["total > limit", "total >= limit"],
  ]);
  // Every switch is on the line of its text.
  const lines = source.split("\n");
  for (const { line, before } of switches) {
    assert(lines[line - 1]?.includes(before.split("\n")[0]!));
  }
  assertEquals(switched.split("\n").length, lines.length);
  Reflect.deleteProperty(globalThis, "__on");
});

Deno.test({
  name: "mutants: a switch changes what a native program computes, and none does while it is off",
  // It maps a file as POSIX does.
  ignore: Deno.build.os === "windows",
  fn: async () => {
    const source = `#include <algorithm>
#include <cstdio>
#include <vector>
// Sums the numbers of a list up to a limit, as long as a < b.
constexpr int kUnlucky = 13;
static_assert(kUnlucky > 12);
template <int most = 100>
int sum(const std::vector<int>& numbers, int limit) {
  int total = 0;
  for (int number : numbers) {
    if (number < 0 || number == kUnlucky) continue;
    total += number;
  }
  return total > limit ? limit : std::max(total % most, 1);
}
int main() {
  std::printf("%d %d ", sum({5, -2, 0}, 9), sum({13, 4, 14}, 90));
  std::printf("%d %d ", sum({}, 3), sum({70, 70}, 500));
  std::printf("%d %d\\n", sum({6}, 6), sum({8}, 6));
}
`;
    const first = 3;
    const { source: switched, switches } = withNativeSwitches("sum.cpp", source, first, () => true);
    assertEquals(switched.split("\n").length, source.split("\n").length);
    using folder = new TempFolder();
    const at = (name: string) => join(folder.path, name);
    const mutants = join(ROOT, "test", "mutants");
    Deno.writeTextFileSync(at("sum.cpp"), switched);
    const { success, stderr } = await new Deno.Command("c++", {
      args: [
        ...["-std=c++20", "-include", join(mutants, "switches.h"), at("sum.cpp")],
        ...[join(mutants, "switch_memory.cpp"), "-o", at("sum")],
      ],
    }).output();
    assert(success, new TextDecoder().decode(stderr));
    const result = (on: number) => {
      Deno.writeFileSync(at("switches"), memoryOf(first + switches.length, on));
      const env = { FORGE_SWITCHES: at("switches") };
      const { stdout } = new Deno.Command(at("sum"), { env }).outputSync();
      return new TextDecoder().decode(stdout).trim();
    };
    const plain = "5 18 1 40 6 6";
    assertEquals(result(-1), plain);
    // Every switch in `sum` is evaluated.
    const evaluated = [...Deno.readFileSync(at("switches")).subarray(4)];
    const own = switches.filter(({ line }) => line < 16);
    assertEquals(own.filter(({ id }) => evaluated[id] !== 1), []);
    const same = own.filter(({ id }) => result(id) === plain);
    assertEquals(same.map(({ before, after }) => [before, after]), [
      ["number < 0", "number <= 0"],
      ["0", "0 + 1"],
      ["total > limit", "total >= limit"],
    ]);
    const removed = own.filter(({ after }) => after === "").map(({ before }) => before);
    assertEquals(removed, ["total += number;"]);
  },
});
