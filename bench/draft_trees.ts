/**
 * Compares chains of draft tokens with trees of them, by what the best tree could gain: the ranks
 * of a text's tokens among those of the demo model's layer for multi-token prediction, and the
 * costs of steps by their rows.
 */
import process from "node:process";
import type { SamplingParams } from "../src/backend.ts";
import { openBackend } from "../src/engine/load/open_backend.ts";
import {
  resolveSampling,
  SAMPLING_DEFAULTS,
  samplingParams,
} from "../src/engine/request/sampling.ts";
import { type Chunk, Runner, UNSAMPLED } from "../src/engine/runner.ts";
import { ForgeError } from "../src/errors.ts";
import { openCheckpoint } from "../src/formats/checkpoint.ts";
import { bundledModel } from "../src/cli/model/model_path.ts";
import { load } from "../src/mod.ts";
import { loadModel } from "../src/models/registry.ts";

/** Deepest tree, children of a node, and most draft tokens of a step. */
const DEPTH = 5, WIDTH = 4, MOST_DRAFTED = 12;

const PROMPTS = ["fox", "dragon", "mouse", "boy"].map((hero) =>
  `Once upon a time, a little ${hero}`
);
const TOKENS = 160, CONTEXT = 512;

const TEMPERATURES = [0, 0.8];

/**
 * Shares of right first choices of weaker heads, whose other choices are those of the demo model's.
 */
const WEAKER = [0.75, 0.6, 0.45];

/** Share of the positions of a text at which a node of the tree is on its path, by ranks. */
type NodeRates = ReadonlyMap<string, number>;

/** Milliseconds of runs. */
interface Costs {
  /** Of steps with 1, 2, 3 and so on rows. */
  readonly steps: readonly number[];
  /** Of a step of the head for one token. */
  readonly draft: number;
  /** Of the pages of a branch. */
  readonly branch: number;
}

/**
 * Prints what trees could gain with these costs, and where rows cost nothing, as in a small step of
 * a GPU. A level of a tree is charged as one draft token.
 */
export async function benchTrees({ steps, draft, branch }: Costs, threads: number): Promise<void> {
  const shares = [...steps, draft].map((time) => (time / steps[0]!).toFixed(2));
  console.log(
    `a step of 1 to ${steps.length} rows, and a draft token, in steps of 1 row: ` +
      `${shares.join(" ")}; a branch ${(branch / steps[0]!).toFixed(3)}; ` +
      "the best chain and the best tree of draft tokens:",
  );
  const measured = await Promise.all(
    TEMPERATURES.map((temperature) => measureRates(temperature, threads)),
  );
  const heads = [
    ...measured.map((rates, i) => [`temperature ${TEMPERATURES[i]}`, rates] as const),
    ...WEAKER.map((first) => ["simulated", simulatedRates(measured[0]!, first)] as const),
  ];
  const free = new Array<number>(64).fill(steps[0]!);
  for (const [name, rates] of heads) {
    const compare = (steps: readonly number[]) => {
      const cost = ({ rows, depth, branches }: Growth) =>
        (steps[rows] ?? Infinity) + depth * draft + branches * branch;
      const [chain, tree] = [best(chainOf(rates), cost), best(treeOf(rates), cost)];
      const describe = ({ n, tokens, speed }: Best) =>
        `${n} drafted, ${tokens.toFixed(2)} tokens a step, ${(speed * steps[0]!).toFixed(2)}×`;
      const gain = 100 * (tree.speed / chain.speed - 1);
      return `chain ${describe(chain)}, tree ${describe(tree)} (+${gain.toFixed(1)}%)`;
    };
    const [first, second] = ["0", "1"].map((node) => (100 * (rates.get(node) ?? 0)).toFixed(0));
    console.log(`  ${name}: ${first}% first, ${second}% second`);
    console.log(`    ${compare(steps)}`);
    console.log(`    free rows: ${compare(free)}`);
  }
}

/**
 * Measures steps of a model and its head: the shortest of runs in turn. With one thread it takes
 * the time of the processor, which other programs do not lengthen.
 */
export async function measureCosts(
  runner: Runner,
  rounds: number,
  threads: number,
): Promise<Costs> {
  const now = () => {
    if (threads > 1) return performance.now();
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  };
  using table = runner.newSequence();
  const start = 64, token = 300;
  const chunk = (count: number): Chunk => {
    const outputs = Array.from({ length: count }, (_, row) => ({ ...UNSAMPLED, row }));
    return { table, tokens: new Int32Array(count).fill(token), start, outputs };
  };
  await runner.run([{ table, tokens: new Int32Array(start).fill(token), start: 0, outputs: [] }]);
  const runs = [
    () => runner.draft([chunk(1)], 1),
    () => table.branch(start + 1, (from, to) => runner.copyPage(from, to))?.release(),
    ...Array.from({ length: MOST_DRAFTED + 1 }, (_, i) => () => runner.run([chunk(i + 1)])),
  ];
  const least = runs.map(() => Infinity);
  for (let round = 0; round < rounds; round++) {
    for (const [i, run] of runs.entries()) {
      const began = now();
      await run();
      least[i] = Math.min(least[i]!, now() - began);
    }
  }
  const [draft = 0, branch = 0, ...steps] = least;
  return { steps, draft, branch };
}

