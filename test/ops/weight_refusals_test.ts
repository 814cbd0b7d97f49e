/** Weights and files that are refused. */
import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import type { Weight } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import type { TensorInfo, TensorType } from "../../src/formats/tensor_info.ts";
import { devices, deviceTest, openDevice } from "../support/devices.ts";
import { matrixOf } from "../support/matrix.ts";
import { StepGraph } from "../support/step_graph.ts";
import { heldFiles, TempFolder } from "../support/temp_folder.ts";

deviceTest("uploads of the wrong size or shape", (device) => {
  const refused: [message: string, type: TensorType, rows: number, cols: number, bytes: number][] =
    [
      ["needs 48 bytes, got 47", "F32", 3, 4, 47],
      ["needs 48 bytes, got 49", "F32", 3, 4, 49],
      ["needs 24 bytes, got 48", "F16", 3, 4, 48],
      ["needs 34 bytes, got 0", "Q8_0", 1, 32, 0],
      ["31 columns are no multiple of the 32 elements in a block of Q8_0", "Q8_0", 1, 31, 34],
      ["128 columns are no multiple of the 256 elements in a block of Q4_K", "Q4_K", 1, 128, 72],
      ["a weight of 0 x 4", "F32", 0, 4, 0],
      ["a weight of 4 x 0", "F32", 4, 0, 0],
      ["columns may be 1 to 268435456", "F32", 1, 2 ** 28 + 1, 16],
      ["is too large", "F32", 2 ** 62, 4, 16],
      ["forge cannot compute with weights of type I32", "I32", 1, 4, 16],
    ];
  for (const [message, type, rows, cols, bytes] of refused) {
    const data = new Uint8Array(bytes);
    assertThrows(() => device.uploadWeight(type, rows, cols, data), ForgeError, message);
  }
});

deviceTest("rows outside the weight", (device) => {
  const weight = device.uploadWeight("F32", 3, 4, new Uint8Array(48));
  const past = "rows [0, 0 + 4) of a weight of 3";
  assertThrows(() => device.readWeight(weight, 0, 4), ForgeError, past);
  assertThrows(() => device.readWeight(weight, 4, 0), ForgeError, "of a weight of 3");
  assertThrows(() => device.readWeight(weight, 2 ** 53, 1), ForgeError, "of a weight of 3");
  assertEquals(device.readWeight(weight, 3, 0).length, 0);
  const narrow: Weight = { ...weight, cols: 3 };
  assertThrows(() => device.readWeight(narrow, 0, 3), ForgeError, "too small for 3 rows of 4");
});

deviceTest("tensors outside their file", (device) => {
  using folder = new TempFolder();
  const file = folder.write("weights.bin", new Uint8Array(100));
  const tensor: TensorInfo = { name: "t", type: "F32", shape: [5, 5], file, offset: 0, bytes: 100 };
  assertEquals(device.mapWeight([{ tensor }], 5).rows, 5);
  assertEquals(device.mapWeight([{ tensor, firstRow: 4 }], 5).rows, 1);
  const refused: [message: string, part: Parameters<typeof device.mapWeight>[0][0]][] = [
    ["passes the file's end at 100", { tensor: { ...tensor, offset: 1 } }],
    ["passes the file's end at 100", { tensor, nRows: 6 }],
    ["passes the file's end at 100", { tensor, firstRow: 1, nRows: 5 }],
    ["passes the file's end at 100", { tensor: { ...tensor, offset: 2 ** 52 } }],
    ["a weight of 0 x 5", { tensor, nRows: 0 }],
  ];
  for (const [message, part] of refused) {
    assertThrows(() => device.mapWeight([part], 5), ForgeError, message);
  }
  assertThrows(() => device.mapWeight([], 5), ForgeError, "a weight of 0 parts");
});

