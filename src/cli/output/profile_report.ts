/** Report of `forge run --profile`. */
import type { OperationSum, PhaseTimes, Profile } from "../../mod.ts";
import { formatDuration, plural } from "./format.ts";
import { columnsOf, formatTable } from "./terminal_text.ts";

/** Operations with a smaller share of a phase are summed into one row. */
const MIN_SHARE = 0.005;

/**
 * Returns a table for each phase: where the time of a step went.
 *
 * @param bandwidth measured read bandwidth of the device in bytes per second; 0 if unknown
 */
export function describeProfile(profile: Profile, bandwidth: number): string {
  const phases = profile.phases();
  if (phases.length === 0) return "no step ran: the answer needed none\n";
  const limit = bandwidth === 0
    ? ""
    : `Reads reach at most ${(bandwidth / 1e9).toFixed(1)} GB/s on this device, measured now.\n`;
  return phases.map((phase) => phaseTable(phase, bandwidth)).join("\n") + limit;
}

function phaseTable(times: PhaseTimes, bandwidth: number): string {
  const { phase, steps, tokens, duration, operations } = times;
  const shown = operations.filter((sum) => sum.duration >= MIN_SHARE * duration);
  const measured = total(operations);
  const rows = shown.map((sum) => operationRow(sum, times, bandwidth));
  const small = total(operations.filter((sum) => !shown.includes(sum)));
  if (small > 0) rows.push(plainRow("smaller operations", small, times));
  rows.push(plainRow("between operations", Math.max(0, duration - measured), times));
  const title = `${phase}: ${plural(tokens, "token")} in ${plural(steps, "step")}, ` +
    `${formatDuration(duration / steps / 1e6)} each\n`;
  const heads = ["operation", "times", "us a step", "share", "GB/s", "of reads", "GFLOP/s"];
  const columns = (columnsOf(Deno.stderr) ?? Infinity) - 2;
  const table = formatTable([heads, ...rows], (column) => column > 0, columns);
  return title + table.replace(/^(?=.)/gm, "  ");
}

function operationRow(sum: OperationSum, times: PhaseTimes, bandwidth: number): string[] {
  const { operation, matrix, count, duration, bytes, flops } = sum;
  const rate = bytes / duration;
  return [
    matrix === "" ? operation : `${operation} ${matrix}`,
    (count / times.steps).toFixed(count % times.steps === 0 ? 0 : 1),
    ...timeColumns(duration, times),
    rate.toFixed(1),
    bandwidth === 0 ? "" : percent(rate * 1e9 / bandwidth),
    flops === 0 ? "" : (flops / duration).toFixed(1),
  ];
}

function plainRow(label: string, duration: number, times: PhaseTimes): string[] {
  return [label, "", ...timeColumns(duration, times), "", "", ""];
}

function timeColumns(duration: number, times: PhaseTimes): string[] {
  return [(duration / times.steps / 1000).toFixed(1), percent(duration / times.duration)];
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)}%`;
}

function total(sums: readonly OperationSum[]): number {
  return sums.reduce((sum, { duration }) => sum + duration, 0);
}
