/**
 * Runs tests of files as often as asked, in one process: `test_process.ts GPU FILE...`. GPU is the
 * emulated device on which all tests run, with the options of its driver, such as `cuda
 * architecture=90`, or empty. Requests come on stdin, answers go to stdout.
 */
import { resolve } from "@std/path";
import { emulatedGpu } from "../cuda/emulated_gpu.ts";
import { emulatedMetal } from "../metal/emulated_metal.ts";
import { switchOn, takeEvaluated } from "./switch_memory.ts";

/** Precedes every answer, to tell it from what tests print. */
export const ANSWER_MARK = "\u0001";

/** The first line of a process: its tests, and the switches evaluated while modules loaded. */
export interface Loaded {
  readonly tests: readonly string[];
  readonly evaluated: readonly number[];
}

/** Asks for the switches that a test evaluates. */
export interface RecordRequest {
  readonly record: string;
}

/** The answer to a {@linkcode RecordRequest}. */
export interface Recorded {
  readonly passed: boolean;
  readonly ms: number;
  readonly evaluated: readonly number[];
}

/** Asks for the first of some tests that fails with a switch on. */
export interface JudgeRequest {
  readonly id: number;
  readonly tests: readonly string[];
}

/** The answer to a {@linkcode JudgeRequest}. */
export interface Verdict {
  readonly failed?: string;
  /** False if that test also fails with the switch off again. */
  readonly recovers: boolean;
}

type Body = (context: unknown) => unknown;
type Definition = Readonly<{ name: string; ignore?: boolean; fn: Body }>;

/** The last rejection that no test handled. */
let stray: unknown;
const tests = new Map<string, Body>();

/** Registers the tests of a file. */
async function load(file: string): Promise<void> {
  const define = (first: string | Definition, second?: Body | Partial<Definition>) => {
    const { name, ignore, fn } = typeof first === "object"
      ? first
      : { name: first, ...(typeof second === "object" ? second : { fn: second }) } as Definition;
    let key = `${file}: ${name}`;
    while (tests.has(key)) key += " again";
    if (ignore !== true) tests.set(key, fn);
  };
  Object.defineProperty(Deno, "test", { value: define, configurable: true });
  await import(`file://${resolve(file)}`);
}

/** Runs a test; returns what failed, or undefined. */
async function failureOf(test: string): Promise<unknown> {
  const variables = Deno.env.toObject();
  let failure: unknown;
  stray = undefined;
  const step = async (first: string | Definition, second?: Body) => {
    const { name, ignore, fn } = typeof first === "object"
      ? first
      : { name: first, fn: second!, ignore: false };
    try {
      if (ignore !== true) await fn({ name, step });
    } catch (error) {
      failure ??= error ?? "nothing was thrown";
    }
  };
  await step(test, tests.get(test)!);
  // Rejections that nothing handles are reported after the current task.
  await new Promise((resolve) => setTimeout(resolve));
  for (const variable of Object.keys(Deno.env.toObject())) {
    if (!(variable in variables)) Deno.env.delete(variable);
  }
  return failure ?? stray;
}

async function record(test: string): Promise<Recorded> {
  takeEvaluated();
  const start = performance.now();
  const passed = await failureOf(test) === undefined;
  return { passed, ms: performance.now() - start, evaluated: takeEvaluated() };
}

async function judge(id: number, chosen: readonly string[]): Promise<Verdict> {
  switchOn(id);
  for (const test of chosen) {
    if (await failureOf(test) === undefined) continue;
    switchOn(-1);
    return { failed: test, recovers: await failureOf(test) === undefined };
  }
  switchOn(-1);
  return { recovers: true };
}

async function say(value: Loaded | Recorded | Verdict): Promise<void> {
  const bytes = new TextEncoder().encode(`\n${ANSWER_MARK}${JSON.stringify(value)}\n`);
  for (let at = 0; at < bytes.length;) at += await Deno.stdout.write(bytes.subarray(at));
}

/** Makes an emulated GPU the device of all tests. */
async function useGpu(gpu: string): Promise<void> {
  const [kind = "", options = ""] = gpu.split(" ");
  const variables = {
    FORGE_TEST_DEVICES: kind,
    FORGE_TEST_EMULATED: "1",
    ...await (kind === "metal" ? emulatedMetal() : emulatedGpu()),
    [`FORGE_FAKE_${kind.toUpperCase()}`]: options,
  };
  for (const [name, value] of Object.entries(variables)) Deno.env.set(name, value);
}

async function main([gpu = "", ...files]: readonly string[]): Promise<void> {
  if (gpu !== "") await useGpu(gpu);
  addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    stray = event.reason;
  });
  for (const file of files) await load(file);
  await say({ tests: [...tests.keys()], evaluated: takeEvaluated() });
  let pending = "";
  for await (const chunk of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    pending += chunk;
    for (let end = pending.indexOf("\n"); end >= 0; end = pending.indexOf("\n")) {
      const request = JSON.parse(pending.slice(0, end)) as RecordRequest | JudgeRequest;
      pending = pending.slice(end + 1);
      await say(
        "id" in request ? await judge(request.id, request.tests) : await record(request.record),
      );
    }
  }
}

if (import.meta.main) await main(Deno.args);
