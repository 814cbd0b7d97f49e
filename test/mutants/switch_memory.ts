/**
 * The switch that is on, and those that were evaluated, in a file that all processes of a test map
 * into memory: `switch_memory.cpp` does, which the dynamic loader loads into each of them first.
 */

/** Names the file: an i32, the switch that is on, and a byte for each switch. */
export const SWITCHES_VARIABLE = "FORGE_SWITCHES";
/** Names the library of `switch_memory.cpp`. */
export const LIBRARY_VARIABLE = "FORGE_SWITCHES_LIBRARY";

/** Bytes before those of the switches. */
const HEADER_BYTES = 4;

function mapped(): Uint8Array<ArrayBuffer> | undefined {
  try {
    const path = Deno.env.get(LIBRARY_VARIABLE);
    const file = Deno.env.get(SWITCHES_VARIABLE);
    if (path === undefined || file === undefined) return;
    const { symbols } = Deno.dlopen(path, {
      forge_switch_memory: { parameters: [], result: "pointer" },
      forge_switch_bytes: { parameters: [], result: "usize" },
    });
    const address = symbols.forge_switch_memory();
    if (address === null) return;
    const bytes = Number(symbols.forge_switch_bytes());
    return new Uint8Array(Deno.UnsafePointerView.getArrayBuffer(address, bytes));
  } catch (error) {
    // A process without permissions, in which no switch is on.
    if (error instanceof Deno.errors.NotCapable) return;
    throw error;
  }
}

const memory = mapped();
const switches = memory?.subarray(HEADER_BYTES);
const on = memory && new Int32Array(memory.buffer, 0, 1);

/** Returns the bytes of a file in which a switch is on, or none for -1. */
export function memoryOf(nSwitches: number, on: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(HEADER_BYTES + nSwitches);
  new DataView(bytes.buffer).setInt32(0, on, true);
  return bytes;
}

/** True if a switch is on; keeps that it was evaluated. */
export function isOn(id: number): boolean {
  if (switches === undefined) return false;
  switches[id] = 1;
  return on![0] === id;
}

/** Switches a mutant on, in all processes; -1 for none. */
export function switchOn(id: number): void {
  on![0] = id;
}

/** Returns the switches that any process evaluated since the last call. */
export function takeEvaluated(): number[] {
  const ids: number[] = [];
  for (let id = switches!.indexOf(1); id >= 0; id = switches!.indexOf(1, id + 1)) ids.push(id);
  switches!.fill(0);
  return ids;
}
