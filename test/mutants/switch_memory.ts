/**
 * The switch that is on, and those that were evaluated, in a file that all processes of a test map
 * into memory: `switch_memory.cpp`, which the dynamic loader loads first.
 */

/** Names the file: an i32, the switch that is on, and a byte for each switch. */
export const SWITCHES_VARIABLE = "FORGE_SWITCHES";
/** Names the library of `switch_memory.cpp`. */
export const LIBRARY_VARIABLE = "FORGE_SWITCHES_LIBRARY";

/** Returns the bytes of a file in which a switch is on, or none for -1. */
export function memoryOf(nSwitches: number, on: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(4 + nSwitches);
  new DataView(bytes.buffer).setInt32(0, on, true);
  return bytes;
}

function open() {
  try {
    const path = Deno.env.get(LIBRARY_VARIABLE);
    return path === undefined ? undefined : Deno.dlopen(path, {
      forge_evaluate_switch: { parameters: ["i32"], result: "bool" },
      forge_switch_on: { parameters: ["i32"], result: "void" },
      forge_switch_count: { parameters: [], result: "usize" },
      forge_take_switches: { parameters: ["buffer"], result: "void" },
    }).symbols;
  } catch (error) {
    // A process without permissions, in which no switch is on.
    if (error instanceof Deno.errors.NotCapable) return undefined;
    throw error;
  }
}

const library = open();

/** True if a switch is on; keeps that it was evaluated. */
export function isOn(id: number): boolean {
  return library?.forge_evaluate_switch(id) ?? false;
}

/** Switches a mutant on, in all processes; -1 for none. */
export function switchOn(id: number): void {
  library!.forge_switch_on(id);
}

/** Returns the switches that any process evaluated since the last call. */
export function takeEvaluated(): number[] {
  const bytes = new Uint8Array(Number(library!.forge_switch_count()));
  library!.forge_take_switches(bytes);
  return Array.from(bytes.keys()).filter((id) => bytes[id] === 1);
}
