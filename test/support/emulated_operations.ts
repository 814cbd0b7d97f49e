import { drawn } from "./thorough.ts";

/**
 * The operation tests that run on an emulated GPU, the same that compare the CPU with the
 * reference: all files of `test/ops` except these. Of the others each run takes half, and
 * `deno task thorough` all.
 */
const LEFT_OUT: Readonly<Record<string, string>> = {
  amx_products: "compares kernels of the CPU",
  bf16_products: "compares kernels of the CPU",
  emulated_products: "compares kernels of the CPU",
  first_run: "tests the packing of weights on the CPU",
  latent_invariance: "tests the kernels of the CPU",
  numa: "tests the threads of the CPU",
  recording_fuzz: "tests the recording of steps, which all devices share",
};

/** The arguments of `deno` that run these tests, and the reasons for those left out. */
export function operationTests(): { readonly args: string[]; readonly notes: string[] } {
  const files = Array.from(Deno.readDirSync("test/ops"), ({ name }) => name)
    .filter((name) => name.endsWith("_test.ts"))
    .sort();
  const left = (file: string) => LEFT_OUT[file.replace("_test.ts", "")];
  const fitting = files.filter((file) => left(file) === undefined);
  // Those of attention launch the most kernels.
  const isLarge = (file: string) => file === "attention_test.ts";
  const taken = [
    ...fitting.filter(isLarge),
    ...drawn("operations", fitting.filter((file) => !isLarge(file)), 1 / 2),
  ];
  return {
    args: ["test", "-A", "--quiet", "--no-check", ...taken.map((file) => `test/ops/${file}`)],
    notes: files.filter((file) => left(file) !== undefined)
      .map((file) => `skipping on the emulated GPU: ${file} ${left(file)}`),
  };
}
