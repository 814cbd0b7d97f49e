/** The report of the GPU check. */
import { limitOf, type Line, type SpeedGroup, type SpeedLine } from "./lines.ts";
import type { Verdict } from "./targets.ts";

/** The result of a part, which may not have run. */
export interface PartResult {
  readonly name: string;
  readonly outcome: "passed" | "failed" | "skipped";
  readonly seconds: number;
  /** Reason for skipping or failing. */
  readonly reason?: string;
  readonly lines: readonly Line[];
  /** The whole output. */
  readonly output: string;
}

/** The checked device. */
export interface CheckedDevice {
  readonly name: string;
  /** Driver, compiler and memory, one line each. */
  readonly details: readonly string[];
}

/** Maximum number of failed checks in the report; the log has all. */
const MOST_FAILURES = 20;

/** The speeds of a device as shares of its limits, in Markdown. */
function describeSpeeds(lines: readonly Line[]): string {
  const groups = new Map<SpeedGroup, SpeedLine[]>();
  for (const line of lines) {
    if (line.kind !== "speed") continue;
    groups.set(line.group, [...groups.get(line.group) ?? [], line]);
  }
  const read = limitOf(lines, "read GB/s"), matrix = limitOf(lines, "matrix TFLOP/s");
  return [...groups].map(([group, speeds]) => {
    const names = [...new Set(speeds.map(({ name }) => name))];
    const rows = names.map((name) => {
      const own = speeds.find((line) => line.name === name && line.by === "forge");
      const peers = speeds.filter((line) => line.name === name && line.by !== "forge");
      const { gbPerSecond, teraflops } = own ?? {};
      return row([
        name,
        number(own?.microseconds),
        gbPerSecond === undefined ? "" : `${number(gbPerSecond)} GB/s${share(gbPerSecond, read)}`,
        teraflops === undefined ? "" : `${number(teraflops)} TFLOP/s${share(teraflops, matrix)}`,
        peers.map(({ by, microseconds }) => `${by} ${number(microseconds)}`).join(", "),
      ]);
    });
    return [
      `### ${group}`,
      "",
      row(["", "us", "moved (of reads)", "computed (of a product)", "others, us"]),
      row(["---", "---:", "---:", "---:", "---"]),
      ...rows,
      "",
    ].join("\n");
  }).join("\n");
}

/** The whole report in Markdown; verdicts are last. */
export function describeCheck(
  device: CheckedDevice,
  parts: readonly PartResult[],
  verdicts: readonly Verdict[],
): string {
  const lines = parts.flatMap((part) => part.lines);
  const limits = (["read GB/s", "copy GB/s", "matrix TFLOP/s"] as const).flatMap((name) => {
    const most = limitOf(lines, name);
    return most === 0 ? [] : [`- ${name}, at most: ${number(most)}`];
  });
  const notes = lines.flatMap((line) => line.kind === "note" ? [`- ${line.text}`] : []);
  return [
    `# ${device.name}`,
    "",
    ...device.details.map((text) => `- ${text}`),
    ...limits,
    ...new Set(notes),
    "",
    describeSpeeds(lines),
    ...describeFailures(parts),
    "### Parts",
    "",
    row(["part", "outcome", "checks", "s", ""]),
    row(["---", "---", "---:", "---:", "---"]),
    ...parts.map((part) =>
      row([part.name, part.outcome, checkCounts(part), part.seconds.toFixed(1), reasonOf(part)])
    ),
    "",
    "### Targets of an H100",
    "",
    row(["target", "goal", "worst", ""]),
    row(["---", "---:", "---:", "---"]),
    ...verdicts.map(describeVerdict),
    "",
  ].join("\n");
}

function describeFailures(parts: readonly PartResult[]): string[] {
  const failed = parts.flatMap(({ name: part, lines }) =>
    lines.flatMap((line) =>
      line.kind === "check" && !line.passed
        ? [`- ${part}: ${line.name}: ${firstLine(line.detail ?? "")}`]
        : []
    )
  );
  if (failed.length === 0) return [];
  const more = failed.length - MOST_FAILURES;
  return [
    "### Failed",
    "",
    ...failed.slice(0, MOST_FAILURES),
    ...(more > 0 ? [`- and ${more} more`] : []),
    "",
  ];
}

function describeVerdict({ target, worst, met }: Verdict): string {
  const { text, atLeast, goal, unit } = target;
  const outcome = met === undefined ? "not measured" : met ? "met" : "**missed**";
  const measured = worst === undefined ? "" : `${number(worst)} ${unit}`;
  return row([text, `${atLeast ? "≥" : "≤"} ${goal} ${unit}`, measured, outcome]);
}

function checkCounts({ lines }: PartResult): string {
  const checks = lines.filter((line) => line.kind === "check");
  if (checks.length === 0) return "";
  return `${checks.filter(({ passed }) => passed).length} of ${checks.length}`;
}

function reasonOf({ reason = "" }: PartResult): string {
  return firstLine(reason);
}

function firstLine(text: string): string {
  return text.trim().split("\n")[0]?.slice(0, 200).replaceAll("|", "\\|") ?? "";
}

function share(value: number, limit: number): string {
  return limit === 0 ? "" : ` (${(100 * value / limit).toFixed(0)}%)`;
}

/** Formats three significant digits, or all digits before the point. */
function number(value: number | undefined): string {
  if (value === undefined) return "";
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(" | ")} |`;
}
