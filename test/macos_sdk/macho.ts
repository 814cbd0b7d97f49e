/** Reads shared libraries of macOS: Apple's "OS X ABI Mach-O File Format Reference". */

/** The description of a library. */
export interface MachoLibrary {
  readonly cpu: "arm64" | "another";
  /** Exported functions and data, without the leading underscore, sorted. */
  readonly exported: readonly string[];
}

const MAGIC_64 = 0xfeedfacf;
const CPU_ARM64 = 0x0100000c;
const TYPE_DYLIB = 6;
const COMMAND_SYMTAB = 2;
const HEADER_BYTES = 32;
const ENTRY_BYTES = 16;
/** Bits of a symbol's type: debugging, hidden, kind, and external. */
const STAB = 0xe0, PRIVATE_EXTERNAL = 0x10, KIND = 0x0e, EXTERNAL = 0x01;
const UNDEFINED = 0;

/** Reads the symbol table of a 64-bit library. */
export function machoExports(bytes: Uint8Array): MachoLibrary {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const u32 = (at: number) => view.getUint32(at, true);
  if (u32(0) !== MAGIC_64 || u32(12) !== TYPE_DYLIB) throw new Error("no 64-bit library of macOS");
  const exported: string[] = [];
  let at = HEADER_BYTES;
  for (let i = 0; i < u32(16); i++, at += u32(at + 4)) {
    if (u32(at) !== COMMAND_SYMTAB) continue;
    const [table, count, strings] = [u32(at + 8), u32(at + 12), u32(at + 16)];
    for (let n = 0; n < count; n++) {
      const entry = table + n * ENTRY_BYTES;
      const type = bytes[entry + 4] ?? 0;
      if ((type & (STAB | PRIVATE_EXTERNAL)) !== 0 || (type & EXTERNAL) === 0) continue;
      if ((type & KIND) === UNDEFINED) continue;
      const begin = strings + u32(entry);
      const name = new TextDecoder().decode(bytes.subarray(begin, bytes.indexOf(0, begin)));
      exported.push(name.replace(/^_/, ""));
    }
  }
  return { cpu: u32(4) === CPU_ARM64 ? "arm64" : "another", exported: exported.sort() };
}
