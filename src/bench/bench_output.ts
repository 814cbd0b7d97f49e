/**
 * Output formats of benchmark records. Each record is printed at once, so that an abort loses none.
 */
import type { BenchRecord } from "./bench_record.ts";
import { workloadName } from "./workload.ts";

/** Formats of `forge bench -o`. */
export type OutputFormat = "md" | "json" | "jsonl" | "csv";

/** Printer of one format. */
export interface RecordPrinter {
  /** Returns the text before the first record. */
  begin(): string;
  /** Returns the text of a record; `index` counts from 0. */
  record(record: BenchRecord, index: number): string;
  /** Returns the text after the last record. */
  end(): string;
}

/** A column of the table; numbers are right-aligned. */
interface Column {
  readonly title: string;
  readonly width: number;
  readonly isNumber: boolean;
  readonly text: (record: BenchRecord) => string;
}

const COLUMNS: readonly Column[] = [
  { title: "model", width: 30, isNumber: false, text: ({ model_type }) => model_type },
  { title: "size", width: 10, isNumber: true, text: ({ model_size }) => binaryBytes(model_size) },
  { title: "params", width: 10, isNumber: true, text: (record) => count(record.model_n_params) },
  { title: "backend", width: 15, isNumber: false, text: ({ backends }) => backends },
  { title: "threads", width: 7, isNumber: true, text: ({ n_threads }) => `${n_threads}` },
  { title: "test", width: 15, isNumber: true, text: testName },
  {
    title: "t/s",
    width: 18,
    isNumber: true,
    text: ({ avg_ts, stddev_ts }) => `${avg_ts.toFixed(2)} ± ${stddev_ts.toFixed(2)}`,
  },
  {
    title: "GB/s",
    width: 6,
    isNumber: true,
    text: ({ weight_gb_s }) => weight_gb_s === null ? "" : weight_gb_s.toFixed(2),
  },
  { title: "of max", width: 6, isNumber: true, text: shareOfLimit },
  {
    title: "memory",
    width: 10,
    isNumber: true,
    text: ({ peak_memory }) => peak_memory === null ? "" : binaryBytes(peak_memory),
  },
];

const phase = (record: BenchRecord, tokens: number, ns: number): string =>
  tokens === 0 ? "" : (tokens * record.n_parallel / ns * 1e9).toFixed(2);
const seconds = (ns: number): string => (ns / 1e9).toFixed(3);
const positions = ({ n_depth, n_prompt, n_gen, n_parallel }: BenchRecord): number =>
  n_parallel * (n_depth + n_prompt + n_gen);
const numberColumn = (
  title: string,
  width: number,
  text: (record: BenchRecord) => string,
): Column => ({ title, width, isNumber: true, text });

/** Columns of llama-batched-bench: PP, TG and B of each row, and the times of the two phases. */
const BATCHED_COLUMNS: readonly Column[] = [
  ...COLUMNS.filter(({ title }) => title === "model" || title === "backend" || title === "threads"),
  numberColumn("PP", 6, ({ n_prompt }) => `${n_prompt}`),
  numberColumn("TG", 6, ({ n_gen }) => `${n_gen}`),
  numberColumn("B", 4, ({ n_parallel }) => `${n_parallel}`),
  numberColumn("N_KV", 6, (record) => `${positions(record)}`),
  numberColumn("T_PP s", 8, ({ avg_prefill_ns }) => seconds(avg_prefill_ns)),
  numberColumn("S_PP t/s", 8, (record) => phase(record, record.n_prompt, record.avg_prefill_ns)),
  numberColumn("T_TG s", 8, ({ avg_decode_ns }) => seconds(avg_decode_ns)),
  numberColumn("S_TG t/s", 8, (record) => phase(record, record.n_gen, record.avg_decode_ns)),
  numberColumn("T s", 8, ({ avg_ns }) => seconds(avg_ns)),
  ...COLUMNS.filter(({ title }) => title === "t/s" || title === "memory"),
];

const markdown = (columns: readonly Column[]): RecordPrinter => ({
  begin: () => {
    const titles = columns.map(padded((column) => column.title));
    const rules = columns.map(({ width, isNumber }) =>
      isNumber ? `${"-".repeat(width + 1)}:` : "-".repeat(width + 2)
    );
    return `| ${titles.join(" | ")} |\n|${rules.join("|")}|\n`;
  },
  record: (record) => `| ${columns.map(padded((column) => column.text(record))).join(" | ")} |\n`,
  end: () => "",
});

