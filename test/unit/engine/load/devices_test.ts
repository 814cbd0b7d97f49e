/** Tests which devices options name, how they divide a processor, and which options are refused. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { DeviceGroup, devicesOf } from "../../../../src/backend.ts";
import {
  neededLibraries,
  openBackend,
  openBackends,
  openLocalDevices,
} from "../../../../src/engine/load/open_backend.ts";
import {
  asLoaded,
  countReplicas,
  type LoadOptions,
  resolveContext,
  resolveDivision,
  resolveKvType,
  resolveParallel,
} from "../../../../src/engine/load/options.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { openCheckpoint } from "../../../../src/formats/checkpoint.ts";
import { planModel } from "../../../../src/engine/load/plan_model.ts";
import { loadModel } from "../../../../src/models/registry.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeForeseeingLlama, writeRandomLlama } from "../../../support/tiny_llama.ts";
import { FakeBackend, fakeCheckpoint } from "../../models/fakes.ts";

function assertRefused(work: () => unknown, message: string): void {
  const error = assertThrows(work, ForgeError);
  assertEquals([error.code, error.message], ["usage", message]);
}

/** Returns the threads and bounds of the devices of each replica. */
function opened(options: LoadOptions) {
  const backends = openBackends(options);
  try {
    return backends.map((backend) => {
      const devices = devicesOf(backend);
      const division = backend instanceof DeviceGroup ? [backend.nRanks, backend.nStages] : [];
      const { kind, info: { threads } } = devices[0]!;
      for (const { info, memoryBound } of devices) {
        assertEquals([info.threads, memoryBound], [threads, devices[0]!.memoryBound]);
      }
      return [kind, devices.length, threads, ...division];
    });
  } finally {
    for (const backend of backends) backend.close();
  }
}

Deno.test("replicas and their parts divide the threads of a processor", () => {
  const device = "cpu";
  assertEquals(opened({ device, threads: 3 }), [["cpu", 1, 3]]);
  assertEquals(opened({ device: "reference", threads: 3, dataParallel: 2 }).length, 2);
  assertEquals(opened({ devices: ["cpu"], threads: 2 }), [["cpu", 1, 2]]);
  const two = [["cpu", 1, 2], ["cpu", 1, 2]];
  assertEquals(opened({ device, threads: 5, dataParallel: 2 }), two);
  assertEquals(opened({ devices: ["cpu", "cpu"], threads: 5 }), two);
  assertEquals(opened({ devices: ["cpu", "cpu"], threads: 5, dataParallel: 2 }), two);
  assertEquals(opened({ device, threads: 4, tensorParallel: 3 }), [["cpu", 3, 1, 3, 1]]);
  const staged = { tensorParallel: 2, pipelineParallel: 2, threads: 24 };
  const three = Array(3).fill(["cpu", 4, 2, 2, 2]);
  assertEquals(opened({ device, dataParallel: 3, ...staged }), three);
  assertEquals(opened({ devices: Array(12).fill("cpu"), ...staged }), three);
});

Deno.test("devices on one processor divide its memory", () => {
  const memory = 2 ** 30 + 1;
  for (const [count, expected] of [[1, memory], [2, 2 ** 29], [3, 357913941]] as const) {
    const backends = openBackends({ devices: Array(count).fill("cpu"), threads: 3, memory });
    for (const backend of backends) {
      assertEquals(backend.memoryBound, expected);
      backend.close();
    }
  }
});

Deno.test("devices that do not match what is asked for are refused", () => {
  const cases: [LoadOptions, string][] = [
    [{ device: "cpu", devices: ["cpu"] }, 'give a device ("cpu") or devices, not both'],
    [{ devices: [] }, "0 devices are given; valid is 1 to 64"],
    [{ devices: Array(65).fill("cpu") }, "65 devices are given; valid is 1 to 64"],
    [
      { devices: ["cpu", "cpu"], dataParallel: 1 },
      '1 replicas need 1 devices, but 2 are given: "cpu", "cpu"',
    ],
    [
      { devices: ["cpu"], tensorParallel: 2, pipelineParallel: 2 },
      '1 replica of 4 parts need a multiple of 4 devices, but 1 are given: "cpu"',
    ],
    [
      { devices: ["cpu", "cpu"], tensorParallel: 2, dataParallel: 2 },
      '2 replicas of 2 parts need 4 devices, but 2 are given: "cpu", "cpu"',
    ],
    [
      { device: "cpu", dataParallel: 13, tensorParallel: 5 },
      "13 replicas of 5 parts take 65 devices; valid is 64",
    ],
    [
      { device: "cuda:1", dataParallel: 2 },
      '"cuda:1" is one device for 2 replicas; name 2 devices, such as cuda:0,cuda:1',
    ],
    [
      { device: "cpu", dataParallel: 0 },
      "dataParallel is 0; valid is a whole number from 1 to 64",
    ],
    [{ device: "tpu" }, unknown("tpu")],
    [{ devices: ["cpu", "tpu:0"] }, unknown("tpu:0")],
    ...[
      ["cuda:0", "cpu"],
      ["cuda:0", "cuda:0"],
      ["cuda", "cuda:0"],
      ["cuda:0", "metal:1"],
      ["cpu", "reference"],
      ["cpu", "cpu:sse"],
    ].map((devices): [LoadOptions, string] => [
      { devices },
      `devices are ${devices.map((name) => `"${name}"`).join(", ")}; valid are different GPUs of ` +
      "one kind by their index, such as cuda:0,cuda:1, or one processor repeated, such as cpu,cpu",
    ]),
    [
      { device: "cpu", threads: 2, dataParallel: 3 },
      "2 threads cannot be divided among 3 devices; valid is at most 2",
    ],
  ];
  for (const [options, message] of cases) assertRefused(() => openBackends(options), message);
  assertRefused(
    () => openBackend("cpu", 1, { memory: 0 }),
    `memory is 0; valid is a whole number from 1 to ${Number.MAX_SAFE_INTEGER}`,
  );
});