/** Measures how often each node is right, at the positions of stories by the demo model. */
async function measureRates(temperature: number, threads: number): Promise<NodeRates> {
  const path = bundledModel();
  const sampling = resolveSampling({ temperature, seed: 1 }, SAMPLING_DEFAULTS);
  const texts: number[][] = [];
  {
    await using model = await load(path, { device: "cpu", threads });
    for (const prompt of PROMPTS) {
      const ids = Int32Array.from(model.tokenizer.encode(prompt));
      const { tokenIds } = await model.complete(ids, { temperature, seed: 1, maxTokens: TOKENS });
      texts.push([...ids, ...tokenIds]);
    }
  }
  const backend = openBackend("cpu", threads);
  try {
    const { lm } = loadModel(backend, openCheckpoint(path), { drafts: true });
    const runner = await Runner.open(backend, lm, { contextLength: CONTEXT, kvType: "F16" });
    const counts = new Map<string, number>();
    let total = 0;
    for (const text of texts) {
      total += await countNodes(runner, text, samplingParams(sampling, undefined), counts);
    }
    return new Map([...counts].map(([node, count]) => [node, count / total]));
  } finally {
    backend.close();
  }
}

/** Counts the nodes on the path of a text from each of its positions. Returns their number. */
async function countNodes(
  runner: Runner,
  text: readonly number[],
  sampling: SamplingParams,
  counts: Map<string, number>,
): Promise<number> {
  using table = runner.newSequence();
  const chunk = (start: number): Chunk => {
    const output = { ...UNSAMPLED, forcedToken: undefined, sampling, nTop: WIDTH, row: 0 };
    const outputs = [{ ...output, position: start + 1 }];
    return { table, tokens: [text[start]!], start, outputs };
  };
  let positions = 0;
  for (let at = 0; at + DEPTH + 1 < text.length; at++) {
    await runner.run([chunk(at)]);
    positions++;
    let node = "";
    for (let depth = 1; depth <= DEPTH; depth++) {
      const [[result] = []] = await runner.draft([chunk(at + depth)], 1);
      if (result === undefined || result instanceof ForgeError) break;
      // The draw comes first, then the most probable others.
      const others = result.top.map(({ token }) => token).filter((id) => id !== result.token);
      const rank = [result.token, ...others].slice(0, WIDTH).indexOf(text[at + depth + 1]!);
      if (rank < 0) break;
      node += rank;
      counts.set(node, (counts.get(node) ?? 0) + 1);
    }
  }
  return positions;
}

/** A draft token that is added to others, and what they take with it. */
interface Growth {
  /** Probability that the token is accepted. */
  readonly rate: number;
  readonly depth: number;
  /** Rows of the step beyond the first. */
  readonly rows: number;
  readonly branches: number;
}

function chainOf(rates: NodeRates): Growth[] {
  return Array.from({ length: DEPTH }, (_, i) => {
    return { rate: rates.get("0".repeat(i + 1)) ?? 0, depth: i + 1, rows: i + 1, branches: 0 };
  });
}

/** A node is at most as likely as its parent, so the most likely nodes form a tree. */
function treeOf(rates: NodeRates): Growth[] {
  let depth = 0, branches = 0;
  return [...rates].sort(([a, p], [b, q]) => q - p || a.length - b.length)
    .slice(0, MOST_DRAFTED)
    .map(([node, rate], i) => {
      depth = Math.max(depth, node.length);
      if (!node.endsWith("0")) branches++;
      return { rate, depth, rows: i + 1, branches };
    });
}

/** Returns the rates of a head with another share of right first choices, at every depth. */
function simulatedRates(like: NodeRates, first: number): NodeRates {
  const misses = 1 - (like.get("0") ?? 0);
  const ranks = Array.from({ length: WIDTH }, (_, rank) => {
    return rank === 0 ? first : (like.get(`${rank}`) ?? 0) / misses * (1 - first);
  });
  let level = new Map([["", 1]]);
  const rates = new Map<string, number>();
  for (let depth = 1; depth <= DEPTH; depth++) {
    level = new Map(
      [...level].flatMap(([node, rate]) => ranks.map((own, i) => [`${node}${i}`, rate * own])),
    );
    for (const [node, rate] of level) rates.set(node, rate);
  }
  return rates;
}

interface Best {
  readonly n: number;
  readonly tokens: number;
  /** Tokens per millisecond. */
  readonly speed: number;
}

/** Returns the number of draft tokens with the highest speed. */
function best(growth: readonly Growth[], cost: (growth: Growth) => number): Best {
  let tokens = 1;
  let best: Best = { n: 0, tokens, speed: 1 / cost({ rate: 1, depth: 0, rows: 0, branches: 0 }) };
  for (const [i, added] of growth.entries()) {
    tokens += added.rate;
    const speed = tokens / cost(added);
    if (speed > best.speed) best = { n: i + 1, tokens, speed };
  }
  return best;
}
