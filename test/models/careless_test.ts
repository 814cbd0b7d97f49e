/** Models that are left open, or whose file is written to while it is in use. */
import { assertEndsCleanly, CARELESS, type CarelessProgram } from "../support/careless_program.ts";

for (const device of ["cpu", "reference"]) {
  for (const name of Object.keys(CARELESS) as CarelessProgram[]) {
    Deno.test(`a program on ${device} that ${name} ends without a signal`, () =>
      assertEndsCleanly(name, device));
  }
}
