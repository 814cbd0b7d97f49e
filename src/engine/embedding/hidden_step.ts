import type { Recorder, Step, StepInputs, Value } from "../../backend.ts";

/** A recording that is not ended yet, and the value that is wanted of it. */
interface Recording {
  readonly recorder: Recorder;
  /** `[outputs, size]` */
  readonly value: Value;
}

interface Recorded {
  readonly step: Step;
  readonly value: Value;
}

/**
 * The step that computes hidden states instead of tokens. It is recorded when it is first run, so that a
 * model which only generates has no memory taken for it.
 */
export class HiddenStep {
  /** Columns of a hidden state. */
  readonly size: number;
  readonly #record: () => Recording;
  /** What cannot be recorded once, for want of memory, is not tried again. */
  #recording: Promise<Recorded> | undefined;
  #recorded: Recorded | undefined;

  constructor(size: number, record: () => Recording) {
    this.size = size;
    this.#record = record;
  }

  /** Bytes of activations that it holds; none before the first run. */
  get scratchBytes(): number {
    return this.#recorded?.step.scratchBytes ?? 0;
  }

  /** The hidden state of each output that the inputs name. */
  async run(inputs: StepInputs): Promise<Float32Array[]> {
    const { step, value } = await (this.#recording ??= this.#finish());
    await step.run(inputs);
    const { length } = inputs.outputs;
    if (length === 0) return [];
    const states = step.read(value, this.size, 0, length);
    return Array.from(
      { length },
      (_, output) => states.subarray(output * this.size, (output + 1) * this.size),
    );
  }

  /** Makes the run in progress stop early; without one, does nothing. */
  cancel(): void {
    this.#recorded?.step.cancel();
  }

  async #finish(): Promise<Recorded> {
    const { recorder, value } = this.#record();
    recorder.keep(value);
    return this.#recorded = { step: await recorder.finish(), value };
  }
}
