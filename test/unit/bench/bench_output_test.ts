import { assertEquals } from "@std/assert";
import {
  BATCHED_PRINTERS,
  LINE_PRINTERS,
  type OutputFormat,
  PRINTERS,
} from "../../../src/bench/bench_output.ts";
import { type BenchRecord, benchRecord } from "../../../src/bench/bench_record.ts";
import { fitting } from "../../../src/cli/commands/bench.ts";

const MODEL = {
  backend: "cpu:avx2",
  batch: 512,
  device: { name: 'A "fast" one', threads: 4, features: [], kernels: "avx2" },
  kvType: "F16",
  readBandwidth: 64e9,
  matrixRate: 2e12,
  summary: {
    type: "llama 1.24B Q4_0",
    bytes: 766277632,
    parameters: 1235814400,
    decodeBytes: 7e8,
    promptWeights: 1e9,
  },
} as const;

const SESSION = { version: "1.2.3", time: new Date("2026-01-02T03:04:05Z"), peakMemory: 2 ** 30 };

const RECORDS: readonly BenchRecord[] = [
  benchRecord(MODEL, "a,b.gguf", { nPrompt: 512, nGen: 0, nDepth: 0 }, [
    { prefill: 1e9, decode: 0 },
    { prefill: 2e9, decode: 0 },
  ], SESSION),
  benchRecord(MODEL, "a,b.gguf", { nPrompt: 0, nGen: 128, nDepth: 1024 }, [{
    prefill: 0,
    decode: 4e9,
  }], SESSION),
];

function print(format: OutputFormat): string {
  const printer = PRINTERS[format];
  return printer.begin() + RECORDS.map(printer.record).join("") + printer.end();
}

Deno.test("bench output: the record has llama-bench's numbers", () => {
  const [prompt, decode] = RECORDS;
  assertEquals(prompt!.samples_ts, [512, 256]);
  assertEquals(prompt!.avg_ns, 1.5e9);
  assertEquals(prompt!.stddev_ns, Math.round(Math.sqrt(0.5) * 1e9));
  assertEquals([prompt!.avg_ts, prompt!.stddev_ts], [384, Math.sqrt(2 * 128 ** 2)]);
  assertEquals(prompt!.weight_gb_s, null);
  assertEquals([decode!.avg_ts, decode!.stddev_ts, decode!.weight_gb_s], [32, 0, 22.4]);
});

Deno.test("bench output: markdown", () => {
  assertEquals(
    print("md"),
    "| model                          |       size |     params | backend         | threads |            test |                t/s |   GB/s | of max |     memory |\n" +
      "|--------------------------------|-----------:|-----------:|-----------------|--------:|----------------:|-------------------:|-------:|-------:|-----------:|\n" +
      "| llama 1.24B Q4_0               | 730.78 MiB |     1.24 B | cpu:avx2        |       4 |           pp512 |    384.00 ± 181.02 |        |    38% |   1.00 GiB |\n" +
      "| llama 1.24B Q4_0               | 730.78 MiB |     1.24 B | cpu:avx2        |       4 |   tg128 @ d1024 |       32.00 ± 0.00 |  22.40 |    35% |   1.00 GiB |\n",
  );
});

Deno.test("bench output: sizes and counts change their units at whole ones", () => {
  const shown = (bytes: number, parameters: number) => {
    const summary = { ...MODEL.summary, bytes, parameters };
    const record = benchRecord(
      { ...MODEL, summary },
      "m.gguf",
      { nPrompt: 1, nGen: 0, nDepth: 0 },
      [{ prefill: 1, decode: 0 }],
      SESSION,
    );
    return PRINTERS.md.record(record, 0).split("|").slice(2, 4).map((cell) => cell.trim());
  };
  assertEquals(shown(512, 90), ["0.50 KiB", "0.09 K"]);
  assertEquals(shown(2 ** 20 - 1, 1e6 - 1), ["1024.00 KiB", "1000.00 K"]);
  assertEquals(shown(2 ** 20, 1e6), ["1.00 MiB", "1.00 M"]);
  assertEquals(shown(2 ** 30 - 1, 1e9 - 1), ["1024.00 MiB", "1000.00 M"]);
  assertEquals(shown(2 ** 30, 1e9), ["1.00 GiB", "1.00 B"]);
});

Deno.test("bench output: a line has the titles and the known values of the table", () => {
  assertEquals(
    LINE_PRINTERS.single.record(RECORDS[0]!, 0),
    "model llama 1.24B Q4_0, size 730.78 MiB, params 1.24 B, backend cpu:avx2, threads 4, " +
      "test pp512, t/s 384.00 ± 181.02, of max 38%, memory 1.00 GiB\n",
  );
});

Deno.test("bench output: unknown measurements are left out", () => {
  const record = benchRecord(
    { ...MODEL, readBandwidth: 0, matrixRate: 0 },
    "m.gguf",
    { nPrompt: 0, nGen: 128, nDepth: 0 },
    [{ prefill: 0, decode: 4e9 }],
    { ...SESSION, peakMemory: 0 },
  );
  assertEquals([record.read_gb_s, record.matrix_tflops, record.peak_memory], [null, null, null]);
  assertEquals(PRINTERS.md.record(record, 0).endsWith("|  22.40 |        |            |\n"), true);
});

