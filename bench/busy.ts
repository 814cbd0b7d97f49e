/** Checks that the machine is quiet enough to measure on. */

/** From this share of all cores in use by other processes on, results are unreliable. */
const BUSY_SHARE = 0.03;

/** Duration of the observation. */
const WATCHED_MS = 1000;

/** Load of the machine while this process is idle. */
export interface Quiet {
  /** `others use 0% of the processors`, or the load average on systems without /proc/stat. */
  readonly text: string;
  readonly isBusy: boolean;
}

/** Observes the machine for a second, during which the caller must not compute. */
export async function watchMachine(): Promise<Quiet> {
  const before = processorTimes();
  if (before === undefined) {
    const [load = 0] = Deno.loadavg();
    return { text: `the load average is ${load.toFixed(2)}`, isBusy: load > 0.3 };
  }
  await new Promise((resolve) => setTimeout(resolve, WATCHED_MS));
  const after = processorTimes() ?? before;
  const share = (after.busy - before.busy) / Math.max(1, after.all - before.all);
  return {
    text: `others use ${(share * 100).toFixed(0)}% of the processors`,
    isBusy: share > BUSY_SHARE,
  };
}

/** Ticks since boot, summed over all processors; `undefined` without /proc. */
function processorTimes(): { busy: number; all: number } | undefined {
  try {
    const [line = ""] = Deno.readTextFileSync("/proc/stat").split("\n", 1);
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
    const ticks = line.trim().split(/\s+/).slice(1, 9).map(Number);
    const all = ticks.reduce((sum, value) => sum + value, 0);
    const idle = (ticks[3] ?? 0) + (ticks[4] ?? 0);
    return { busy: all - idle, all };
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}
