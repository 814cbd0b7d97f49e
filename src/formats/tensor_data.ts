import { tensorBytes, type TensorType } from "./tensor_info.ts";

/** A tensor to be written into a model file. */
export interface TensorData {
  readonly name: string;
  readonly type: TensorType;
  /** Row-major, outermost dimension first. */
  readonly shape: readonly number[];
  /** The stored bytes, or a function that generates them in parts when they are written. */
  readonly data: Uint8Array | (() => Iterable<Uint8Array>);
}

/** Creates a tensor of float32 values. */
export function float32Tensor(
  name: string,
  shape: readonly number[],
  values: ArrayLike<number>,
): TensorData {
  return { name, type: "F32", shape, data: new Uint8Array(Float32Array.from(values).buffer) };
}

/** Returns the size of a tensor. Throws for an impossible shape or data of another length. */
export function storedBytes(tensor: Omit<TensorData, "data"> & Partial<TensorData>): number {
  const bytes = tensorBytes(tensor.type, tensor.shape);
  if (typeof bytes === "string") throw new Error(`${tensor.name}: ${bytes}`);
  if (tensor.data instanceof Uint8Array && tensor.data.length !== bytes) {
    throw new Error(`${tensor.name} takes ${bytes} bytes, not ${tensor.data.length}`);
  }
  return bytes;
}

/**
 * Yields the stored bytes of a tensor. Throws if a function generates too many or too few bytes.
 */
export function* dataParts(tensor: TensorData): Generator<Uint8Array> {
  if (tensor.data instanceof Uint8Array) {
    yield tensor.data;
    return;
  }
  const bytes = storedBytes(tensor);
  let made = 0;
  for (const part of tensor.data()) {
    made += part.length;
    yield part;
  }
  if (made !== bytes) throw new Error(`${tensor.name}: ${made} bytes, not ${bytes}`);
}

/** Writes the parts of a file one after another, each generated when it is needed. */
export function writeParts(path: string, parts: Iterable<Uint8Array>): void {
  using file = Deno.openSync(path, { write: true, create: true, truncate: true });
  for (const part of parts) {
    let done = 0;
    while (done < part.length) done += file.writeSync(part.subarray(done));
  }
}
