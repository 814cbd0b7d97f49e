/** `forge run --profile`: times by operation, and the trace. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { emulatedGpu, emulatedGpuUnavailable } from "../cuda/emulated_gpu.ts";
import { emulatedMetal, emulatedMetalUnavailable } from "../metal/emulated_metal.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { forge } from "./forge.ts";

/** A row of the table: label, times a step, microseconds a step and share in percent. */
function rowOf(table: string, label: string): { count: number; us: number; share: number } {
  const line = table.split("\n").find((text) => text.startsWith(`  ${label} `));
  assert(line !== undefined, `no row ${label} in\n${table}`);
  const [count, us, share] = line.slice(label.length + 2).trim().split(/\s+/);
  return { count: Number(count), us: Number(us), share: Number.parseFloat(share!) };
}

for (const device of ["cpu", "reference"]) {
  Deno.test(`--profile prints where prefill and decode spend their time on ${device}`, async () => {
    const prompt =
      "Once upon a time there was a little girl who had a big red ball and a small dog";
    const args = ["run", "--device", device, "-p", prompt, "-n", "8", "--temp", "0"];
    const plain = await forge([...args, "--speculate", "off"]);
    const { code, stdout, stderr } = await forge([...args, "--speculate", "off", "--profile"]);
    assertEquals([code, stdout], [0, plain.stdout]);
    const [prefill, decode] = stderr.split(/^(?=decode: )/m);
    assertMatch(prefill!, /^prefill: \d+ tokens in 1 step, /m);
    assertMatch(decode!, /^decode: 7 tokens in 7 steps, /m);
    const attention = rowOf(decode!, "attention");
    assert(attention.count >= 1 && attention.us > 0 && attention.share < 100, decode);
    const shares = [...decode!.matchAll(/ (\d+\.\d)%/g)].map(([, text]) => Number(text));
    assert(shares.every((share) => share >= 0), decode);
  });
}

Deno.test("--profile=FILE writes a trace whose operations lie in their runs", async () => {
  using folder = new TempFolder();
  const path = folder.at("trace.json");
  const { code, stderr } = await forge(["run", "-p", "Once", "-n", "4", `--profile=${path}`]);
  assertEquals(code, 0, stderr);
  const { traceEvents } = JSON.parse(Deno.readTextFileSync(path));
  const runs = traceEvents.filter(({ cat }: { cat: string }) => cat === "run");
  const operations = traceEvents.filter(({ cat }: { cat: string }) => cat === "operation");
  assert(runs.length >= 1 && operations.length > 10);
  for (const { ts, dur, name, args } of operations) {
    assert(
      runs.some((run: { ts: number; dur: number }) => run.ts <= ts && ts + dur <= run.ts + run.dur),
      `${name} at ${ts} is in no run`,
    );
    assert(args.bytes > 0 && args.flops >= 0, name);
  }
  const product = operations.find(({ name }: { name: string }) => name === "matmul");
  const [, rows, cols] = /^(\d+) x (\d+) \w+/.exec(product.args.matrix)!;
  const tokens = runs[0].args.tokens;
  assert(tokens >= 1);
  assertEquals(product.args.flops, 2 * Number(rows) * Number(cols) * tokens);
});

Deno.test("--profile needs no value, and a folder that is missing is an error before the run", async () => {
  const missing = await forge(["run", "-p", "Once", "--profile=/nowhere/at/all/trace.json"]);
  assertEquals([missing.code, missing.stdout], [1, ""]);
  assertStringIncludes(missing.stderr, 'cannot write "/nowhere/at/all/trace.json"');
});

/**
 * Names of the kernels of each operation. A kernel that computes a norm, a product and a gated unit
 * is one of the product.
 */
const KERNELS: Readonly<Record<string, RegExp>> = {
  embed: /^embed/,
  rms_norm: /rms_norm$/,
  matmul: /mat|gemm|qkv|^convert_/,
  rope_table: /^rope_table$/,
  rope_append: /^rope_append/,
  attention: /attention/,
  gather_outputs: /^gather_outputs$/,
  sample: /logits|maxima|softmax|sample|argmax|top_k/,
};

for (
  const [device, unavailable, environment] of [
    ["cuda", emulatedGpuUnavailable(), emulatedGpu],
    ["metal", emulatedMetalUnavailable(), emulatedMetal],
  ] as const
) {
  Deno.test({
    name: `--profile times each kernel on an emulated ${device} device`,
    ignore: unavailable !== undefined,
    fn: async () => {
      using folder = new TempFolder();
      const path = folder.at("trace.json");
      const env = await environment();
      const args = ["run", "--device", device, "-p", "Once", "-n", "3", "--temp", "0"];
      const plain = await forge(args, { env });
      const { code, stdout, stderr } = await forge([...args, `--profile=${path}`], { env });
      assertEquals([code, stdout], [0, plain.stdout], stderr);
      assertMatch(stderr, /^decode: 2 tokens in 2 steps, /m);
      const { traceEvents } = JSON.parse(Deno.readTextFileSync(path));
      const operations = traceEvents.filter(({ cat }: { cat: string }) => cat === "operation");
      assert(operations.filter(({ name }: { name: string }) => name === "matmul").length > 10);
      for (const { name, args: { kernel } } of operations) {
        assert(KERNELS[name]?.test(kernel), `${kernel} is a kernel of ${name}`);
      }
      assert(operations.every(({ dur }: { dur: number }) => dur > 0));
    },
  });
}