/** Prints the titles and values of a record on one line. */
const pairs = (columns: readonly Column[]): RecordPrinter => ({
  begin: () => "",
  record: (record) => {
    const cells = columns.map(({ title, text }) => [title, text(record)] as const);
    return `${
      cells.flatMap(([title, text]) => text === "" ? [] : [`${title} ${text}`]).join(", ")
    }\n`;
  },
  end: () => "",
});

const json: RecordPrinter = {
  begin: () => "[",
  record: (record, index) => {
    const lines = JSON.stringify(record, null, 2).replaceAll("\n", "\n  ");
    return `${index === 0 ? "" : ","}\n  ${lines}`;
  },
  end: () => "\n]\n",
};

const jsonLines: RecordPrinter = {
  begin: () => "",
  record: (record) => `${JSON.stringify(record)}\n`,
  end: () => "",
};

const CSV_FIELDS = [
  "forge_version",
  "device",
  "backends",
  "model_filename",
  "model_type",
  "model_size",
  "model_n_params",
  "n_batch",
  "n_threads",
  "type_k",
  "type_v",
  "n_prompt",
  "n_gen",
  "n_depth",
  "n_parallel",
  "test_time",
  "avg_ns",
  "stddev_ns",
  "avg_prefill_ns",
  "avg_decode_ns",
  "avg_ts",
  "stddev_ts",
  "decode_bytes",
  "weight_gb_s",
  "read_gb_s",
  "prompt_tflops",
  "matrix_tflops",
  "peak_memory",
] as const satisfies readonly (keyof BenchRecord)[];

const csv: RecordPrinter = {
  begin: () => `${CSV_FIELDS.join(",")}\n`,
  record: (record) => `${CSV_FIELDS.map((field) => csvField(record[field])).join(",")}\n`,
  end: () => "",
};

/** Printers for tests of one sequence. */
export const PRINTERS: Readonly<Record<OutputFormat, RecordPrinter>> = {
  md: markdown(COLUMNS),
  json,
  jsonl: jsonLines,
  csv,
};

/** Printers for tests of several sequences at once; the table has different columns. */
export const BATCHED_PRINTERS: Readonly<Record<OutputFormat, RecordPrinter>> = {
  ...PRINTERS,
  md: markdown(BATCHED_COLUMNS),
};

/** Printers of lines for terminals on which a table is too wide. */
export const LINE_PRINTERS = { single: pairs(COLUMNS), batched: pairs(BATCHED_COLUMNS) };

function padded(text: (column: Column) => string): (column: Column) => string {
  return (column) =>
    column.isNumber
      ? text(column).padStart(column.width)
      : text(column).replaceAll("|", "\\|").padEnd(column.width);
}

function testName({ n_prompt, n_gen, n_depth, n_parallel }: BenchRecord): string {
  return workloadName({
    nPrompt: n_prompt,
    nGen: n_gen,
    nDepth: n_depth,
    nParallel: n_parallel,
  });
}

/**
 * Returns the weight bandwidth of decoding as a share of the measured read bandwidth, and the
 * operations of a prompt as a share of the measured products of matrices.
 */
function shareOfLimit(record: BenchRecord): string {
  const { weight_gb_s, read_gb_s, prompt_tflops, matrix_tflops } = record;
  const share = (value: number | null, limit: number | null) =>
    value === null || limit === null ? "" : `${(value / limit * 100).toFixed(0)}%`;
  return share(weight_gb_s, read_gb_s) || share(prompt_tflops, matrix_tflops);
}

/** Quotes every field, as RFC 4180 allows; null is empty. */
function csvField(value: string | number | null): string {
  return `"${String(value ?? "").replaceAll('"', '""')}"`;
}

/** Formats bytes in the units of llama-bench's table: `727.75 MiB`, `1.22 GiB`. */
function binaryBytes(bytes: number): string {
  const [scale, unit] = bytes >= 2 ** 30
    ? [2 ** 30, "GiB"]
    : bytes >= 2 ** 20
    ? [2 ** 20, "MiB"]
    : [2 ** 10, "KiB"];
  return `${(bytes / scale).toFixed(2)} ${unit}`;
}

/** Formats a parameter count: `1.24 B`, `134.52 M`. */
function count(parameters: number): string {
  const [scale, unit] = parameters >= 1e9
    ? [1e9, "B"]
    : parameters >= 1e6
    ? [1e6, "M"]
    : [1e3, "K"];
  return `${(parameters / scale).toFixed(2)} ${unit}`;
}
