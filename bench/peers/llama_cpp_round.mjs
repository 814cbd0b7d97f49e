// One round of llama.cpp, for Node: reads a task from stdin, prints a result. The argument is the file
// of the installed package, which Node would not find from here.
import process from "node:process";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const { getLlama, LlamaLogLevel } = await import(pathToFileURL(process.argv[2]).href);
const task = JSON.parse(await text(process.stdin));
const { prompt, nGen, threads } = task;
const llama = await getLlama({
  gpu: false,
  build: "never",
  skipDownload: true,
  maxThreads: threads,
  logLevel: LlamaLogLevel.error,
});
const model = await llama.loadModel({ modelPath: task.model, gpuLayers: 0 });
const context = await model.createContext({
  contextSize: prompt.length + nGen,
  batchSize: 512,
  sequences: 1,
  threads: { ideal: threads, min: threads },
});
const sequence = context.getSequence();

async function generate() {
  await sequence.clearHistory();
  const start = performance.now();
  let prefilled = start;
  let chosen = 0;
  let input = prompt;
  // An end token must not end the round, so that it is fed like any other.
  while (chosen < nGen) {
    for await (const token of sequence.evaluate(input, { temperature: 0, yieldEogToken: true })) {
      if (chosen++ === 0) prefilled = performance.now();
      input = [token];
      if (chosen === nGen) break;
    }
  }
  return { prefill_ms: prefilled - start, decode_ms: performance.now() - prefilled };
}

await generate();
console.log(JSON.stringify(await generate()));
process.exit(0);
