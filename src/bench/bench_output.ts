/** The formats that records are printed in, a record at a time, so that what is measured is never lost. */
import type { BenchRecord } from "./bench_record.ts";
import { workloadName } from "./workload.ts";

export type OutputFormat = "md" | "json" | "jsonl" | "csv";

/** The texts of one format. */
export interface RecordPrinter {
  /** What goes before the first record. */
  begin(): string;
  /** A record, `index` being how many were before it. */
  record(record: BenchRecord, index: number): string;
  /** What goes after the last record. */
  end(): string;
}

/** Columns of numbers are right-aligned. */
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
  { title: "backend", width: 12, isNumber: false, text: ({ backends }) => backends },
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
  { title: "of max", width: 6, isNumber: true, text: bandwidthShare },
  {
    title: "memory",
    width: 10,
    isNumber: true,
    text: ({ peak_memory }) => peak_memory === null ? "" : binaryBytes(peak_memory),
  },
];

const markdown: RecordPrinter = {
  begin: () => {
    const titles = COLUMNS.map(padded((column) => column.title));
    const rules = COLUMNS.map(({ width, isNumber }) =>
      isNumber ? `${"-".repeat(width + 1)}:` : "-".repeat(width + 2)
    );
    return `| ${titles.join(" | ")} |\n|${rules.join("|")}|\n`;
  },
  record: (record) => `| ${COLUMNS.map(padded((column) => column.text(record))).join(" | ")} |\n`,
  end: () => "",
};

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
  "test_time",
  "avg_ns",
  "stddev_ns",
  "avg_ts",
  "stddev_ts",
  "decode_bytes",
  "weight_gb_s",
  "read_gb_s",
  "peak_memory",
] as const satisfies readonly (keyof BenchRecord)[];

const csv: RecordPrinter = {
  begin: () => `${CSV_FIELDS.join(",")}\n`,
  record: (record) => `${CSV_FIELDS.map((field) => csvField(record[field])).join(",")}\n`,
  end: () => "",
};

export const PRINTERS: Readonly<Record<OutputFormat, RecordPrinter>> = {
  md: markdown,
  json,
  jsonl: jsonLines,
  csv,
};

function padded(text: (column: Column) => string): (column: Column) => string {
  return (column) =>
    column.isNumber
      ? text(column).padStart(column.width)
      : text(column).replaceAll("|", "\\|").padEnd(column.width);
}

function testName({ n_prompt, n_gen, n_depth }: BenchRecord): string {
  return workloadName({ nPrompt: n_prompt, nGen: n_gen, nDepth: n_depth });
}

/** What decoding reads of the weights, as a share of what the device can read at most. */
function bandwidthShare({ weight_gb_s, read_gb_s }: BenchRecord): string {
  if (weight_gb_s === null || read_gb_s === null) return "";
  return `${(weight_gb_s / read_gb_s * 100).toFixed(0)}%`;
}

/** Always quoted, as RFC 4180 allows; null is empty. */
function csvField(value: string | number | null): string {
  return `"${String(value ?? "").replaceAll('"', '""')}"`;
}

/** In the units of llama-bench's table: `727.75 MiB`, `1.22 GiB`. */
function binaryBytes(bytes: number): string {
  const [scale, unit] = bytes >= 2 ** 30
    ? [2 ** 30, "GiB"]
    : bytes >= 2 ** 20
    ? [2 ** 20, "MiB"]
    : [2 ** 10, "KiB"];
  return `${(bytes / scale).toFixed(2)} ${unit}`;
}

/** `1.24 B`, `134.52 M` */
function count(parameters: number): string {
  const [scale, unit] = parameters >= 1e9
    ? [1e9, "B"]
    : parameters >= 1e6
    ? [1e6, "M"]
    : [1e3, "K"];
  return `${(parameters / scale).toFixed(2)} ${unit}`;
}
