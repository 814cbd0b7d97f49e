/**
 * Confirms and measures forge on a real GPU, in one call of under ten minutes: `deno run -A
 * bench/gpu_check.ts`. Checks come first, and measurements only where they passed; the report goes to
 * `bench/results/` under the device's name, and the log beside it to `$OUT` where that is set.
 *
 * `--quick` takes the smallest sizes of everything: what an emulated GPU can do.
 */
import { join } from "@std/path";
import { buildLibraries } from "../build.ts";
import { NativeBackend } from "../ffi/native_backend.ts";
import { describeSections, type Section } from "./gpu/report.ts";
import { gpuSections } from "./gpu/sections.ts";
import { runCommand } from "./gpu/run_command.ts";
import { root } from "./root.ts";

async function main(args: readonly string[]): Promise<number> {
  const quick = args.includes("--quick");
  const unknown = args.find((arg) => arg !== "--quick");
  if (unknown !== undefined) {
    console.error(`unknown argument "${unknown}"; valid is --quick`);
    return 2;
  }
  await buildLibraries({ only: ["cpu", "reference", "cuda"], log: (line) => console.error(line) });
  const device = describeDevice();
  console.log(device.lines.join("\n"));
  const sections: Section[] = [];
  for (const planned of gpuSections(quick)) {
    if (planned.kind === "measure" && sections.some(({ outcome }) => outcome === "failed")) break;
    console.error(`${planned.title} …`);
    const section = await runCommand(planned);
    sections.push(section);
    console.log(describeSections([section]));
  }
  writeReport(device, sections);
  return sections.some(({ outcome }) => outcome === "failed") ? 1 : 0;
}

interface CheckedDevice {
  readonly name: string;
  readonly lines: readonly string[];
}

function describeDevice(): CheckedDevice {
  using backend = NativeBackend.open({ kind: "cuda" });
  const { name, features, details = [] } = backend.info;
  return { name, lines: [`${name} (${features.join(" ")})`, ...details] };
}

function writeReport(device: CheckedDevice, sections: readonly Section[]): void {
  const date = new Date().toISOString().slice(0, 10);
  const slug = device.name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const text = [
    `# ${device.name}, ${date}`,
    ...device.lines.slice(1).map((line) => `- ${line}`),
    "",
    describeSections(sections),
  ].join("\n");
  Deno.writeTextFileSync(join(root, "bench", "results", `${date}-${slug}.md`), `${text}\n`);
  const out = Deno.env.get("OUT");
  if (out === undefined || out === "") return;
  const log = sections.map(({ title, output }) => `## ${title}\n${output}`).join("\n");
  Deno.writeTextFileSync(join(out, "gpu_check.md"), `${text}\n`);
  Deno.writeTextFileSync(join(out, "gpu_check.log"), log);
}

if (import.meta.main) Deno.exit(await main(Deno.args));
