import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, Mpsc, RonError } from '@ron/kernel';
import type { AuditEvent } from './event.ts';
import { AuditTrail, type AuditMode, type Queued } from './trail.ts';

const NEVER = new AbortController().signal;
const event = (time_ms: number): AuditEvent => ({
  op: 'sign',
  tenant: 'acme',
  kid: 'k',
  alg: 'ed25519',
  purpose: 'docs',
  time_ms,
  result: 'ok',
  actor: 'a',
});

/** A log whose appends end when the test says so. */
class SlowLog {
  readonly entries: { op: string; time_ms?: number; count?: number }[] = [];
  readonly #held: (() => void)[] = [];
  isHeld = false;
  failure: RonError | undefined;

  async append(entries: readonly Uint8Array[]): Promise<{ first: number }> {
    if (this.isHeld) await new Promise<void>((resolve) => this.#held.push(resolve));
    if (this.failure !== undefined) throw this.failure;
    const first = this.entries.length;
    this.entries.push(...entries.map((bytes) => JSON.parse(Buffer.from(bytes).toString()) as { op: string }));
    return { first };
  }

  release(): void {
    this.isHeld = false;
    for (const go of this.#held.splice(0)) go();
  }
}

function setUp(mode: AuditMode, capacity = 4, append_ms = 10_000) {
  const log = new SlowLog();
  const queue = new Mpsc<Queued>('audit', capacity);
  const seen = { dropped: 0, appended: 0, problems: 0 };
  const trail = new AuditTrail({
    queue,
    log,
    mode: () => mode,
    appendDeadline: () => Deadline.after('audit', append_ms),
    onDropped: (count) => (seen.dropped += count),
    onAppended: (count) => (seen.appended += count),
    onProblem: () => (seen.problems += 1),
  });
  const stop = new AbortController();
  const running = trail.run(stop.signal).catch(() => undefined);
  return { log, queue, trail, seen, stop: () => (stop.abort(), running) };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('events get consecutive places in the order in which they were recorded', async () => {
  const { trail, log, stop } = setUp('strict', 64);
  const places = await Promise.all(Array.from({ length: 40 }, (_, at) => trail.record(event(at), NEVER)));
  assert.deepEqual(
    places,
    Array.from({ length: 40 }, (_, at) => at),
  );
  assert.deepEqual(
    log.entries.map(({ time_ms }) => time_ms),
    places,
  );
  await stop();
});

test('continue: when the log stands still the oldest events go, and stand in the log as a gap', async () => {
  const { trail, log, seen, stop } = setUp('continue', 4);
  log.isHeld = true;
  const first = trail.record(event(0), NEVER);
  await turn();
  const rest = Array.from({ length: 6 }, (_, at) => trail.record(event(at + 1), NEVER));
  // Two more than fit: after their wait they push out the two that came first.
  assert.deepEqual(await Promise.race([rest[0], rest[1]]), undefined);
  assert.equal(await rest[1], undefined);
  log.release();
  assert.equal(await first, 0);
  assert.deepEqual(await Promise.all(rest.slice(2)), [2, 3, 4, 5]);
  assert.deepEqual(log.entries[1], { op: 'gap', count: 2, from: 1, to: 2 });
  assert.equal(seen.dropped, 2);
  await stop();
});

test('strict: when the log stands still nothing more is taken in, and nothing is dropped', async () => {
  const { trail, log, seen, stop } = setUp('strict', 2);
  log.isHeld = true;
  const first = trail.record(event(0), NEVER);
  await turn();
  const waiting = [trail.record(event(1), NEVER), trail.record(event(2), NEVER)];
  await assert.rejects(
    trail.record(event(3), NEVER),
    (error) => error instanceof RonError && error.code === 'degraded_audit',
  );
  log.release();
  assert.deepEqual(await Promise.all([first, ...waiting]), [0, 1, 2]);
  assert.equal(seen.dropped, 0);
  await stop();
});

test('continue: an append that takes too long lets operations go on, and its entries still come', async () => {
  const { trail, log, stop } = setUp('continue', 4, 20);
  log.isHeld = true;
  assert.equal(await trail.record(event(0), NEVER), undefined);
  log.release();
  assert.equal(await trail.record(event(1), NEVER), 1);
  assert.equal(log.entries.length, 2);
  await stop();
});

test('a log that fails: strict refuses, continue goes on and logs the gap later', async () => {
  for (const mode of ['strict', 'continue'] as const) {
    const { trail, log, seen, stop } = setUp(mode);
    log.failure = new RonError('storage_full', 'the disk is full');
    const recorded = trail.record(event(5), NEVER);
    if (mode === 'continue') assert.equal(await recorded, undefined);
    else await assert.rejects(recorded, /the disk is full/);
    assert.match(trail.problem ?? '', /full/);
    assert.deepEqual([seen.dropped, seen.problems], [1, 1]);
    log.failure = undefined;
    assert.equal(await trail.record(event(6), NEVER), 1);
    assert.deepEqual(log.entries[0], { op: 'gap', count: 1, from: 5, to: 5 });
    assert.equal(trail.problem, undefined);
    await stop();
  }
});

test('a mark waits for all before it and is never dropped', async () => {
  const { trail, log, stop } = setUp('continue', 2);
  log.isHeld = true;
  const first = trail.record(event(0), NEVER);
  await turn();
  const second = trail.record(event(1), NEVER);
  let isFlushed = false;
  const flushed = trail.flushed(NEVER).then(() => (isFlushed = true));
  // Pushes out the event, not the mark.
  trail.note(event(2));
  assert.equal(await second, undefined);
  await turn();
  assert.equal(isFlushed, false);
  log.release();
  await flushed;
  assert.equal(await first, 0);
  await stop();
});

test('close writes what waits, and the last gap', async () => {
  const { trail, log, queue, stop } = setUp('continue', 2);
  await stop();
  for (let at = 0; at < 5; at++) trail.note(event(at));
  assert.equal(queue.depth, 2);
  await trail.close();
  assert.deepEqual(
    log.entries.map(({ op, time_ms }) => time_ms ?? op),
    ['gap', 3, 4],
  );
  assert.equal(await trail.record(event(9), NEVER), undefined);
});
