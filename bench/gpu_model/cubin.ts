/** Attributes of kernels in a cubin, which is an ELF file. */

/** A section of an ELF file. */
interface Section {
  readonly name: string;
  readonly bytes: DataView;
}

function sections(file: Uint8Array<ArrayBuffer>): Section[] {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const at = Number(view.getBigUint64(0x28, true));
  const size = view.getUint16(0x3a, true), count = view.getUint16(0x3c, true);
  const names = view.getUint16(0x3e, true);
  const part = (index: number) => {
    const header = at + index * size;
    const offset = Number(view.getBigUint64(header + 0x18, true));
    const length = Number(view.getBigUint64(header + 0x20, true));
    const hasBytes = view.getUint32(header + 4, true) !== 8; // SHT_NOBITS
    const bytes = new DataView(
      file.buffer,
      file.byteOffset + (hasBytes ? offset : 0),
      hasBytes ? length : 0,
    );
    return { name: view.getUint32(header, true), bytes };
  };
  const text = part(names).bytes;
  const nameAt = (offset: number) => {
    let end = offset;
    while (text.getUint8(end) !== 0) end++;
    return new TextDecoder().decode(
      new Uint8Array(text.buffer, text.byteOffset + offset, end - offset),
    );
  };
  return Array.from({ length: count }, (_, i) => {
    const { name, bytes } = part(i);
    return { name: nameAt(name), bytes };
  });
}

/** EIFMT_SVAL: an attribute followed by its size and value; other formats hold it in place. */
const WITH_SIZE = 4;
/** EIATTR_MAX_THREADS: three 32-bit dimensions of the launch bounds. */
const MAX_THREADS = 5;

/** Returns the threads of a kernel's launch bounds; undefined if it has none. */
export function maxThreads(cubin: Uint8Array<ArrayBuffer>, symbol: string): number | undefined {
  const info = sections(cubin).find(({ name }) => name === `.nv.info.${symbol}`)?.bytes;
  if (info === undefined) return undefined;
  for (let at = 0; at + 4 <= info.byteLength;) {
    const format = info.getUint8(at), attribute = info.getUint8(at + 1);
    const size = format === WITH_SIZE ? info.getUint16(at + 2, true) : 0;
    if (attribute === MAX_THREADS && size >= 12) {
      const [x = 1, y = 1, z = 1] = [4, 8, 12].map((from) => info.getUint32(at + from, true));
      return x * y * z;
    }
    at += 4 + size;
  }
  return undefined;
}
