/**
 * Every kernel, and every instruction that kernels use, on the GPU against plain loops, by the
 * tests of `test/emulator/kernels`: `kernels.ts [--emulated]`. Prints the lines of `lines.ts`.
 */
import { buildGpuTests } from "../../test/emulator/gpu_tests.ts";
import { say } from "./lines.ts";

/** Tests that an emulator runs in seconds. */
const EMULATED =
  /^(instructions_|rms_norm_|decode_attention_of_one_token|wgmma_gemm_of_odd_columns)/;
/** Failures after which a process cannot use the device any more. */
const FATAL = /cannot use the device any more|failed earlier/;

async function main(args: readonly string[]): Promise<boolean> {
  const isEmulated = args.includes("--emulated");
  const program = await buildGpuTests(isEmulated);
  let passed = await run(program, ["--prepare"], ["prepare"]);
  const all = (await outputOf(program, ["--list"])).split("\n").filter((name) => name !== "");
  const names = isEmulated ? all.filter((name) => EMULATED.test(name)) : all;
  passed = await run(program, names, names) && passed;
  return passed;
}

/**
 * Runs tests in one process, which keeps compiled kernels loaded. After a crash, continues with the
 * next test in another process.
 */
async function run(
  program: string,
  args: readonly string[],
  names: readonly string[],
): Promise<boolean> {
  let passed = true;
  for (let from = 0; from < names.length;) {
    const output = await outputOf(program, from === 0 ? args : names.slice(from));
    const lines = output.split("\n").filter((line) => /^(ok|not ok) /.test(line));
    const broken = lines.findIndex((line) => line.startsWith("not ok") && FATAL.test(line));
    const known = broken < 0 ? lines : lines.slice(0, broken + 1);
    for (const line of known) {
      const ok = line.startsWith("ok ");
      const [, name = "", detail = ""] = /^(?:not )?ok ([^:]*)(?:: (.*))?$/.exec(line) ?? [];
      say({ kind: "check", name, passed: ok, ...(ok ? {} : { detail }) });
      passed &&= ok;
    }
    from += known.length;
    if (broken >= 0 || from >= names.length) continue;
    const detail = `the process ended: ${output.trimEnd().split("\n").at(-1) ?? ""}`;
    say({ kind: "check", name: names[from] ?? "", passed: false, detail });
    passed = false;
    from++;
  }
  return passed;
}

/** Returns the stdout of a program, followed by its stderr. */
async function outputOf(program: string, args: readonly string[]): Promise<string> {
  const { stdout, stderr } = await new Deno.Command(program, {
    args: [...args],
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  const decoder = new TextDecoder();
  return `${decoder.decode(stdout)}${decoder.decode(stderr)}`;
}

if (import.meta.main && !await main(Deno.args)) Deno.exit(1);
