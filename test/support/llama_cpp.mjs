// Evaluates prompts with llama.cpp, for Node: reads jobs from stdin and prints the results. The argument
// is the path of the module of node-llama-cpp, which Node would not find from here.
import process from "node:process";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const { getLlama, LlamaLogLevel } = await import(pathToFileURL(process.argv[2]).href);
const options = { gpu: false, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error };
const llama = await getLlama(options);
const results = [];
for (const { path, prompt } of JSON.parse(await text(process.stdin))) {
  const model = await llama.loadModel({ modelPath: path, gpuLayers: 0 });
  const context = await model.createContext({ contextSize: 128, threads: 1 });
  const tokens = typeof prompt === "string" ? [...model.tokenize(prompt, false)] : prompt;
  const last = tokens.length - 1;
  const input = tokens.map((token, i) =>
    i < last ? token : [token, { generateNext: { probabilities: true } }]
  );
  const steps = await context.getSequence().controlledEvaluate(input);
  const probabilities = [...steps[last].next.probabilities];
  results.push({ tokens, probabilities });
  await context.dispose();
  await model.dispose();
}
process.stdout.write(JSON.stringify(results), () => process.exit(0));