deviceTest("columns outside a tensor, and parts of blocks", (device) => {
  using folder = new TempFolder();
  const floats = Float32Array.from({ length: 64 }, (_, i) => i);
  const file = folder.write("weights.bin", new Uint8Array(floats.buffer));
  const place = { name: "t", file, offset: 0 } as const;
  const matrix: TensorInfo = { ...place, type: "F32", shape: [16, 4], bytes: 256 };
  const blocks: TensorInfo = { ...place, type: "Q8_0", shape: [3, 64], bytes: 204 };
  const map = (tensor: TensorInfo, ...columns: [first: number, count: number]) =>
    device.mapWeight([{ tensor, columns }], columns[1]);
  assertEquals([...device.readWeight(map(matrix, 0, 1), 0, 3)], [0, 4, 8]);
  assertEquals([...device.readWeight(map(matrix, 3, 1), 1, 2)], [7, 11]);
  assertEquals([...device.readWeight(map(matrix, 1, 3), 15, 1)], [61, 62, 63]);
  assertEquals(map(blocks, 32, 32).cols, 32);
  const refused: [tensor: TensorInfo, first: number, count: number][] = [
    [matrix, 1, 0],
    [matrix, 0, 5],
    [matrix, 3, 2],
    [matrix, 5, 1],
    [matrix, 2 ** 53, 1],
    [matrix, 1, 2 ** 53],
    [blocks, 16, 32],
    [blocks, 0, 16],
  ];
  for (const [tensor, ...columns] of refused) {
    const [first, count] = columns;
    const message = `columns [${first}, ${first} + ${count}) of ${tensor.shape[1]}`;
    assertThrows(() => map(tensor, ...columns), ForgeError, message);
  }
});

deviceTest("files that cannot be mapped", (device) => {
  using folder = new TempFolder();
  const refused: [message: string, file: string][] = [
    ["No such file", folder.at("missing.bin")],
    ["is empty", folder.write("empty.bin", "")],
    ["not a regular file", folder.path],
  ];
  for (const [message, file] of refused) {
    const tensor: TensorInfo = { name: "t", type: "F32", shape: [1], file, offset: 0, bytes: 4 };
    const error = assertThrows(() => device.mapWeight([{ tensor }], 1), ForgeError, message);
    assertEquals(error.code, "bad_model");
    assertEquals(error.message.includes(file), true, error.message);
  }
});

for (const device of devices) {
  Deno.test({
    name: `a closed device, and a refused weight, hold no file (${device.name})`,
    ignore: Deno.build.os !== "linux",
    fn() {
      using folder = new TempFolder();
      const file = folder.write("weights.bin", new Uint8Array(100));
      const tensor = (file: string, offset: number): TensorInfo => {
        return { name: "t", type: "F32", shape: [5, 5], file, offset, bytes: 100 };
      };
      {
        using backend = openDevice(device);
        const refuse = (file: string) =>
          assertThrows(() => backend.mapWeight([{ tensor: tensor(file, 1) }], 5), ForgeError);
        refuse(folder.write("empty.bin", ""));
        refuse(folder.path);
        assertEquals(heldFiles(folder.path), []);
        backend.mapWeight([{ tensor: tensor(file, 0) }], 5);
        refuse(file);
      }
      assertEquals(heldFiles(folder.path), []);
    },
  });
}

for (const device of devices.filter(({ kind }) => kind === "reference" || kind === "cpu")) {
  Deno.test({
    name: `a file that lost a page stays lost when it is whole again (${device.name})`,
    ignore: Deno.build.os !== "linux",
    fn() {
      using folder = new TempFolder();
      const rows = 3, cols = 1024, time = 1e9;
      const bytes = new Uint8Array(4 * rows * cols);
      const file = folder.write("weights.bin", bytes);
      const tensor = { name: "t", type: "F32", shape: [rows, cols], file, offset: 0 } as const;
      Deno.utimeSync(file, time, time);
      using backend = openDevice(device);
      const part = { tensor: { ...tensor, bytes: bytes.length } };
      const read = () => {
        const weight = backend.mapWeight([part], cols);
        return backend.readWeight(weight, 0, rows);
      };
      assertEquals(read().length, rows * cols);
      Deno.truncateSync(file);
      assertThrows(read, ForgeError, "was written to while it was in use");
      Deno.writeFileSync(file, bytes);
      Deno.utimeSync(file, time, time);
      assertThrows(read, ForgeError, "could not be read from its disk");
    },
  });
}

deviceTest("a file that changes during a recording is noticed at its end", async (device) => {
  using folder = new TempFolder();
  const rows = 3, cols = 8;
  const file = folder.write("weights.bin", new Uint8Array(4 * rows * cols));
  const tensor = { name: "t", type: "F32", shape: [rows, cols], file, offset: 0 } as const;
  const weight = device.mapWeight([{ tensor: { ...tensor, bytes: 4 * rows * cols } }], cols);
  const recorder = device.record({ maxTokens: 1, maxOutputs: 1, maxSequences: 1, maxPages: 1 });
  const x = new StepGraph(device, recorder).input(matrixOf(1, cols, () => 1));
  recorder.keep(recorder.matmul(x, weight));
  Deno.utimeSync(file, 1e9, 1e9);
  const message = "was written to while it was in use";
  assertEquals(
    (await assertRejects(() => recorder.finish(), ForgeError, message)).code,
    "bad_model",
  );
});
