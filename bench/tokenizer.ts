/** Measures how long a tokenizer takes to load, and how fast it encodes and decodes. */
import { join } from "@std/path";
import { median } from "../src/bench/statistics.ts";
import { ForgeError, openCheckpoint, openTokenizer } from "../src/mod.ts";
import { type BenchOptions, benchSubject, subjectPath } from "./bench_options.ts";
import { root } from "./root.ts";

/** Minimum bytes of text to encode; a shorter file is repeated. */
const TEXT_BYTES = 2 ** 20;

/** Prints the medians over the rounds; each round starts with an empty cache of words. */
export async function benchTokenizer(options: BenchOptions): Promise<void> {
  const file = options.file ?? join(root, "README.md");
  const once = await Deno.readTextFile(file);
  if (once === "") throw new ForgeError("bad_input", `"${file}" is empty`);
  const text = once.repeat(Math.ceil(TEXT_BYTES / new TextEncoder().encode(once).length));
  const bytes = new TextEncoder().encode(text).length;
  using subject = benchSubject(options);
  const times: Record<"load" | "encode" | "decode", number[]> = {
    load: [],
    encode: [],
    decode: [],
  };
  let description = "";
  let nTokens = 0;
  for (let round = 0; round < options.rounds; round++) {
    const start = performance.now();
    const tokenizer = openTokenizer(openCheckpoint(subjectPath(subject)));
    const loaded = performance.now();
    const tokens = tokenizer.encode(text);
    const encoded = performance.now();
    tokenizer.decode(tokens);
    times.load.push(loaded - start);
    times.encode.push(encoded - loaded);
    times.decode.push(performance.now() - encoded);
    description = tokenizer.description;
    nTokens = tokens.length;
  }
  const speed = (milliseconds: number) => `${(bytes / milliseconds / 1e3).toFixed(2)} MB/s`;
  console.log(`tokenizer of ${subject.name}: ${description}, median of ${options.rounds}:`);
  console.log(`  load, with the model's headers ${median(times.load).toFixed(1)} ms`);
  console.log(
    `  encode ${speed(median(times.encode))}, ${(bytes / nTokens).toFixed(2)} bytes a token`,
  );
  const perToken = (median(times.decode) / nTokens * 1e3).toFixed(3);
  console.log(`  decode ${speed(median(times.decode))}, ${perToken} µs a token`);
}
