import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { BlockingPool, type BlockingPoolInit } from './blocking.ts';
import { RonError } from '../errors.ts';

const never = new AbortController().signal;
const MODULE = new URL('../../test/blocking-jobs.ts', import.meta.url);
const code = (wanted: string) => (error: unknown) => error instanceof RonError && error.code === wanted;

function open(init: Partial<BlockingPoolInit> = {}): BlockingPool {
  return new BlockingPool('pool', { threads: 1, queue_max: 8, module: MODULE, ...init });
}

const cells = (): Int32Array => new Int32Array(new SharedArrayBuffer(8));

/** Until `count` jobs have said that they run. */
async function begun(state: Int32Array, count = 1): Promise<void> {
  for (let seen = Atomics.load(state, 0); seen < count; seen = Atomics.load(state, 0)) {
    const waiting = Atomics.waitAsync(state, 0, seen);
    if (waiting.async) await waiting.value;
  }
}

function release(state: Int32Array): void {
  Atomics.store(state, 1, 1);
  Atomics.notify(state, 1);
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise(setImmediate);
}

test('a job runs in another thread and gives its value', async () => {
  await using pool = open();
  assert.equal(await pool.run('add', [2, 3], never), 5);
  assert.equal(await pool.run('later', ['text'], never), 'text');
  assert.notEqual(await pool.run('where', [], never), 0);
  assert.equal(await pool.run('where', [], never), await pool.run('where', [], never));
  assert.equal(pool.threads, 1);
});

test('an error comes back as it was thrown, and the thread goes on', async () => {
  await using pool = open();
  await assert.rejects(pool.run('fail', [], never), { name: 'RangeError', message: 'out of range' });
  await assert.rejects(pool.run('refuse', [], never), (error) => {
    assert.ok(error instanceof RonError);
    assert.deepEqual([error.code, error.op, error.retry_after_ms], ['paced', 'refuse', 7]);
    assert.match(error.stack!, /blocking-jobs/);
    return true;
  });
  for (const name of ['missing', 'notAFunction', 'toString']) {
    await assert.rejects(pool.run(name, [], never), code('internal'));
  }
  assert.equal(pool.crashed_total, 0);
});

test('values that cannot be copied are refused in both directions, and the thread goes on', async () => {
  await using pool = open();
  await assert.rejects(pool.run('add', [() => {}], never), { name: 'DataCloneError' });
  await assert.rejects(pool.run('uncopyable', [], never), { name: 'DataCloneError' });
  assert.equal(await pool.run('add', [1, 1], never), 2);
  assert.equal(pool.threads, 1);
});

test('transferred bytes are moved, not copied', async () => {
  await using pool = open();
  const bytes = new Uint8Array([1, 2, 3]);
  assert.equal(await pool.run('sum', [bytes], never, [bytes.buffer]), 6);
  assert.equal(bytes.byteLength, 0);
});

test('jobs run at the same time in as many threads as there may be, and wait beyond that', async () => {
  await using pool = open({ threads: 2, queue_max: 1 });
  const state = cells();
  const running = [pool.run('wait', [state], never), pool.run('wait', [state], never)];
  const waiting = pool.run('wait', [state], never);
  assert.equal(pool.depth, 1);
  await assert.rejects(pool.run('add', [1, 1], never), code('busy'));
  assert.equal(pool.busy_total, 1);
  await begun(state, 2);
  release(state);
  // [storage I-7] [kms I-7] [index I-7] [edge I-7] [interop I-7] Two blocked threads, and the event loop went on.
  assert.equal(new Set(await Promise.all(running)).size, 2);
  await waiting;
  assert.equal(pool.threads, 2);
});

test('a thread that ends fails its own job and is replaced', async () => {
  await using pool = open();
  const first = await pool.run('where', [], never);
  const dying = pool.run('exit', [3], never);
  const waiting = [pool.run('where', [], never), pool.run('where', [], never)];
  await assert.rejects(dying, (error) => code('internal')(error) && /code 3 during exit/.test(String(error)));
  const [second, third] = await Promise.all(waiting);
  assert.notEqual(second, first);
  assert.equal(third, second);
  assert.equal(pool.crashed_total, 1);
  assert.equal(pool.threads, 1);
});

test('a thread that breaks between two jobs is replaced for the next', async () => {
  await using pool = open();
  assert.equal(await pool.run('breakLater', [], never), 'done');
  await until(() => pool.crashed_total === 1);
  assert.equal(await pool.run('add', [1, 2], never), 3);
});

test('a module that cannot be imported fails each job with the reason, and no more', async () => {
  await using pool = open({ module: new URL('./no-such-module.ts', import.meta.url) });
  const failed = (error: unknown): boolean => /no-such-module/.test(String((error as RonError).cause));
  await assert.rejects(pool.run('add', [1, 1], never), failed);
  await assert.rejects(pool.run('add', [1, 1], never), failed);
});

