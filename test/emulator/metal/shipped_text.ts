/**
 * Writes the texts that the library gives to Metal's compiler, with every instance of their
 * kernels, and the list of their pipelines, so that Apple's tools can compile them on a Mac whose
 * GPU forge cannot use: `shipped_text.ts FOLDER`.
 */
import { basename, join, resolve } from "@std/path";
import { list } from "../build.ts";
import { kernelsOf } from "./translate.ts";
import { ROOT } from "../../support/checkout.ts";

/** The folders of kernel files, as they are embedded in the library. */
const FOLDERS = ["kernels/metal", "kernels/arguments"];

function sources(): Map<string, string> {
  const paths = FOLDERS.flatMap((folder) => list(folder, ".metal", ".h"));
  return new Map(
    paths.map((path) => [basename(path), Deno.readTextFileSync(resolve(ROOT, path))]),
  );
}

/** The name of an instance in a Metal library: see csrc/metal/kernels.cpp. */
export function functionOf(instance: string): string {
  const name = instance.replaceAll(/\W+/g, "_");
  return instance.endsWith(">") ? name.slice(0, -1) : name;
}

/** The text of a file with its includes, each once, and some instances of its kernels. */
export function shippedText(file: string, instances: readonly string[]): string {
  const files = sources(), included = new Set<string>();
  const expand = (name: string): string => {
    if (included.has(name)) return "";
    included.add(name);
    const text = files.get(name);
    if (text === undefined) throw new Error(`missing file ${name}`);
    const lines = text.replace(/\n$/, "").split("\n");
    return lines.map((line) => {
      const path = line.match(/^#include "([^"]*)"/)?.[1];
      if (path !== undefined) return expand(basename(path));
      return line === "#pragma once" ? "" : `${line}\n`;
    }).join("");
  };
  const lines = instances.map((name) => `INSTANTIATE(${functionOf(name)}, ${name})\n`);
  return expand(file) + lines.join("");
}

/** The instances of a file's kernels. */
export function instancesOf(file: string): string[] {
  const text = sources().get(file) ?? "";
  return Array.from(text.matchAll(/^INSTANCE\((.*)\)$/gm), ([, name = ""]) => name);
}

if (import.meta.main) {
  const [folder = "build/metal_sources"] = Deno.args;
  await Deno.mkdir(folder, { recursive: true });
  for (const file of Array.from(sources().keys()).filter((name) => name.endsWith(".metal"))) {
    const instances = instancesOf(file), name = file.replace(".metal", "");
    const plain = kernelsOf(sources().get(file)!).filter(({ isTemplate }) => !isTemplate);
    const functions = [...plain.map(({ name }) => name), ...instances.map(functionOf)];
    const pipelines = {
      libraries: { paths: [{ label: name, path: `${name}.metallib` }] },
      pipelines: {
        compute_pipelines: functions.map((each) => ({ compute_function: `alias:${name}#${each}` })),
      },
    };
    await Deno.writeTextFile(join(folder, file), shippedText(file, instances));
    await Deno.writeTextFile(join(folder, `${name}.mtlp-json`), JSON.stringify(pipelines, null, 2));
  }
}
