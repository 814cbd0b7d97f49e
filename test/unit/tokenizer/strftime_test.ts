import { assertEquals } from "@std/assert";
import { strftime } from "../../../src/tokenizer/template/strftime.ts";

// Expected texts are those of Python's datetime.strftime in the C locale.
const CASES: [Date, string, string][] = [
  [new Date(2024, 6, 26, 9, 5, 3), "%d %b %Y", "26 Jul 2024"],
  [new Date(2024, 6, 26, 9, 5, 3), "%A, %B %-d, %Y", "Friday, July 26, 2024"],
  [new Date(2024, 6, 6, 0, 5, 3), "%Y-%m-%d %H:%M:%S", "2024-07-06 00:05:03"],
  [new Date(2024, 6, 6, 0, 5, 3), "%I:%M %p %-I %-H %-m", "12:05 AM 12 0 7"],
  [new Date(2024, 6, 6, 13, 0, 0), "%I %p|%e|%-e", "01 PM| 6|6"],
  [new Date(2024, 11, 31), "%j %y %a %w %u", "366 24 Tue 2 2"],
  [new Date(2023, 0, 1), "%j %-j %a %w %u", "001 1 Sun 0 7"],
  [new Date(2024, 6, 26, 9, 5, 3), "%F %T %D %R", "2024-07-26 09:05:03 07/26/24 09:05"],
  [new Date(2024, 6, 6, 9, 5, 3), "%c", "Sat Jul  6 09:05:03 2024"],
  [new Date(2024, 6, 26), "100%% %", "100% %"],
  [new Date(2024, 11, 30), "%U %W %V %G %g %C", "52 53 01 2025 25 20"],
  [new Date(2023, 0, 1), "%U %W %V %G %g", "01 00 52 2022 22"],
  [new Date(2021, 0, 3), "%U %W %V %G", "01 00 53 2020"],
  [new Date(2024, 6, 6, 9, 5, 3, 42), "%f|%z|%Z|%k|%l|%P|%r", "042000||| 9| 9|am|09:05:03 AM"],
  [new Date(2024, 6, 6, 9), "%_d %_H %0e %^a %^B %#p %Ey", " 6  9 06 SAT JULY am 24"],
];

for (const [date, format, expected] of CASES) {
  Deno.test(`strftime ${JSON.stringify(format)} of ${date.toDateString()}`, () => {
    assertEquals(strftime(date, format), expected);
  });
}

Deno.test("strftime %s counts seconds since 1970", () => {
  assertEquals(strftime(new Date(1_700_000_000_500), "%s"), "1700000000");
});

Deno.test("an unknown directive stays unchanged", () => {
  assertEquals(strftime(new Date(2024, 0, 1), "%Q%-"), "%Q%-");
});
