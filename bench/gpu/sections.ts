/**
 * The parts of the GPU check: first every operation and model against what is known to be right, then
 * speeds, each as a share of what a plain copy reaches, with PyTorch beside where it is installed.
 */
import { join, resolve } from "@std/path";
import { root } from "../root.ts";

/** A part to run. */
export interface PlannedSection {
  readonly title: string;
  readonly kind: "check" | "measure";
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly limitSeconds: number;
  /** The lines of its output that belong into the report. */
  readonly summarize: (stdout: string) => string;
  /** Exit codes that mean that it cannot be done here. */
  readonly isSkip?: (code: number) => boolean;
}

const deno = Deno.execPath();
const forge = ["run", "-A", join(root, "main.ts")];

const lastLine = (stdout: string) => stdout.trimEnd().split("\n").at(-1) ?? "";
const everything = (stdout: string) => stdout;

/** Models of 128,256 tokens and 8 billion weights, and the smallest that has their parts. */
const LARGE = "llama-3.1-8b";
const SMALL = "smollm2-135m";

/** The parts in order. */
export function gpuSections(quick: boolean): PlannedSection[] {
  return [...checks(quick), ...measurements(quick)];
}

function checks(quick: boolean): PlannedSection[] {
  const tiny = resolve(root, "..", "shared", "models", "tiny");
  const families = quick ? ["llama"] : ["llama", "qwen2", "gemma2", "gemma3_text", "qwen3_moe"];
  const folders = families.map((family) => join(tiny, family));
  const operations = quick ? ["norms_test.ts"] : Array.from(operationTests());
  const test = ["test", "-A", "--quiet", "--no-check"];
  return [
    {
      title: "operations against the reference",
      kind: "check",
      command: [deno, ...test, ...operations.map((name) => `test/ops/${name}`)],
      env: { FORGE_TEST_DEVICES: "cuda" },
      limitSeconds: 200,
      summarize: (stdout) => /\d+ passed.*/.exec(stdout)?.[0] ?? "",
    },
    ...["F32", "F16"].map((kvType): PlannedSection => ({
      title: `models against independent programs, caches in ${kvType}`,
      kind: "check",
      command: [deno, "run", "-A", "test/cuda/check_models.ts", kvType, ...folders],
      limitSeconds: 60,
      summarize: everything,
    })),
    {
      title: "a short run under compute-sanitizer",
      kind: "check",
      command: [
        "compute-sanitizer",
        "--error-exitcode=9",
        deno,
        ...forge,
        ...["run", "--device", "cuda", "-p", "Once upon a time", "-n", "4", "--temp", "0"],
      ],
      limitSeconds: 90,
      summarize: lastLine,
    },
  ];
}

function* operationTests(): Generator<string> {
  for (const { name } of Deno.readDirSync(join(root, "test", "ops"))) {
    if (name.endsWith("_test.ts")) yield name;
  }
}

function measurements(quick: boolean): PlannedSection[] {
  const bench = (title: string, model: string, options: readonly string[]): PlannedSection => ({
    title,
    kind: "measure",
    command: [deno, ...forge, "bench", "--device", "cuda", "--synthetic", model, ...options],
    limitSeconds: 120,
    summarize: everything,
  });
  if (quick) return [bench("decode", `${SMALL}:Q8_0`, ["-p", "1", "-n", "1", "-r", "1"])];
  return [
    ...["BF16", "Q8_0", "Q4_K"].map((type) =>
      bench(`8B in ${type}`, `${LARGE}:${type}`, ["-p", "512", "-n", "64", "-r", "2"])
    ),
    bench("1B in BF16", "llama-3.2-1b:BF16", ["-p", "512,4096", "-n", "128", "-r", "3"]),
    bench("8B in BF16, batches", `${LARGE}:BF16`, [
      ...["-p", "0", "-n", "32", "-r", "1"],
      ...["--parallel", "8,64"],
    ]),
    {
      title: "PyTorch: copy, products and attention of the 8B shape",
      kind: "measure",
      command: ["python3", "bench/gpu/torch_peer.py"],
      limitSeconds: 60,
      summarize: everything,
      isSkip: (code) => code === 77,
    },
  ];
}
