/** Compares the server's metrics with plain counts of random requests and answers. */
import { assert, assertEquals } from "@std/assert";
import type { Piece } from "../../../src/engine/generation/request.ts";
import { Metrics, slots } from "../../../src/serve/metrics.ts";
import type { Server } from "../../../src/serve/service.ts";
import { Random } from "../../support/random.ts";

const random = new Random("metrics");

type Counts = Readonly<Record<string, number>>;

/** Returns the values of all samples, by name and labels. */
function samples(text: string): Record<string, number> {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  const values = lines.map((line) => {
    const at = line.lastIndexOf(" ");
    return [line.slice(0, at), Number(line.slice(at + 1))] as const;
  });
  assertEquals(new Set(values.map(([name]) => name)).size, values.length, text);
  return Object.fromEntries(values);
}

/** A server with models of random size and state, and the expected values of its gauges. */
function randomServer(): { readonly server: Server; readonly gauges: Counts } {
  const loaded = Array.from({ length: random.int(0, 3) }, () => {
    const total = random.int(1, 1000);
    const devices = Array<string>(random.int(1, 4)).fill("cpu");
    return {
      model: {
        kvTokens: { total, free: random.int(0, total) },
        devices,
        workingReplicas: random.int(0, devices.length),
      },
    };
  });
  let [total, used, working, lost] = [0, 0, 0, 0];
  for (const { model: { kvTokens, devices, workingReplicas } } of loaded) {
    total += kvTokens.total;
    used += kvTokens.total - kvTokens.free;
    working += workingReplicas;
    lost += devices.length - workingReplicas;
  }
  const inProgress = random.int(0, 9);
  return {
    server: { admission: { inProgress }, models: { loaded } } as unknown as Server,
    gauges: {
      forge_models_loaded: loaded.length,
      'forge_replicas{state="working"}': working,
      'forge_replicas{state="lost"}': lost,
      forge_answers: inProgress,
      forge_kv_tokens: total,
      forge_kv_tokens_in_use: used,
    },
  };
}

Deno.test("metrics: counters, gauges and histograms equal plain counts", () => {
  const realNow = performance.now;
  let now = 1000;
  performance.now = () => now;
  try {
    for (let round = 0; round < 20; round++) {
      const metrics = new Metrics();
      const expected: Record<string, number> = {};
      const add = (name: string, value: number) => expected[name] = (expected[name] ?? 0) + value;
      for (const name of ["prompt_tokens", "cached_prompt_tokens", "generated_tokens"]) {
        add(`forge_${name}_total`, 0);
      }
      add("forge_queue_seconds_total", 0);
      for (let i = random.int(0, 9); i > 0; i--) {
        const known = ["GET", "HEAD", "POST", "DELETE", "OPTIONS"];
        const [sent, path] = [
          random.pick([...known, "BREW", "get", "PATCH"]),
          random.pick(["/a", "b"]),
        ];
        // Names that clients choose would fill the memory.
        const method = known.includes(sent) ? sent : "other";
        const status = random.pick([200, 404]);
        metrics.countRequest(sent, path, status);
        add(`forge_requests_total{method="${method}",path="${path}",status="${status}"}`, 1);
      }
      const firsts: number[] = [], nexts: number[] = [];
      for (let i = round === 0 ? 0 : random.int(1, 5); i > 0; i--) {
        const timer = metrics.startGeneration();
        const nTokens = random.int(0, 6);
        for (let j = 0; j < nTokens; j++) {
          // Whole milliseconds, so that bounds of buckets occur.
          const wait = random.pick([0, 1, 2, 5, 6, 10, 100, 101, 2500, 30_000, 30_001]);
          now += wait;
          (j === 0 ? firsts : nexts).push(wait / 1000);
          timer.take({ token: j, end: undefined } as unknown as Piece);
        }
        const [promptTokens, cachedPromptTokens] = [random.int(1, 99), random.int(0, 9)];
        const queueMs = 250 * random.int(0, 9);
        const end = {
          promptTokens,
          cachedPromptTokens,
          completionTokens: nTokens,
          timings: { queueMs },
        };
        timer.take({ token: undefined, end } as unknown as Piece);
        add("forge_prompt_tokens_total", promptTokens);
        add("forge_cached_prompt_tokens_total", cachedPromptTokens);
        add("forge_generated_tokens_total", nTokens);
        add("forge_queue_seconds_total", queueMs / 1000);
      }
      const { server, gauges } = randomServer();
      const found = samples(metrics.text(server));
      for (const [which, times] of [["first", firsts], ["next", nexts]] as const) {
        const name = `forge_${which}_token_seconds`;
        const buckets = Object.keys(found).filter((key) => key.startsWith(`${name}_bucket`));
        assertEquals(buckets.length, 15);
        for (const key of buckets) {
          const bound = Number(/le="(.+)"/.exec(key)![1]!.replace("+Inf", "Infinity"));
          assertEquals(found[key], times.filter((time) => time <= bound).length, key);
          delete found[key];
        }
        expected[`${name}_count`] = times.length;
        const sum = times.reduce((sum, time) => sum + time, 0);
        assert(Math.abs(found[`${name}_sum`]! - sum) < 1e-9);
        expected[`${name}_sum`] = found[`${name}_sum`]!;
      }
      assertEquals(found, { ...expected, ...gauges });
    }
  } finally {
    performance.now = realNow;
  }
});

Deno.test("metrics: as many slots of a model are busy as it has users", async () => {
  const loaded = [[0, 1], [2, 3], [5, 2]].map(([users, parallel], i) => ({
    name: `m${i}`,
    users,
    model: { parallel, contextLength: 10 + i },
  }));
  const found = await slots({ models: { loaded } } as unknown as Server).json();
  assertEquals(
    found,
    [[0, 0, false], [1, 0, true], [1, 1, true], [1, 2, false], [2, 0, true], [2, 1, true]]
      .map(([model, id, is_processing]) => ({
        id,
        model: `m${model}`,
        n_ctx: 10 + Number(model),
        is_processing,
      })),
  );
});
