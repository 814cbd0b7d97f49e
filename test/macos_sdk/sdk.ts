/**
 * The parts of a macOS SDK needed to build and link forge's libraries on other systems: the C
 * headers of `libc.h` and its parts, and stub libraries that list exported names. The build checks
 * that the sources compile with Apple's target and C++ library and that no symbol is undefined; the
 * result is not meant to be run.
 */
import { dirname, join } from "@std/path";
import { isCommand, outputOf } from "./programs.ts";
import { ROOT } from "../support/checkout.ts";

const CLANG = "clang++-19";
const LINKER = "ld64.lld-19";
/** Location of Clang 19's C++ library on Linux distributions; its names are the same as Apple's. */
const LIBCXX = "/usr/lib/llvm-19/lib";

/** The headers that libc++ and forge's sources include. */
const HEADERS = [
  "assert",
  "ctype",
  "dlfcn",
  "errno",
  "fcntl",
  "inttypes",
  "locale",
  "math",
  "nl_types",
  "pthread",
  "runetype",
  "sched",
  "signal",
  "stdio",
  "stdlib",
  "string",
  "strings",
  "sys/mman",
  "sys/resource",
  "sys/stat",
  "sys/sysctl",
  "sys/time",
  "sys/types",
  "time",
  "unistd",
  "wchar",
  "wctype",
  "xlocale",
];

/** Functions that compilers call without a declaration, and the unwinder's exports. */
const IMPLICIT = [
  "_Unwind_Resume",
  "__cxa_atexit",
  "__sincos_stret",
  "__sincosf_stret",
  "__stack_chk_fail",
  "__stack_chk_guard",
  "__isPlatformVersionAtLeast",
  "bzero",
  "dyld_stub_binder",
  "memset_pattern16",
];

/** Exports of Apple's C++ library for its own types. */
const APPLE_LIBCXX = ["_ZNSt3__120__libcpp_atomic_waitEPVKvx"];

/** A system library and the symbols that forge needs from it. */
interface Stub {
  readonly path: string;
  readonly installName: string;
  readonly symbols: readonly string[];
  readonly classes?: readonly string[];
}

/** A text-based stub, version 4, which a linker reads in place of a library. */
function stubText({ installName, symbols, classes = [] }: Stub): string {
  const list = (names: readonly string[]) => `[ ${names.map((name) => `'${name}'`).join(", ")} ]`;
  return `--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '${installName}'
exports:
  - targets: [ arm64-macos ]
    symbols: ${list(symbols.map((name) => `_${name}`))}
    objc-classes: ${list(classes)}
...
`;
}

function frameworkStub(name: string, symbols: readonly string[], classes: readonly string[]): Stub {
  return {
    path: `System/Library/Frameworks/${name}.framework/${name}.tbd`,
    installName: `/System/Library/Frameworks/${name}.framework/Versions/A/${name}`,
    symbols,
    classes,
  };
}

/** The functions that a C header declares. */
function declaredFunctions(header: string): string[] {
  const code = header.replace(/\/\*[\s\S]*?\*\//g, " ")
    .replace(
      /^FORGE_MATH_\d\((\w+)\)$/gm,
      (_line, name: string) => `double ${name}(); double ${name}f(); double ${name}l();`,
    );
  return Array.from(code.matchAll(/\b(\w+)\([^()]*(?:\([^()]*\)[^()]*)*\)/g), (match) => match[1]!);
}

/** Exports of the C++ library and of the libraries that it depends on. */
function exportedByLibcxx(): string[] {
  return ["libc++.so.1", "libc++abi.so.1"].flatMap((name) =>
    outputOf("nm", ["--dynamic", "--defined-only", "--format=posix", join(LIBCXX, name)])
      .split("\n")
      .map((line) => line.split(" ")[0]?.split("@")[0] ?? "")
      .filter((symbol) => /^(_Z|__cxa_|__dynamic_cast|__gxx_)/.test(symbol))
  );
}

/** The declarations of the C library. */
function cHeaders(): { name: string; text: string }[] {
  const folder = join(ROOT, "test/macos_sdk");
  return Array.from(Deno.readDirSync(folder), ({ name }) => name)
    .filter((name) => name.endsWith(".h"))
    .sort()
    .map((name) => ({ name, text: Deno.readTextFileSync(join(folder, name)) }));
}

function stubs(): Stub[] {
  const c = new Set([...cHeaders().flatMap(({ text }) => declaredFunctions(text)), ...IMPLICIT]);
  return [
    {
      path: "usr/lib/libSystem.tbd",
      installName: "/usr/lib/libSystem.B.dylib",
      symbols: [...c],
    },
    {
      path: "usr/lib/libc++.tbd",
      installName: "/usr/lib/libc++.1.dylib",
      symbols: [...new Set([...exportedByLibcxx(), ...APPLE_LIBCXX])],
    },
    {
      path: "usr/lib/libobjc.tbd",
      installName: "/usr/lib/libobjc.A.dylib",
      symbols: ["objc_alloc_init", "objc_msgSend", "objc_release", "objc_retain"],
    },
    frameworkStub("Foundation", [], ["NSAutoreleasePool", "NSString"]),
    frameworkStub("Metal", ["MTLCreateSystemDefaultDevice"], [
      "MTLCompileOptions",
      "MTLResidencySetDescriptor",
    ]),
    frameworkStub("CoreGraphics", [], []),
  ];
}

/** Returns why libraries for macOS cannot be built here, or undefined. */
export function macosSdkUnavailable(): string | undefined {
  if (Deno.build.os !== "linux") return "the stand-in for macOS's SDK is for Linux";
  for (const program of [CLANG, LINKER, "nm"]) {
    if (!isCommand(program)) return `there is no ${program}`;
  }
  try {
    Deno.statSync(join(LIBCXX, "libc++.so.1"));
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    return "libc++ 19 is missing (libc++-19-dev)";
  }
  return undefined;
}

/** Writes the SDK; returns the compiler command, the only difference from a build on a Mac. */
export async function macosCompiler(): Promise<string> {
  const sdk = join(ROOT, "build", "macos_sdk");
  const write = async (path: string, text: string) => {
    await Deno.mkdir(dirname(join(sdk, path)), { recursive: true });
    await Deno.writeTextFile(join(sdk, path), text);
  };
  for (const { name, text } of cHeaders()) await write(`usr/include/${name}`, text);
  for (const header of HEADERS) await write(`usr/include/${header}.h`, "#include <libc.h>\n");
  for (const stub of stubs()) await write(stub.path, stubText(stub));
  // When Clang only compiles, it warns about unused linker options.
  return `${CLANG} --target=arm64-apple-macos13.0 -isysroot ${sdk} -fuse-ld=lld -Qunused-arguments`;
}
