import { assert, assertEquals } from "@std/assert";
import { dirname, join } from "@std/path";
import { launcherPath } from "../../ffi/build/install.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { ROOT } from "../support/checkout.ts";

const LINES = 10_000, FIRST = 1_000;

Deno.test({
  name: "batch: memory does not grow between 1,000 and 10,000 lines",
  // Only Linux reports the size of another process in a file.
  ignore: Deno.build.os !== "linux",
  fn: async () => {
    using folder = new TempFolder();
    const line = (_: unknown, i: number) =>
      `{"id":"line-${i}","prompt":"prompt ${i}","max_tokens":4}\n`;
    const input = folder.write("in.jsonl", Array.from({ length: LINES }, line).join(""));
    const child = new Deno.Command("sh", {
      args: [join(ROOT, launcherPath), "run"]
        .concat("--batch", input, "--ordered"),
      // The launcher then executes this Deno, so that the child's size is Deno's.
      env: { PATH: `${dirname(Deno.execPath())}:${Deno.env.get("PATH") ?? ""}` },
      stdin: "null",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    let lines = 0;
    const first: number[] = [], last: number[] = [];
    // Small reads hold the batch back, so that it is measured equally often on a busy machine.
    const reader = child.stdout.getReader({ mode: "byob" });
    for (let buffer = new Uint8Array(2048);;) {
      const { value, done } = await reader.read(buffer);
      if (done) break;
      for (const byte of value) if (byte === 0x0a) lines++;
      buffer = new Uint8Array(value.buffer);
      const window = lines >= LINES - FIRST ? last : lines >= FIRST ? first : undefined;
      if (window !== undefined && window.length < 50 && lines < LINES) {
        window.push(residentBytes(child.pid));
      }
    }
    assert((await child.status).success);
    assertEquals(lines, LINES);
    assert(first.length > 5 && last.length > 5, "the batch was over before it could be measured");
    const before = median(first), after = median(last);
    // Garbage that V8 has not collected varies by 1–2%.
    assert(after < before * 1.1, `${before} bytes after 1,000 lines, ${after} near the end`);
  },
});

/** Returns the resident set size of a process in bytes. */
function residentBytes(pid: number): number {
  const status = Deno.readTextFileSync(`/proc/${pid}/status`);
  return 1024 * Number(/^VmRSS:\s*(\d+) kB$/m.exec(status)?.[1]);
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1]!;
}