function unknown(device: string): string {
  return `unknown device "${device}"; valid are auto, cpu, cpu:VARIANT, cuda, cuda:N, metal or ` +
    "reference";
}

Deno.test("several processes divide CUDA devices evenly", () => {
  const group = { index: 0, host: "localhost", port: 1, secret: "0123456789abcdef" };
  const open = (options: LoadOptions, count = 2) => () =>
    openLocalDevices({ ...options, processes: { ...group, count } });
  const sizes = { tensorParallel: 3, pipelineParallel: 2 };
  assertRefused(
    open({ ...sizes, device: "cpu" }, 4),
    "4 processes cannot have 6 devices (tensorParallel 3, pipelineParallel 2); valid is a multiple " +
      "of 4",
  );
  const only = "several processes divide a model among CUDA devices; the devices of this one are ";
  assertRefused(open({ ...sizes, device: "cpu" }), `${only}"cpu"`);
  assertRefused(
    open({ ...sizes, devices: ["cuda:0", "cuda:1", "cpu"] }),
    `${only}"cuda:0", "cuda:1", "cpu"`,
  );
  const given = "each process has 3 devices, but";
  assertRefused(open({ ...sizes, device: "cuda:0" }), `${given} 1 are given: "cuda:0"`);
  assertRefused(
    open({ ...sizes, devices: ["cuda:0", "cuda:1"] }),
    `${given} 2 are given: "cuda:0", "cuda:1"`,
  );
});

Deno.test("options of loading have defaults and ranges", () => {
  assertEquals(["cpu", "cpu:avx2", "reference", "cuda:1"].map(neededLibraries), [
    ["cpu"],
    ["cpu"],
    ["reference"],
    ["cuda"],
  ]);
  assertEquals(neededLibraries("auto").at(-1), "cpu");
  assertEquals([undefined, 1, 256].map(resolveParallel), [32, 1, 256]);
  for (const bad of [0, 257, 1.5]) {
    assertRefused(
      () => resolveParallel(bad),
      `parallel is ${bad}; valid is a whole number from 1 to 256`,
    );
  }
  assertEquals([resolveContext(undefined, 32768), resolveContext(undefined, 32769)], [
    32768,
    32768,
  ]);
  assertEquals([resolveContext(40000, 40000), resolveContext(undefined, 9)], [40000, 9]);
  assertEquals(
    (["cuda", "metal", "cpu", "reference"] as const).map((kind) => resolveKvType(undefined, kind)),
    ["F16", "F16", "F16", "F32"],
  );
  assertEquals(resolveKvType("Q8_0", "reference"), "Q8_0");
  assertEquals(resolveDivision({}), { ranks: 1, stages: 1 });
  assertEquals(resolveDivision({ tensorParallel: 64, pipelineParallel: 2 }), {
    ranks: 64,
    stages: 2,
  });
  for (const name of ["tensorParallel", "pipelineParallel"]) {
    for (const bad of [0, 65]) {
      assertRefused(
        () => resolveDivision({ [name]: bad }),
        `${name} is ${bad}; valid is a whole number from 1 to 64`,
      );
    }
  }
  const devices = Array<string>(12).fill("cpu"), sizes = { tensorParallel: 3, pipelineParallel: 2 };
  assertEquals(
    [{}, sizes, { dataParallel: 3 }, { devices }, { devices, ...sizes }].map(countReplicas),
    [1, 1, 3, 12, 2],
  );
  const stored = fakeCheckpoint({});
  assert(asLoaded(stored, {}) === stored);
  assertEquals(asLoaded(stored, { chatTemplate: "x" }), { ...stored, chatTemplate: "x" });
  const error = assertThrows(() => asLoaded(stored, { quantize: "Q9" as "Q4_0" }), ForgeError);
  assert(error.message.startsWith('quantize is "Q9"; valid is "'), error.message);
});

Deno.test("a plan has the weights that loading maps, in all and on each device", () => {
  using folder = new TempFolder();
  for (const write of [writeRandomLlama, writeForeseeingLlama]) {
    write(folder.path);
    const checkpoint = openCheckpoint(folder.path);
    for (const drafts of [false, true]) {
      const plan = planModel(checkpoint, drafts);
      const { lm, loaders } = loadModel(new FakeBackend(), checkpoint, { drafts });
      const bytes = loaders.map(({ mappedBytes }) => mappedBytes);
      assertEquals([plan.deviceBytes, plan.weightBytes], [bytes, bytes[0]]);
      assertEquals(plan.predicts, drafts && write === writeForeseeingLlama);
      const { vocabSize, hiddenSize, hasHead, contextLength, kvLayers, stateLayers } = lm;
      const facts = { vocabSize, hiddenSize, hasHead, contextLength, kvLayers, stateLayers };
      assertEquals({ ...plan, ...facts }, plan);
    }
    const halves = planModel(checkpoint, false, { ranks: 2, stages: 1 });
    const group = new DeviceGroup([new FakeBackend(), new FakeBackend()]);
    const { loaders } = loadModel(group, checkpoint, {});
    assertEquals(halves.deviceBytes, loaders.map(({ mappedBytes }) => mappedBytes));
    assertEquals(halves.weightBytes, halves.deviceBytes[0]! + halves.deviceBytes[1]!);
  }
});
