/** Writes safetensors files for tests and benchmarks. */
import { join } from "@std/path";
import {
  dataParts,
  storedBytes,
  type TensorData,
  writeParts,
} from "../../src/formats/tensor_data.ts";
import { joinParts } from "./parts.ts";

/** The contents of a safetensors file. */
export interface SafetensorsContents {
  readonly tensors: readonly TensorData[];
  /** Written as `__metadata__` if given. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/** The bytes of a safetensors file. */
export function encodeSafetensors(contents: SafetensorsContents): Uint8Array<ArrayBuffer> {
  return joinParts(safetensorsParts(contents));
}

/** Writes a safetensors file tensor by tensor, so that it may be larger than memory. */
function writeSafetensors(path: string, contents: SafetensorsContents): void {
  writeParts(path, safetensorsParts(contents));
}

/**
 * Writes a model folder: its other files (text unchanged, anything else as JSON), and its tensors
 * in model.safetensors or, if `shards` is more than 1, in that many files with an index.
 */
export function writeModelFolder(
  folder: string,
  files: Readonly<Record<string, unknown>>,
  tensors: readonly TensorData[],
  shards = 1,
): void {
  Deno.mkdirSync(folder, { recursive: true });
  for (const [name, value] of Object.entries(files)) {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    Deno.writeTextFileSync(join(folder, name), text);
  }
  if (shards === 1) {
    writeSafetensors(join(folder, "model.safetensors"), { tensors });
    return;
  }
  const weightMap: Record<string, string> = {};
  for (let shard = 0; shard < shards; shard++) {
    const name = `model-${fiveDigits(shard + 1)}-of-${fiveDigits(shards)}.safetensors`;
    const own = tensors.filter((_, index) => index % shards === shard);
    for (const tensor of own) weightMap[tensor.name] = name;
    writeSafetensors(join(folder, name), { tensors: own });
  }
  const index = { metadata: {}, weight_map: weightMap };
  Deno.writeTextFileSync(join(folder, "model.safetensors.index.json"), JSON.stringify(index));
}

function* safetensorsParts({ tensors, metadata }: SafetensorsContents): Generator<Uint8Array> {
  const header: Record<string, unknown> = metadata === undefined ? {} : { __metadata__: metadata };
  let offset = 0;
  for (const tensor of tensors) {
    const end = offset + storedBytes(tensor);
    header[tensor.name] = { dtype: tensor.type, shape: tensor.shape, data_offsets: [offset, end] };
    offset = end;
  }
  yield withLength(JSON.stringify(header));
  for (const tensor of tensors) yield* dataParts(tensor);
}

/** A header after its length, padded with spaces so that the data is aligned to 8 bytes. */
export function withLength(header: string): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(header);
  const length = Math.ceil(text.length / 8) * 8;
  const bytes = new Uint8Array(8 + length).fill(0x20, 8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(length), true);
  bytes.set(text, 8);
  return bytes;
}

function fiveDigits(value: number): string {
  return String(value).padStart(5, "0");
}
