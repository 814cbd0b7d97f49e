/** Reads `csrc/forge.h`: enough of C for headers that declare functions, enums and structs. */
import { join } from "@std/path";
import { headerText } from "../../ffi/build/exports.ts";
import { ROOT } from "./checkout.ts";

/** A declared parameter: type `char *`, name `text`. */
export interface Parameter {
  readonly type: string;
  readonly name: string;
}

export interface FunctionDeclaration {
  readonly result: string;
  readonly parameters: readonly Parameter[];
}

/** A field of a struct, with its place in it. */
export interface Field {
  readonly type: string;
  readonly name: string;
  /** Byte offset. */
  readonly offset: number;
}

export interface StructDeclaration {
  readonly fields: readonly Field[];
  readonly bytes: number;
}

export interface Header {
  readonly functions: ReadonlyMap<string, FunctionDeclaration>;
  /** The values of each enum, by name. */
  readonly enums: readonly ReadonlyMap<string, number>[];
  readonly structs: ReadonlyMap<string, StructDeclaration>;
  /** `#define` constants with numeric values. */
  readonly constants: ReadonlyMap<string, number>;
}

const fieldBytes: Readonly<Record<string, number>> = {
  uint32_t: 4,
  int32_t: 4,
  float: 4,
  uint64_t: 8,
};

function parseDeclarator(text: string): Parameter {
  const [, type = "", stars = "", name = ""] = text.trim().match(/^(.*?)\s*(\**)\s*(\w+)$/s) ?? [];
  return { type: stars === "" ? type : `${type} ${stars}`, name };
}

function parseStruct(body: string): StructDeclaration {
  const fields: Field[] = [];
  let end = 0, alignment = 1;
  for (const declaration of body.split(";").map((part) => part.trim()).filter(Boolean)) {
    const { type, name } = parseDeclarator(declaration);
    const bytes = fieldBytes[type];
    if (bytes === undefined) throw new Error(`a field of unknown type: ${declaration}`);
    const offset = Math.ceil(end / bytes) * bytes;
    fields.push({ type, name, offset });
    end = offset + bytes;
    alignment = Math.max(alignment, bytes);
  }
  return { fields, bytes: Math.ceil(end / alignment) * alignment };
}

function parseEnum(body: string): Map<string, number> {
  const entries = body.split(",").map((entry) => entry.trim()).filter(Boolean);
  return new Map(entries.map((entry) => {
    const [, name = "", value = ""] = entry.match(/^(\w+)\s*=\s*(\d+)$/) ?? [];
    if (name === "") throw new Error(`an enum entry without a number: ${entry}`);
    return [name, Number(value)];
  }));
}

export function parseHeader(source: string): Header {
  const text = source.replaceAll(/\/\*.*?\*\//gs, "");
  const functions = new Map<string, FunctionDeclaration>();
  for (const match of text.matchAll(/\bFORGE_API\s+(\w+)\s+(\w+)\(([^)]*)\);/g)) {
    const [, result = "", name = "", list = ""] = match;
    const parameters = list.trim() === "void" ? [] : list.split(",").map(parseDeclarator);
    functions.set(name, { result, parameters });
  }
  return {
    functions,
    enums: Array.from(text.matchAll(/enum\s*\{(.*?)\}\s*;/gs), ([, body = ""]) => parseEnum(body)),
    structs: new Map(
      Array.from(
        text.matchAll(/typedef struct\s*\{(.*?)\}\s*(\w+)\s*;/gs),
        ([, body = "", name = ""]) => [name, parseStruct(body)],
      ),
    ),
    constants: new Map(
      Array.from(
        text.matchAll(/^[ \t]*#define (\w+) (\d+)$/gm),
        ([, name = "", value = ""]) => [name, Number(value)],
      ),
    ),
  };
}

/** The header of this tree, including the headers that it includes. */
export function readHeader(): Header {
  return parseHeader(headerText(join(ROOT, "csrc", "forge.h")));
}
