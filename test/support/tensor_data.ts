import { tensorBytes, type TensorType } from "../../src/formats/tensor_info.ts";

/** A tensor to be written into a model file. */
export interface TensorData {
  readonly name: string;
  readonly type: TensorType;
  /** Row-major, outermost dimension first. */
  readonly shape: readonly number[];
  /** The stored bytes; a function where they should be made only when they are written. */
  readonly data: Uint8Array | (() => Uint8Array);
}

/** A tensor of float32 values. */
export function float32Tensor(
  name: string,
  shape: readonly number[],
  values: ArrayLike<number>,
): TensorData {
  return { name, type: "F32", shape, data: new Uint8Array(Float32Array.from(values).buffer) };
}

/** Bytes the tensor takes. Throws where its shape is impossible or its data has another length. */
export function storedBytes(tensor: TensorData): number {
  const bytes = tensorBytes(tensor.type, tensor.shape);
  if (typeof bytes === "string") throw new Error(`${tensor.name}: ${bytes}`);
  if (tensor.data instanceof Uint8Array && tensor.data.length !== bytes) {
    throw new Error(`${tensor.name} takes ${bytes} bytes, not ${tensor.data.length}`);
  }
  return bytes;
}

/** The stored bytes of a tensor. Throws where a function returns the wrong number of them. */
export function materialize(tensor: TensorData): Uint8Array {
  if (tensor.data instanceof Uint8Array) return tensor.data;
  const data = tensor.data();
  const bytes = storedBytes(tensor);
  if (data.length !== bytes) throw new Error(`${tensor.name}: ${data.length} bytes, not ${bytes}`);
  return data;
}

/** Writes parts of a file one after another, each made only when it is its turn. */
export function writeParts(path: string, parts: Iterable<Uint8Array>): void {
  using file = Deno.openSync(path, { write: true, create: true, truncate: true });
  for (const part of parts) {
    let done = 0;
    while (done < part.length) done += file.writeSync(part.subarray(done));
  }
}

/** All parts as one array. */
export function joinParts(parts: Iterable<Uint8Array>): Uint8Array<ArrayBuffer> {
  const kept = [...parts];
  const whole = new Uint8Array(kept.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of kept) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
