/** Samples from given logits through a device. */
import type {
  Backend,
  OutputRequest,
  SamplingParams,
  Step,
  StepOutput,
} from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import type { Matrix } from "./matrix.ts";
import { greedy, outputRow, StepGraph } from "./step_graph.ts";

/** An output request; by default the token of the largest logit. */
export interface SampleRequest extends Partial<Omit<OutputRequest, "sampling">> {
  readonly sampling?: Partial<SamplingParams>;
}

/** Fills in the defaults of a request. */
export function fullRequest({ sampling, ...request }: SampleRequest): OutputRequest {
  return outputRow(0, { ...request, sampling: { ...greedy, ...sampling } });
}

/** A step that only samples from the rows of a matrix of logits. */
export class LogitSampler {
  readonly #step: Step;

  private constructor(step: Step) {
    this.#step = step;
  }

  static async record(
    backend: Backend,
    logits: Matrix,
    { maxOutputs = 1, maxTop = 0 } = {},
  ): Promise<LogitSampler> {
    const limits = { maxTokens: maxOutputs, maxOutputs, maxSequences: 1, maxPages: 1 };
    const graph = new StepGraph(backend, backend.record(limits));
    graph.recorder.sample(graph.recorder.gatherOutputs(graph.input(logits)), maxTop);
    return new LogitSampler(await graph.recorder.finish());
  }

  /** Returns one output per request; `row` selects the row of logits. Throws the first failure. */
  async sample(requests: readonly SampleRequest[]): Promise<StepOutput[]> {
    const results = await this.#step.run({
      tokens: requests.map(({ row = 0 }) => row),
      positions: requests.map(() => 0),
      sequences: requests.map(() => 0),
      pageTables: [[0]],
      outputs: requests.map((request, row) => ({ ...fullRequest(request), row })),
    });
    return results.map((result) => {
      if (result instanceof ForgeError) throw result;
      return result;
    });
  }

  release(): void {
    this.#step.release();
  }
}

/** Samples once from one row of logits. */
export async function sampleOnce(
  backend: Backend,
  logits: readonly number[],
  requests: readonly SampleRequest[],
  maxTop = 0,
): Promise<StepOutput[]> {
  const data = Float32Array.from(logits);
  const sampler = await LogitSampler.record(
    backend,
    { rows: 1, cols: data.length, data },
    { maxOutputs: requests.length, maxTop },
  );
  try {
    return await sampler.sample(requests);
  } finally {
    sampler.release();
  }
}