Deno.test("bench output: CSV quotes every field", () => {
  const [header, first, second, ...rest] = print("csv").trimEnd().split("\n");
  assertEquals(rest, []);
  assertEquals(
    header,
    "forge_version,device,backends,model_filename,model_type,model_size,model_n_params,n_batch," +
      "n_threads,type_k,type_v,n_prompt,n_gen,n_depth,n_parallel,test_time,avg_ns,stddev_ns,avg_prefill_ns,avg_decode_ns,avg_ts,stddev_ts," +
      "decode_bytes,weight_gb_s,read_gb_s,prompt_tflops,matrix_tflops,peak_memory",
  );
  assertEquals(
    first,
    '"1.2.3","A ""fast"" one","cpu:avx2","a,b.gguf","llama 1.24B Q4_0","766277632","1235814400",' +
      '"512","4","f16","f16","512","0","0","1","2026-01-02T03:04:05.000Z","1500000000","707106781",' +
      '"1500000000","0","384","181.01933598375618","700000000","","64","0.768","2","1073741824"',
  );
  assertEquals(
    second!.endsWith(',"32","0","700000000","22.4","64","","2","1073741824"'),
    true,
    second,
  );
});

Deno.test("bench output: JSON is one array, JSON lines an object each", () => {
  assertEquals(JSON.parse(print("json")), RECORDS);
  const lines = print("jsonl").trimEnd().split("\n");
  assertEquals<unknown>(lines.map((line) => JSON.parse(line)), RECORDS);
  assertEquals(JSON.parse(PRINTERS.json.begin() + PRINTERS.json.end()), []);
});

Deno.test("bench output: several sequences at once, with the columns of llama-batched-bench", () => {
  const workload = { nPrompt: 128, nGen: 64, nDepth: 32, nParallel: 8, nBatch: 9999 };
  const samples = [{ prefill: 2e9, decode: 3e9 }, { prefill: 2e9, decode: 5e9 }];
  const record = benchRecord(MODEL, "m.gguf", workload, samples, SESSION);
  assertEquals([record.n_parallel, record.avg_prefill_ns, record.avg_decode_ns], [8, 2e9, 4e9]);
  assertEquals(record.samples_ts, [5e9, 7e9].map((ns) => 8 * 192 / ns * 1e9));
  assertEquals([record.weight_gb_s, record.prompt_tflops, record.n_batch], [null, null, 512]);
  const lines = (BATCHED_PRINTERS.md.begin() + BATCHED_PRINTERS.md.record(record, 0)).split("\n");
  assertEquals(lines.slice(0, 2), [
    "| model                          | backend         | threads |     PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |                t/s |     memory |",
    "|--------------------------------|-----------------|--------:|-------:|-------:|-----:|-------:|---------:|---------:|---------:|---------:|---------:|-------------------:|-----------:|",
  ]);
  const cells = (line: string) => line.split("|").slice(1, -1).map((cell) => cell.trim());
  const row = Object.fromEntries(cells(lines[0]!).map((title, i) => [title, cells(lines[2]!)[i]]));
  const { PP, TG, B, N_KV } = row;
  assertEquals([PP, TG, B, N_KV], ["128", "64", "8", "1792"]);
  assertEquals([row["T_PP s"], row["S_PP t/s"]], ["2.000", "512.00"]);
  assertEquals([row["T_TG s"], row["S_TG t/s"], row["T s"]], ["4.000", "128.00", "6.000"]);
  // Without a phase it has no speed, and several sequences share the weights.
  const times = [{ prefill: 0, decode: 4e9 }];
  const decode = { nPrompt: 0, nGen: 64, nDepth: 0, nParallel: 8, nBatch: 16 };
  const only = benchRecord({ ...MODEL, backend: "a|b" }, "m.gguf", decode, times, SESSION);
  assertEquals([only.weight_gb_s, only.n_batch, only.prompt_tflops], [null, 16, null]);
  const batched = BATCHED_PRINTERS.md.record(only, 0);
  assertEquals(batched.split(/(?<!\\)\|/).slice(2, 12).map((cell) => cell.trim()), [
    ...["a\\|b", "4", "0", "64", "8", "512"],
    ...["0.000", "", "4.000", "128.00"],
  ]);
});

Deno.test("bench output: a terminal that is too narrow for the table has lines that fit it", () => {
  const { md } = PRINTERS;
  const width = md.begin().indexOf("\n");
  for (const columns of [undefined, width, width + 1]) {
    assertEquals(fitting(md, LINE_PRINTERS.single, columns), md);
  }
  for (let columns = 40; columns < width; columns++) {
    const printer = fitting(md, LINE_PRINTERS.single, columns);
    const text = printer.record(RECORDS[0]!, 0);
    assertEquals(text.replaceAll("\n  ", " "), LINE_PRINTERS.single.record(RECORDS[0]!, 0));
    const longest = Math.max(...text.split("\n").map((line) => line.length));
    assertEquals(longest <= columns, true, `${longest} in ${columns}`);
  }
});
