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

Deno.test("strftime formats every directive as Python does", () => {
  const format = "%a|%A|%b|%B|%c|%C|%d|%D|%e|%f|%F|%g|%G|%h|%H|%I|%j|%k|%l|%m|%M|%p|%P|%r|%R|%S|" +
    "%T|%u|%U|%V|%w|%W|%x|%X|%y|%Y|%z|%Z";
  const cases: [Date, string][] = [
    [
      new Date(2024, 0, 1, 0, 0, 0),
      "Mon|Monday|Jan|January|Mon Jan  1 00:00:00 2024|20|01|01/01/24| 1|000000|2024-01-01|" +
      "24|2024|Jan|00|12|001| 0|12|01|00|AM|am|12:00:00 AM|00:00|00|00:00:00|1|00|01|1|01|" +
      "01/01/24|00:00:00|24|2024||",
    ],
    [
      new Date(2023, 11, 31, 12, 34, 56, 789),
      "Sun|Sunday|Dec|December|Sun Dec 31 12:34:56 2023|20|31|12/31/23|31|789000|" +
      "2023-12-31|23|2023|Dec|12|12|365|12|12|12|34|PM|pm|12:34:56 PM|12:34|56|12:34:56|7|" +
      "53|52|0|52|12/31/23|12:34:56|23|2023||",
    ],
    [
      new Date(2020, 1, 29, 23, 59, 59, 500),
      "Sat|Saturday|Feb|February|Sat Feb 29 23:59:59 2020|20|29|02/29/20|29|500000|" +
      "2020-02-29|20|2020|Feb|23|11|060|23|11|02|59|PM|pm|11:59:59 PM|23:59|59|23:59:59|6|" +
      "08|09|6|08|02/29/20|23:59:59|20|2020||",
    ],
    [
      new Date(2026, 0, 1, 11, 0, 9),
      "Thu|Thursday|Jan|January|Thu Jan  1 11:00:09 2026|20|01|01/01/26| 1|000000|" +
      "2026-01-01|26|2026|Jan|11|11|001|11|11|01|00|AM|am|11:00:09 AM|11:00|09|11:00:09|4|" +
      "00|01|4|00|01/01/26|11:00:09|26|2026||",
    ],
    [
      new Date(2027, 0, 3, 13, 1, 0),
      "Sun|Sunday|Jan|January|Sun Jan  3 13:01:00 2027|20|03|01/03/27| 3|000000|2027-01-03|" +
      "26|2026|Jan|13|01|003|13| 1|01|01|PM|pm|01:01:00 PM|13:01|00|13:01:00|7|01|53|0|00|" +
      "01/03/27|13:01:00|27|2027||",
    ],
    [
      new Date(1999, 9, 10, 1, 2, 3, 4),
      "Sun|Sunday|Oct|October|Sun Oct 10 01:02:03 1999|19|10|10/10/99|10|004000|1999-10-10|" +
      "99|1999|Oct|01|01|283| 1| 1|10|02|AM|am|01:02:03 AM|01:02|03|01:02:03|7|41|40|0|40|" +
      "10/10/99|01:02:03|99|1999||",
    ],
  ];
  for (const [date, expected] of cases) assertEquals(strftime(date, format), expected);
  assertEquals(strftime(new Date(2024, 0, 1), "%n%t%%"), "\n\t%");
});
