import type { ForgeError } from "../../errors.ts";
import type { Lookahead } from "./ahead.ts";
import type { Scheduler, SchedulerOwner } from "./scheduler.ts";
import type { Task } from "./sequence.ts";

/**
 * Cost of a sequence in progress, in tokens of a prompt. Decoding one more sequence costs a step
 * about as much; a replica that has a prompt cached may have so many more sequences than others.
 */
const SEQUENCE_COST = 64;

/** Devices of replicas, by the index of the replica. */
interface ReplicaDevices {
  /** True if the device still answers after an error. */
  isWorking(replica: number): boolean;
  /** Called when a device has failed and the other replicas continue. */
  onLost(replica: number, error: ForgeError): void;
}

/**
 * Distributes the tasks of one model over its replicas. Tasks wait in one queue until a replica has
 * room; each goes to the replica that would begin its answer first: the prompt's tokens that it has
 * not cached, after the work that it has.
 *
 * If the device of a replica fails, its tasks continue on the others. Their tokens are the same
 * there, since a token depends on those before it and on its position.
 */
export class Dispatcher implements SchedulerOwner {
  readonly #devices: ReplicaDevices;
  readonly #all: readonly Scheduler[];
  #working: readonly Scheduler[];
  readonly #queue: Task[] = [];
  readonly #lookaheads = new WeakMap<Task, Lookahead>();
  /** Tasks that were in progress on a device that failed. */
  readonly #moved = new WeakSet<Task>();
  #closed: ForgeError | undefined;

  /**
   * @param schedulers one for each replica
   * @param devices devices of the replicas
   */
  constructor(
    schedulers: readonly Scheduler[],
    devices: ReplicaDevices,
  ) {
    this.#all = this.#working = schedulers;
    this.#devices = devices;
    if (schedulers.length > 1) { for (const scheduler of schedulers) scheduler.setOwner(this); }
  }

  /** Enqueues a task, as {@linkcode Scheduler.submit}. */
  submit(task: Task, lookahead?: Lookahead): void {
    const [only, another] = this.#all;
    if (another === undefined) return only!.submit(task, lookahead);
    if (this.#closed !== undefined) return task.fail(this.#closed);
    if (lookahead !== undefined) this.#lookaheads.set(task, lookahead);
    this.#queue.push(task);
    this.refill();
  }

  /** Fails the tasks that no replica has, and every task submitted later. */
  close(error: ForgeError): void {
    this.#closed ??= error;
    for (const task of this.#queue.splice(0)) if (!task.isEnded) task.fail(error);
  }

  /** Moves tasks from the queue to the replicas that have room. */
  refill(): void {
    while (this.#queue.length > 0) {
      const free = this.#working.filter(({ hasRoom }) => hasRoom);
      if (free.length === 0) return;
      const task = this.#queue.shift()!;
      if (task.isEnded) continue;
      const { scheduler, cached } = fastest(free, task);
      scheduler.submit(task, this.#lookaheads.get(task), cached);
    }
  }

  /** Moves the tasks of a failed device, unless no other works. */
  takeOver(from: Scheduler, tasks: readonly Task[], error: ForgeError): boolean {
    const replica = this.#all.indexOf(from);
    const isLast = this.#working.length === 1;
    if (this.#closed !== undefined || isLast || this.#devices.isWorking(replica)) return false;
    this.#working = this.#working.filter((scheduler) => scheduler !== from);
    this.#devices.onLost(replica, error);
    // A task that makes devices fail must not stop them all.
    for (const task of tasks) if (this.#moved.has(task) && !task.isEnded) task.fail(error);
    const kept = tasks.filter(({ isEnded }) => !isEnded);
    for (const task of kept) {
      this.#moved.add(task);
      this.#lookaheads.get(task)?.draft.clear();
    }
    this.#queue.unshift(...kept);
    this.refill();
    return true;
  }
}

/** Place of a task, with the number of its tokens that are cached there. */
interface Place {
  readonly scheduler: Scheduler;
  readonly cached: number;
  readonly cost: number;
}

/** Returns the scheduler that would compute the next token of a task first. */
function fastest(schedulers: readonly Scheduler[], task: Task): Place {
  let best: Place | undefined;
  for (const scheduler of schedulers) {
    const { length } = task.tokens;
    const cached = task.mayReuse ? scheduler.cache.match(task.tokens, length - 1).length : 0;
    const { sequences, pending } = scheduler.load;
    const cost = length - cached + pending + SEQUENCE_COST * sequences;
    if (best === undefined || cost < best.cost) best = { scheduler, cached, cost };
  }
  return best!;
}
