import { RonError } from '../src/errors.ts';
import { Deadline } from '../src/time/deadline.ts';
import { sched, sleep } from '../src/sched.ts';
import { VirtualSched } from '../src/virtual-sched.ts';
import { WorkQueue } from '../src/work/work-queue.ts';

export const never = new AbortController().signal;
export const after = (budget_ms: number, signal?: AbortSignal): Deadline =>
  Deadline.after('request', budget_ms, signal === undefined ? {} : { signal });
export const code = (wanted: string) => (error: unknown) => error instanceof RonError && error.code === wanted;

/** Runs a test on a virtual clock, with a queue of one lane. */
export function onQueue(
  capacity: number,
  use: (queue: WorkQueue, time: VirtualSched) => Promise<void>,
): () => Promise<void> {
  const time = new VirtualSched();
  return () => time.during(() => use(new WorkQueue('work', { capacity, lanes: ['get'] }), time));
}

/** The state of a promise so far. */
export function outcome(promise: Promise<unknown>): { value: unknown; at_ms: number } {
  const seen = { value: undefined as unknown, at_ms: Number.NaN };
  const note = (value: unknown): void => {
    seen.value = value;
    seen.at_ms = sched.now_ms();
  };
  promise.then(note, (error: unknown) => note(error instanceof RonError ? error.code : error));
  return seen;
}

export async function work(queue: WorkQueue, signal: AbortSignal = never): Promise<void> {
  for (let job = await queue.take(signal); job !== undefined; job = await queue.take(signal)) await job.run(signal);
}

export function sleeper(work_ms: number): (deadline: Deadline) => Promise<void> {
  return () => sleep(work_ms, never);
}
