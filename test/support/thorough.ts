/**
 * True in `deno task thorough`, which runs what `deno task ok` leaves out: cases that differ from
 * others only in a number or a format, and libraries that another system's checks build, too.
 */
export const isThorough: boolean = Deno.env.get("FORGE_THOROUGH") === "1";
