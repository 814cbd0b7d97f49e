/** `forge doctor`: checks whether forge can run on this machine. */
import {
  canBuildLibraries,
  Library,
  libraryCandidates,
  type LibraryInfo,
} from "../../../ffi/library.ts";
import { NativeBackend } from "../../../ffi/native_backend.ts";
import type { BackendKind, DeviceInfo } from "../../backend.ts";
import { BACKEND_KINDS, lacksBuild } from "../../engine/load/open_backend.ts";
import { isFile } from "../../formats/file.ts";
import { storeFolder } from "../../hub/model_store.ts";
import { describeError } from "../output/error_text.ts";
import { formatBytes, formatRows, plural } from "../output/format.ts";
import { columnsOf, wrap } from "../output/terminal_text.ts";
import { bundledModel } from "../model/model_path.ts";
import type { Options } from "../options/options.ts";
import { writeStdout } from "../output/streams.ts";
import { VERSION } from "../version.ts";

/** Result of a check: a value or a problem. */
type Finding<T> = { readonly ok: true; readonly value: T } | {
  readonly ok: false;
  readonly problem: string;
};

interface LibraryReport {
  readonly kind: BackendKind;
  /** Search paths, in order. */
  readonly candidates: readonly string[];
  /** First search path that exists. */
  readonly path: string | null;
  readonly found: Finding<{
    readonly info: LibraryInfo;
    /** Default device. */
    readonly device: DeviceInfo;
    /** Names of the devices for `--device`. */
    readonly devices: readonly string[];
  }>;
}

interface Report {
  readonly forge: string;
  readonly deno: string;
  readonly system: string;
  readonly processors: number;
  readonly memory: number | null;
  readonly libraries: readonly LibraryReport[];
  readonly compiler: Finding<string>;
  readonly demo_model: Finding<string>;
  readonly downloads: Finding<string>;
  /** Permissions of Deno that are not granted, and their purpose. */
  readonly missing_permissions: readonly string[];
  /** True if a model can run, perhaps after a library is built. */
  readonly ready: boolean;
}

export async function run(options: Options<"json">): Promise<number> {
  const report = await examine();
  await writeStdout(options.json ? `${JSON.stringify(report)}\n` : describe(report));
  return report.ready ? 0 : 1;
}

async function examine(): Promise<Report> {
  const libraries = BACKEND_KINDS.filter(isExpected).map(examineLibrary);
  const compiler = await attempt(compilerIdentity);
  const lacking = await attempt(() => lacksBuild("cpu"));
  return {
    forge: VERSION,
    deno: Deno.version.deno,
    system: `${Deno.build.os} ${Deno.build.arch}`,
    processors: navigator.hardwareConcurrency,
    memory: isGranted({ name: "sys", kind: "systemMemoryInfo" })
      ? Deno.systemMemoryInfo().total
      : null,
    libraries,
    compiler,
    demo_model: await attempt(() => bundledModel()),
    downloads: await attempt(storeFolder),
    missing_permissions: missingPermissions(libraries),
    ready: libraries.some(({ found }) => found.ok) ||
      (compiler.ok && lacking.ok && lacking.value !== undefined),
  };
}

/** True if the system can have such devices. */
function isExpected(kind: BackendKind): boolean {
  if (kind === "cuda") return Deno.build.os !== "darwin";
  if (kind === "reference" && !canBuildLibraries()) return false;
  return kind !== "metal" || Deno.build.os === "darwin" ||
    [...libraryCandidates(kind)].some(isFile);
}

function examineLibrary(kind: BackendKind): LibraryReport {
  const candidates = [...libraryCandidates(kind)];
  const path = candidates.find(isFile) ?? null;
  if (path === null) {
    return { kind, candidates, path, found: { ok: false, problem: "not built" } };
  }
  try {
    using library = Library.open(kind, path);
    const info = library.info();
    const devices = library.devices().map(({ selector }) =>
      selector ? `${kind}:${selector}` : kind
    );
    const backend = NativeBackend.open({ kind, libraryPath: path });
    const device = backend.info;
    backend.close();
    return { kind, candidates, path, found: { ok: true, value: { info, device, devices } } };
  } catch (error) {
    return { kind, candidates, path, found: { ok: false, problem: describeError(error) } };
  }
}

async function compilerIdentity(): Promise<string> {
  if (!canBuildLibraries()) return "not needed: the libraries of this package are built";
  const { findCompiler } = await import("../../../ffi/build/compiler.ts");
  const { hostPlatform } = await import("../../../ffi/build/targets.ts");
  return (await findCompiler(hostPlatform(), { cxx: Deno.env.get("CXX") })).identity;
}

function missingPermissions(libraries: readonly LibraryReport[]): string[] {
  const wanted: (readonly [Deno.PermissionDescriptor, purpose: string])[] = [
    [{ name: "read" }, "read: model files in any folder"],
    [{ name: "write" }, "write: building libraries, downloading models"],
    ...libraries.flatMap(({ path }) =>
      path === null
        ? []
        : [[{ name: "ffi", path } as const, `ffi: the native library ${path}`] as const]
    ),
  ];
  return wanted.filter(([descriptor]) => !isGranted(descriptor)).map(([, purpose]) => purpose);
}

function isGranted(descriptor: Deno.PermissionDescriptor): boolean {
  return Deno.permissions.querySync(descriptor).state === "granted";
}

async function attempt<T>(work: () => T | Promise<T>): Promise<Finding<T>> {
  try {
    return { ok: true, value: await work() };
  } catch (error) {
    return { ok: false, problem: describeError(error) };
  }
}

function describe(report: Report): string {
  const memory = report.memory === null ? "" : `, ${formatBytes(report.memory)} of memory`;
  const rows: (readonly [string, string])[] = [
    ["forge", report.forge],
    ["Deno", report.deno],
    ["system", `${report.system}, ${plural(report.processors, "processor")}${memory}`],
    ...report.libraries.flatMap(libraryRows),
    ["compiler", text(report.compiler)],
    ["demo model", text(report.demo_model)],
    ["downloads", text(report.downloads)],
    ...report.missing_permissions.map((permission) => ["not permitted", permission] as const),
  ];
  const usable = report.libraries.flatMap(({ found }) => found.ok ? found.value.devices : []);
  const verdict = usable.length > 0
    ? `Models can run; valid for --device: ${usable.join(", ")}.`
    : report.ready
    ? "Models can run; the next run builds the library."
    : "No model can run, for the reasons above.";
  const lines = wrap(verdict, columnsOf(Deno.stdout) ?? Infinity);
  return `${formatRows(rows)}\n${lines.join("\n")}\n`;
}

function libraryRows({ kind, candidates, path, found }: LibraryReport): [string, string][] {
  const label = `${kind} library`;
  if (path === null) return [[label, `not built; searched ${candidates.join(", ")}`]];
  if (!found.ok) {
    const { problem } = found;
    return [[label, problem.includes(path) ? problem : `${path} cannot be used: ${problem}`]];
  }
  const { info, device } = found.value;
  const features = device.features.length === 0 ? "" : ` (${device.features.join(" ")})`;
  return [
    [label, `${path}, version ${info.version}`],
    [
      `${kind} device`,
      `${device.name}${features}: ${device.kernels} kernels, ${plural(device.threads, "thread")}`,
    ],
    ...(device.details ?? []).map((line): [string, string] => ["", line]),
  ];
}

function text(finding: Finding<string>): string {
  return finding.ok ? finding.value : finding.problem;
}
