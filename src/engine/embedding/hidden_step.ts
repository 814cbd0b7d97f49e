import type { Recorder, Step, StepInputs, Value } from "../../backend.ts";

/** Recorder with the value that is read from its step. */
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
 * Step that computes hidden states instead of tokens. It is recorded at the first run, so that a
 * model that only generates needs no memory for it.
 */
export class HiddenStep {
  /** Size of a hidden state. */
  readonly size: number;
  readonly #record: () => Recording;
  /** A recording that failed, for example for lack of memory, is not tried again. */
  #recording: Promise<Recorded> | undefined;
  #recorded: Recorded | undefined;

  constructor(size: number, record: () => Recording) {
    this.size = size;
    this.#record = record;
  }

  /** Bytes of its activations; 0 before the first run. */
  get scratchBytes(): number {
    return this.#recorded?.step.scratchBytes ?? 0;
  }

  /** Returns the hidden state of each output of the inputs. */
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

  /** Stops the run in progress early, if any. */
  cancel(): void {
    this.#recorded?.step.cancel();
  }

  async #finish(): Promise<Recorded> {
    const { recorder, value } = this.#record();
    recorder.keep(value);
    return this.#recorded = { step: await recorder.finish(), value };
  }
}
