import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { RonError, sched, type TaskContext, type WorkQueue } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { answer, FRESH, originOf, removeFiles, startFilling } from './support.ts';

after(removeFiles);

const WORKERS = 4;

/** Workers that a test can kill. Those that are killed crash at each start until `relaunch`. */
class KillableWorkers {
  readonly #kills = new Set<AbortController>();
  #isDown = 0;

  readonly serve = async (work: WorkQueue, { signal, stopping }: TaskContext): Promise<void> => {
    if (this.#isDown > 0 && this.#kills.size >= WORKERS - this.#isDown) throw new Error('killed');
    const kill = new AbortController();
    this.#kills.add(kill);
    try {
      await work.serve({ signal: AbortSignal.any([signal, kill.signal]), stopping });
    } finally {
      this.#kills.delete(kill);
    }
  };

  kill(count: number): void {
    this.#isDown = count;
    for (const kill of [...this.#kills].slice(0, count)) kill.abort(new RonError('canceled', 'the worker was killed'));
  }

  relaunch(): void {
    this.#isDown = 0;
  }
}

// [edge I-8]
test('half the workers die under load: /readyz shows shedding, their fills end, and all are back within 1 s', async () => {
  const { promise: opened, resolve: open } = Promise.withResolvers<void>();
  await using origin = await originOf((socket) => void opened.then(() => socket.write(answer('tile', FRESH))));
  const workers = new KillableWorkers();
  const flags = [`--edge.workers=${WORKERS}`];
  await using edge = await startFilling(origin, { flags, serveWork: workers.serve });
  const waiting = Array.from({ length: 12 }, (_, at) => edge.get(`/${at}.png`));
  await eventually('each worker has a fill', () => origin.requests.length >= WORKERS);
  workers.kill(WORKERS / 2);
  await eventually('shedding', async () => /2 of 4 workers run/.test((await edge.send('GET', '/readyz')).text));
  assert.equal((await edge.send('GET', '/readyz')).status, 200);
  workers.relaunch();
  const relaunched_ms = sched.now_ms();
  await eventually('all run', async () => !(await edge.send('GET', '/readyz')).text.includes('workers run'));
  assert.ok(sched.now_ms() - relaunched_ms < 1000, 'recovered within 1 s');
  open();
  const statuses = (await Promise.all(waiting)).map(({ status }) => status).toSorted((one, other) => one - other);
  assert.deepEqual(statuses, [...Array.from({ length: 10 }, () => 200), 503, 503]);
  assert.equal((await edge.get('/after.png')).text, 'tile');
});
