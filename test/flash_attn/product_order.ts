/**
 * Checks a rule of wgmma that no compiler checks: between a product and the wait for its group,
 * nothing may read or write its accumulators, or its operands in registers.
 */

/**
 * Returns the lines of a kernel's PTX that touch registers of a product in flight. Lines are
 * checked in order, which is sufficient here: backward branches of the kernels come after the
 * waits.
 */
export function touchedTooEarly(ptx: string): string[] {
  const touched: string[] = [];
  let groups: Set<string>[] = [];
  let open = new Set<string>();
  for (const text of ptx.split("\n")) {
    const line = text.trim();
    if (line.startsWith("//") || line.startsWith(".")) continue;
    const registers = line.match(/%(?:f|r|rd)\d+/g) ?? [];
    if (line.startsWith("wgmma.mma_async")) {
      // Products of one group may share accumulators: they are added one after another.
      for (const register of registers) open.add(register);
      continue;
    }
    if (line.startsWith("wgmma.commit_group")) {
      groups.push(open);
      open = new Set();
      continue;
    }
    const wait = /^wgmma\.wait_group\.sync\.aligned (\d+)/.exec(line);
    if (wait !== null) {
      const pending = Number(wait[1]);
      groups = pending === 0 ? [] : groups.slice(-pending);
      continue;
    }
    const underWay = [...groups, open];
    if (registers.some((name) => underWay.some((group) => group.has(name)))) touched.push(line);
  }
  return touched;
}

/** Returns the kernels of a PTX file that use wgmma, one text each. */
export function productKernels(ptx: string): string[] {
  return ptx.split(/^\s*(?:\.visible )?\.entry /m).slice(1)
    .filter((kernel) => kernel.includes("wgmma.mma_async"));
}