test('an aborted job that waits leaves the queue at once', async () => {
  await using pool = open({ queue_max: 1 });
  const state = cells();
  const running = pool.run('wait', [state], never);
  const client = new AbortController();
  const waiting = pool.run('add', [1, 1], client.signal);
  client.abort(new Error('left'));
  assert.equal(pool.depth, 0);
  await assert.rejects(waiting, /left/);
  await begun(state);
  release(state);
  await running;
  await assert.rejects(pool.run('add', [1, 1], client.signal), /left/);
});

test('an aborted job that computes is answered at once, and its thread is replaced', async () => {
  await using pool = open();
  const state = cells();
  const client = new AbortController();
  const spinning = pool.run('spin', [state], client.signal);
  await begun(state);
  client.abort(new Error('left'));
  const next = pool.run('add', [1, 2], never);
  assert.equal(pool.threads, 1, 'the old thread counts until it has ended');
  await assert.rejects(spinning, /left/);
  assert.equal(await next, 3);
  assert.equal(pool.threads, 1);
  assert.equal(pool.crashed_total, 0);
});

test('a thread is not ended while it imports its module: native code that loads would take the process along', async () => {
  const name = `imported ${process.hrtime.bigint()}`;
  const source = `
    const channel = new BroadcastChannel('${name}');
    await new Promise((resolve) => setTimeout(resolve, 100));
    channel.postMessage('whole');
    channel.close();
    export const nothing = () => undefined;`;
  const channel = new BroadcastChannel(name);
  const imported = new Promise((resolve) => channel.addEventListener('message', resolve));
  const ended: number[] = [];
  const module = new URL(`data:text/javascript,${encodeURIComponent(source)}`);
  const pool = open({ module, close_ms: 1, onThreadEnd: (thread) => ended.push(thread) });
  const client = new AbortController();
  const given_up = pool.run('nothing', [], client.signal);
  client.abort(new Error('left'));
  await assert.rejects(given_up, /left/);
  await pool.close();
  assert.equal(pool.threads, 0);
  assert.equal(ended.length, 1);
  await imported;
  channel.close();
});

test('an abort that comes after the answer does no harm', async () => {
  await using pool = open();
  const client = new AbortController();
  const first = await pool.run('where', [], client.signal);
  assert.equal(getEventListeners(client.signal, 'abort').length, 0);
  client.abort();
  assert.equal(await pool.run('where', [], never), first);
});

test('close lets jobs finish, takes no new ones, and leaves no thread', async () => {
  const pool = open({ close_ms: 60_000 });
  const state = cells();
  const running = pool.run('wait', [state], never);
  const waiting = pool.run('add', [1, 2], never);
  const closing = pool.close();
  assert.equal(pool.close(), closing);
  await assert.rejects(pool.run('add', [1, 1], never), code('draining'));
  await begun(state);
  release(state);
  await running;
  assert.equal(await waiting, 3);
  await closing;
  assert.equal(pool.threads, 0);
});

test('close is bounded: jobs that do not end are cut off', async () => {
  const pool = open({ close_ms: 20 });
  const state = cells();
  const spinning = pool.run('spin', [state], never);
  const waiting = pool.run('add', [1, 2], never);
  await begun(state);
  // [storage I-11] [kms I-11] [edge I-11] [interop I-11]
  const closing = pool.close();
  await assert.rejects(spinning, code('canceled'));
  await assert.rejects(waiting, code('canceled'));
  await closing;
  assert.equal(pool.threads, 0);
});

test('a pool that was never used closes at once', async () => {
  await open().close();
});

test('a pool has a thread and a bounded queue', () => {
  assert.throws(() => open({ threads: 0 }), /thread/);
  assert.throws(() => open({ queue_max: Infinity }), /bounded/);
});

test('idle threads do not keep the process alive, busy ones do; a round trip costs tens of microseconds', (t) => {
  const program = `
    import { BlockingPool } from '${new URL('./blocking.ts', import.meta.url).href}';
    const pool = new BlockingPool('pool', { threads: 1, queue_max: 8, module: new URL('${MODULE.href}') });
    const never = new AbortController().signal;
    const began_ms = performance.now();
    await pool.run('add', [1, 1], never);
    const first_ms = performance.now() - began_ms;
    const trips = async (count) => { while (count-- > 0) await pool.run('add', [1, 1], never); };
    await trips(2000);
    const warm_ms = performance.now();
    await trips(5000);
    const each_us = (performance.now() - warm_ms) / 5;
    // Only the job keeps the process alive, and no code awaits it.
    void pool.run('add', [1, 1], never).then((value) => console.log(JSON.stringify({ first_ms, each_us, value })));`;
  const flags = ['--input-type=module', '--eval'];
  const output = execFileSync(process.execPath, [...flags, program], { encoding: 'utf8', timeout: 60_000 });
  const { first_ms, each_us, value } = JSON.parse(output) as Record<string, number>;
  t.diagnostic(`first job ${first_ms!.toFixed(1)} ms (starts the thread), then ${each_us!.toFixed(1)} us a round trip`);
  assert.equal(value, 2);
  assert.ok(each_us! < 5000, 'a round trip is far below a millisecond on an idle machine');
});
