import { resolve } from "@std/path";

/** The folder of the checkout. */
export const root: string = resolve(import.meta.dirname ?? ".", "..");
