// One round of llama.cpp, for Node: reads a task from stdin and prints a result; see round.ts. The
// argument is the path of the installed package, which Node would not find from here.
//
// The timed calls use the package's native addon instead of its JavaScript API, which halves the
// speed when several sequences are decoded.
import { readFileSync } from "node:fs";
import process from "node:process";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const FIRST_PROMPT = 8;
const BATCH = 512;

const { getLlama, LlamaLogLevel } = await import(pathToFileURL(process.argv[2]).href);
const task = JSON.parse(await text(process.stdin));
const { tokens, nPrompt, nGen, nParallel, nParallelPrompt, nDepth, threads } = task;
const llama = await getLlama({
  gpu: false,
  build: "never",
  skipDownload: true,
  maxThreads: threads,
  logLevel: LlamaLogLevel.error,
});
const model = await llama.loadModel({ modelPath: task.model, gpuLayers: 0 });
const sampler = new llama._bindings.AddonSampler(model._model);
sampler.applyConfig({ temperature: 0 });

/** A context for a number of sequences and a length, with the addon's calls on it. */
class Session {
  static async open(contextSize, sequences = 1) {
    const session = new Session();
    session.context = await model.createContext({
      contextSize,
      batchSize: BATCH,
      sequences,
      flashAttention: true,
      threads: { ideal: threads, min: threads },
    });
    session.addon = session.context._ctx;
    session.addon.setThreads(threads);
    return session;
  }

  clear(sequence) {
    this.addon.disposeSequence(sequence.id);
    sequence.length = 0;
  }

  async prefill(sequence, prompt) {
    for (let at = 0; at < prompt.length; at += BATCH) {
      const chunk = Uint32Array.from(prompt.slice(at, at + BATCH));
      const outputs = at + BATCH >= prompt.length ? [chunk.length - 1] : [];
      this.addon.initBatch(chunk.length);
      const places = this.addon.addToBatch(
        sequence.id,
        sequence.length,
        chunk,
        Uint32Array.from(outputs),
      );
      await this.addon.decodeBatch();
      sequence.length += chunk.length;
      if (outputs.length > 0) sequence.next = await this.addon.sampleToken(places[0], sampler);
    }
  }

  async decode(sequences, count) {
    for (let i = 0; i < count; i++) {
      this.addon.initBatch(sequences.length);
      const places = sequences.map(({ id, length, next }) =>
        this.addon.addToBatch(id, length, Uint32Array.of(next), Uint32Array.of(0))[0]
      );
      await this.addon.decodeBatch();
      for (const [s, sequence] of sequences.entries()) {
        sequence.length++;
        sequence.next = await this.addon.sampleToken(places[s], sampler);
      }
    }
  }
}

const newSequence = (id = 0) => ({ id, length: 0, next: 0 });

async function timed(work) {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

function peakBytes() {
  try {
    const [, kilobytes] = /VmHWM:\s*(\d+)/.exec(readFileSync("/proc/self/status", "utf8"));
    return Number(kilobytes) * 1024;
  } catch {
    return process.resourceUsage().maxRSS * 1024;
  }
}

async function measureAlone() {
  const session = await Session.open(nPrompt + nGen);
  const sequence = newSequence();
  await session.prefill(sequence, tokens.slice(0, FIRST_PROMPT));
  console.log("first token");
  let [prefill_ms, decode_ms] = [0, 0];
  for (let time = 0; time < 2; time++) {
    session.clear(sequence);
    prefill_ms = await timed(() => session.prefill(sequence, tokens.slice(0, nPrompt)));
    decode_ms = await timed(() => session.decode([sequence], nGen - 1));
  }
  const peak_bytes = peakBytes();
  await session.context.dispose();
  return { prefill_ms, decode_ms, peak_bytes };
}

async function measureParallel() {
  const session = await Session.open(nParallelPrompt + nGen + 1, nParallel);
  const sequences = Array.from({ length: nParallel }, (_, id) => newSequence(id));
  for (const sequence of sequences) {
    await session.prefill(sequence, tokens.slice(sequence.id, sequence.id + nParallelPrompt));
  }
  await session.decode(sequences, 1);
  const parallel_ms = await timed(() => session.decode(sequences, nGen));
  await session.context.dispose();
  return { parallel_ms };
}

async function measureDepth() {
  const session = await Session.open(nDepth + nPrompt + nGen);
  const sequence = newSequence();
  await session.prefill(sequence, tokens.slice(0, nDepth));
  const prompt = tokens.slice(nDepth, nDepth + nPrompt);
  return {
    depth_prefill_ms: await timed(() => session.prefill(sequence, prompt)),
    depth_decode_ms: await timed(() => session.decode([sequence], nGen - 1)),
  };
}

const alone = await measureAlone();
const parallel = nParallel > 0 ? await measureParallel() : {};
const depth = nDepth > 0 ? await measureDepth() : {};
console.log(JSON.stringify({ ...alone, ...parallel, ...depth }));
process.exit(0);
