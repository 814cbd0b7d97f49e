/** Layers after pooling, computed on the host: of classification heads and of embedding models. */
import { join } from "node:path";
import { ForgeError } from "../../errors.ts";
import { InputFile } from "../../formats/file.ts";
import { quote } from "../../formats/quote.ts";
import { readSafetensors } from "../../formats/safetensors.ts";
import type { TensorInfo } from "../../formats/tensor_info.ts";
import type { DenseLayer } from "../../models/causal_lm.ts";
import type { DenseModule } from "./pooling.ts";

const ACTIVATIONS: Readonly<Record<DenseLayer["activation"], (x: number) => number>> = {
  identity: (x) => x,
  tanh: Math.tanh,
  gelu: (x) => x / 2 * (1 + erf(x / Math.SQRT2)),
  relu: (x) => Math.max(0, x),
  silu: (x) => x / (1 + Math.exp(-x)),
};

/** Passes a vector through layers. */
export function applyLayers(layers: readonly DenseLayer[], vector: Float32Array): Float32Array {
  return layers.reduce(applyLayer, vector);
}

function applyLayer(x: Float32Array, layer: DenseLayer): Float32Array {
  const { rows, cols, bias, norm } = layer;
  const weight = layer.weight();
  const activate = ACTIVATIONS[layer.activation];
  const y = Float64Array.from({ length: rows }, (_, row) => {
    let sum = bias?.[row] ?? 0;
    for (let i = 0, at = row * cols; i < cols; i++) sum += weight[at + i]! * x[i]!;
    return activate(sum);
  });
  if (norm === undefined) return Float32Array.from(y);
  const mean = y.reduce((sum, value) => sum + value, 0) / rows;
  const variance = y.reduce((sum, value) => sum + (value - mean) ** 2, 0) / rows;
  const scale = 1 / Math.sqrt(variance + norm.eps);
  return Float32Array.from(
    y,
    (value, i) => (value - mean) * scale * norm.weight[i]! + (norm.bias?.[i] ?? 0),
  );
}

/** Returns the error function, by a series whose terms are all positive. */
function erf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    term *= 2 * x * x / (2 * n + 1);
    sum += term;
  }
  return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum;
}

/**
 * Reads the layer of one of sentence-transformers' Dense modules.
 *
 * @throws {ForgeError} `bad_model` for missing or unfitting tensors
 */
export function readDenseModule(folder: string, module: DenseModule): DenseLayer {
  const { inputs: cols, outputs: rows, activation } = module;
  const path = join(folder, module.path, "model.safetensors");
  const { tensors } = readSafetensors(path);
  const read = (name: string, shape: readonly number[]) => {
    const tensor = tensors.get(name);
    if (tensor === undefined) {
      throw new ForgeError("bad_model", `${quote(path)} has no tensor ${quote(name)}`);
    }
    if (tensor.shape.join() !== shape.join()) {
      throw new ForgeError(
        "bad_model",
        `${quote(path)}: tensor ${
          quote(name)
        } has the shape [${tensor.shape}]; expected [${shape}]`,
      );
    }
    return readFloats(tensor);
  };
  const weight = read("linear.weight", [rows, cols]);
  const bias = module.bias ? read("linear.bias", [rows]) : undefined;
  return { rows, cols, weight: () => weight, bias, activation };
}

/** Reads a tensor of floats. */
function readFloats(tensor: TensorInfo): Float32Array {
  using file = InputFile.open(tensor.file);
  const bytes = new Uint8Array(tensor.bytes);
  file.readAt(tensor.offset, bytes);
  switch (tensor.type) {
    case "F32":
      return new Float32Array(bytes.buffer);
    case "F16":
      return Float32Array.from(new Float16Array(bytes.buffer));
    case "BF16":
      return new Float32Array(
        Uint32Array.from(new Uint16Array(bytes.buffer), (half) => half << 16).buffer,
      );
  }
  throw new ForgeError(
    "unsupported",
    `${quote(tensor.file)}: tensor ${
      quote(tensor.name)
    } is stored as ${tensor.type}; forge reads ` +
      "F32, F16 and BF16 there",
  );
}
