/**
 * Checks that pointers into device, threadgroup, constant and thread memory are not mixed up, which
 * the emulator cannot detect. clang compiles the kernels, translated as for the emulator, as C++
 * for OpenCL, where address spaces are part of types as in the Metal Shading Language
 * (`address_spaces/metal_stdlib`); nothing is run. Needs clang 19 (Debian's package clang-19).
 */
import { join, resolve } from "@std/path";
import { inParallel, text } from "../build.ts";
import { metalFiles } from "./build.ts";
import { translate, withoutComments } from "./translate.ts";
import { ROOT } from "../../support/checkout.ts";

/** The compiler, Debian's package clang-19. */
export const compiler = "clang-19";

/** Its flags to read translated kernels as C++ for OpenCL. */
export const addressSpaceFlags: readonly string[] = [
  "--target=spir64",
  "-x",
  "cl",
  "-cl-std=clc++2021",
  "-cl-no-stdinc", // everything is declared in address_spaces/metal_stdlib
  "-Wno-undefined-inline",
  "-Itest/emulator/metal/address_spaces",
];

/** Returns why the check cannot run here, or undefined. */
export async function addressSpacesUnavailable(): Promise<string | undefined> {
  try {
    await new Deno.Command(compiler, { args: ["--version"], stdout: "null" }).output();
    return undefined;
  } catch {
    return `${compiler} is not installed, which checks the address spaces of Metal kernels`;
  }
}

/** A kernel file or a header. */
export interface KernelFile {
  readonly name: string;
  readonly text: string;
}

/** The files of `kernels/metal`, and the declarations of arguments. */
export function kernelFiles(): KernelFile[] {
  return metalFiles().map((path) => ({
    name: path.slice(path.lastIndexOf("/") + 1),
    text: text([path])[0] ?? "",
  }));
}

/**
 * Returns clang's errors about the kernels, file by file; empty if there are none. `folder`, under
 * `build`, receives the translated files.
 */
export async function addressSpaceErrors(
  files: readonly KernelFile[],
  folder: string,
): Promise<string[]> {
  const place = join("build", "emulator", "address_spaces", folder);
  await Deno.mkdir(resolve(ROOT, place), { recursive: true });
  for (const { name, text } of files) {
    await Deno.writeTextFile(resolve(ROOT, place, name), translate(name, text));
  }
  const kernels = files.filter(({ name }) => name.endsWith(".metal"));
  const reports = await inParallel(kernels, async ({ name }) => {
    const args = [...addressSpaceFlags, "-fsyntax-only", `-I${place}`, join(place, name)];
    const { stderr } = await new Deno.Command(compiler, { args, cwd: ROOT }).output();
    return new TextDecoder().decode(stderr);
  });
  return reports.filter((report) => report !== "");
}

/**
 * Returns declarations of pointers and references without an address space, which C++ for OpenCL
 * would accept as generic pointers, as `name:line: declaration`.
 */
export function unqualifiedPointers({ name, text }: KernelFile): string[] {
  const found: string[] = [];
  // Directives may continue on the next lines.
  const lines = withoutComments(text).replaceAll(
    /^#(?:.*\\\n)*.*/gm,
    (directive) => directive.replaceAll(/.+/g, ""),
  );
  lines.split("\n").forEach((line, index) => {
    // Without the arguments of templates.
    while (/<[^<>]*>/.test(line)) line = line.replaceAll(/<[^<>]*>/g, "");
    // A star or an ampersand after a type, before a name, a parenthesis or the end of the type.
    for (const match of line.matchAll(/\w[*&](?=[ )])/g)) {
      const declaration = line.slice(0, match.index + 2).match(/[^(,;{}]*$/)?.[0] ?? "";
      if (!/\b(device|threadgroup|constant|thread)\b/.test(declaration)) {
        found.push(`${name}:${index + 1}: ${declaration.trim()}`);
      }
    }
  });
  return found;
}
