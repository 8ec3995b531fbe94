/**
 * A lane of `work` without room answers `busy` at once, for any size of the queues and any order of jobs and workers.
 *
 * Time stands still: an answer that waits for a timer, or for a worker, never comes.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { loadConfig } from '@ron/config';
import { Deadline, isRonError, type WorkQueue } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { ServiceRuntime } from '@ron/service';
import { Metrics } from '@ron/telemetry';
import { captureLog } from '@ron/testkit/service';
import { concurrency } from '../src/concurrency.ts';
import { schema } from '../src/config.ts';
import { fuzzRuns } from '@ron/testkit';

const QUEUES = { reads: 'read', puts: 'put', webhooks: 'webhook' } as const;
type QueueName = keyof typeof QUEUES;
const NAMES = Object.keys(QUEUES) as QueueName[];

const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

const BUSY = ['busy', 429, 'with Retry-After'];

function refusalOf(error: unknown): unknown {
  if (!isRonError(error)) return error;
  return [error.code, error.status, error.retry_after_ms === undefined ? 'without' : 'with Retry-After'];
}

/** One queue of interop, beside the numbers that it must show. */
class CheckedQueue {
  readonly #queue: WorkQueue;
  readonly #lane: string;
  readonly #capacity: number;
  readonly #wanted = { depth: 0, busy: 0, done: 0 };
  readonly #seen = { refusals: [] as unknown[], done: 0 };
  #begun = 0;

  constructor(queue: WorkQueue, name: QueueName, work: number) {
    this.#queue = queue;
    this.#lane = QUEUES[name];
    this.#capacity = Math.max(1, Math.floor(work * concurrency.channels[name].config_share));
  }

  submit(key: string): void {
    const deadline = Deadline.unlimited('request');
    const work = async (): Promise<void> => void (this.#begun += 1);
    this.#queue.submit(this.#lane, deadline, work, key).then(
      () => (this.#seen.done += 1),
      (error: unknown) => void this.#seen.refusals.push(refusalOf(error)),
    );
    // The new job, or one that gives its place to a job of another key.
    if (this.#wanted.depth === this.#capacity) this.#wanted.busy += 1;
    else this.#wanted.depth += 1;
  }

  /** A worker takes a job, if one waits. */
  work(): void {
    const job = this.#queue.tryTake();
    assert.equal(job !== undefined, this.#wanted.depth > 0);
    if (job === undefined) return;
    void job.run();
    this.#wanted.depth -= 1;
    this.#wanted.done += 1;
  }

  check(): void {
    const { depth, busy, done } = this.#wanted;
    const refusals = Array.from({ length: busy }, () => BUSY);
    assert.deepEqual(this.#seen, { refusals, done }, `${this.#lane}: each refused job is answered, and no other`);
    assert.deepEqual([this.#queue.depth, this.#begun], [depth, done], `${this.#lane}: no refused job waits or runs`);
  }
}

/** A job of this key, or a worker that takes one. */
const step = fc.record({
  queue: fc.constantFrom(...NAMES),
  key: fc.option(fc.constantFrom('a', 'b', 'c'), { freq: 4 }),
});

test('[interop I-3] [interop I-9] a lane without room answers busy at once and grows no further', async () => {
  const { log } = captureLog('interop');
  const property = fc.asyncProperty(
    fc.integer({ min: 4, max: 40 }),
    fc.array(step, { maxLength: 150, size: 'max' }),
    (work, steps) =>
      new VirtualSched().during(async () => {
        const config = loadConfig({ schema, env: {}, flags: ['--amnesia.enabled=true', `--interop.work=${work}`] });
        await using runtime = new ServiceRuntime(concurrency, {
          metrics: new Metrics('interop'),
          log,
          config: { value: config },
        });
        const queues = new Map(NAMES.map((name) => [name, new CheckedQueue(runtime.workQueue(name), name, work)]));
        for (const { queue, key } of steps) {
          const checked = queues.get(queue)!;
          if (key === null) checked.work();
          else checked.submit(key);
          await turn();
          for (const each of queues.values()) each.check();
        }
      }),
  );
  await fc.assert(property, fuzzRuns(200));
});
