/** Counters and histograms of the server, in the text format of Prometheus. */
import type { Piece } from "../engine/generation/request.ts";
import type { Server } from "./service.ts";

/** Upper bounds of the buckets of times, in seconds. */
const TIME_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Numbers of values below bounds, as Prometheus' histograms have them. */
class Histogram {
  readonly #counts = TIME_BUCKETS.map(() => 0);
  #count = 0;
  #sum = 0;

  add(value: number): void {
    this.#count++;
    this.#sum += value;
    TIME_BUCKETS.forEach((bound, i) => {
      if (value <= bound) this.#counts[i]!++;
    });
  }

  lines(name: string): string[] {
    const buckets = TIME_BUCKETS.map((bound, i) =>
      `${name}_bucket{le="${bound}"} ${this.#counts[i]}`
    );
    return [
      ...buckets,
      `${name}_bucket{le="+Inf"} ${this.#count}`,
      `${name}_sum ${this.#sum}`,
      `${name}_count ${this.#count}`,
    ];
  }
}

/** Methods that are counted by name, since clients may send any other. */
const METHODS = ["GET", "HEAD", "POST", "DELETE", "OPTIONS"];

/** Times of one generation. */
interface GenerationTimer {
  /** Takes the next piece. */
  take(piece: Piece): void;
}

/** Counts of requests, tokens and times since the server began. */
export class Metrics {
  /** Requests by `METHOD PATH STATUS`. */
  readonly #requests = new Map<string, number>();
  readonly #firstToken = new Histogram();
  readonly #nextToken = new Histogram();
  #promptTokens = 0;
  #cachedTokens = 0;
  #generatedTokens = 0;
  #queueSeconds = 0;

  /** Counts a response. @param path that of a route, since clients may ask for any other */
  countRequest(method: string, path: string, status: number): void {
    const known = METHODS.includes(method) ? method : "other";
    const key = `method="${known}",path="${path}",status="${status}"`;
    this.#requests.set(key, (this.#requests.get(key) ?? 0) + 1);
  }

  /** Begins to time a generation. */
  startGeneration(): GenerationTimer {
    let last = performance.now();
    let hasTokens = false;
    return {
      take: ({ token, end }) => {
        if (token !== undefined) {
          const now = performance.now();
          (hasTokens ? this.#nextToken : this.#firstToken).add((now - last) / 1000);
          [last, hasTokens] = [now, true];
        }
        if (end === undefined) return;
        this.#promptTokens += end.promptTokens;
        this.#cachedTokens += end.cachedPromptTokens;
        this.#generatedTokens += end.completionTokens;
        this.#queueSeconds += end.timings.queueMs / 1000;
      },
    };
  }

  /** Returns all metrics, with the state of the server. */
  text({ admission, models }: Server): string {
    const caches = models.loaded.map(({ model }) => model.kvTokens);
    const total = caches.reduce((sum, cache) => sum + cache.total, 0);
    const free = caches.reduce((sum, cache) => sum + cache.free, 0);
    const working = models.loaded.reduce((sum, { model }) => sum + model.workingReplicas, 0);
    const replicas = [
      working,
      models.loaded.reduce((sum, { model }) => sum + model.devices.length, -working),
    ];
    const metric = (name: string, type: string, help: string, lines: readonly string[]) =>
      `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join("\n")}\n`;
    const plain = (name: string, type: string, help: string, value: number) =>
      metric(name, type, help, [`${name} ${value}`]);
    const histogram = (name: string, help: string, values: Histogram) =>
      metric(name, "histogram", help, values.lines(name));
    return [
      metric(
        "forge_requests_total",
        "counter",
        "Responses by method, path and status.",
        [...this.#requests].map(([labels, count]) => `forge_requests_total{${labels}} ${count}`),
      ),
      plain(
        "forge_models_loaded",
        "gauge",
        "Models in memory.",
        caches.length,
      ),
      metric(
        "forge_replicas",
        "gauge",
        "Replicas of loaded models, by whether their devices work.",
        ["working", "lost"].map((state, i) => `forge_replicas{state="${state}"} ${replicas[i]}`),
      ),
      plain("forge_answers", "gauge", "Answers computed or queued.", admission.inProgress),
      plain(
        "forge_prompt_tokens_total",
        "counter",
        "Tokens of prompts, those found in the cache included.",
        this.#promptTokens,
      ),
      plain(
        "forge_cached_prompt_tokens_total",
        "counter",
        "Tokens of prompts found in the prefix cache.",
        this.#cachedTokens,
      ),
      plain(
        "forge_generated_tokens_total",
        "counter",
        "Tokens of answers.",
        this.#generatedTokens,
      ),
      plain(
        "forge_queue_seconds_total",
        "counter",
        "Time that answers waited before their first step.",
        this.#queueSeconds,
      ),
      plain("forge_kv_tokens", "gauge", "Positions of the KV cache.", total),
      plain(
        "forge_kv_tokens_in_use",
        "gauge",
        "Positions held by answers in progress; cached prefixes give theirs up.",
        total - free,
      ),
      histogram(
        "forge_first_token_seconds",
        "Time from a request's start to its first token.",
        this.#firstToken,
      ),
      histogram("forge_next_token_seconds", "Time between tokens of an answer.", this.#nextToken),
    ].join("");
  }
}

/** `GET /metrics`. */
export function metrics(server: Server): Response {
  return new Response(server.metrics.text(server), {
    headers: { "content-type": "text/plain; version=0.0.4; charset=utf-8" },
  });
}

/** `GET /slots`: the places for answers that are computed at a time, of all loaded models. */
export function slots({ models }: Server): Response {
  return Response.json(
    models.loaded.flatMap(({ name, users, model }) =>
      Array.from({ length: model.parallel }, (_, id) => ({
        id,
        model: name,
        n_ctx: model.contextLength,
        is_processing: id < users,
      }))
    ),
  );
}
