import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, isRonError, Mpsc, RonError } from '@ron/kernel';
import { encodeEvent, type AuditEvent, type LogEntry } from './event.ts';
import { Summaries } from './summaries.ts';
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
  subject: 's',
  chain: [],
});
const entry = (time_ms: number): LogEntry => ({ bytes: encodeEvent(event(time_ms)), time_ms });

/** A log whose appends end when the test ends them. */
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
    summaries: new Summaries(() => 1),
    mode: () => mode,
    appendDeadline: () => Deadline.after('audit', append_ms),
    onDropped: (count) => (seen.dropped += count),
    onAppended: (count) => (seen.appended += count),
    onProblem: () => (seen.problems += 1),
  });
  const stop = new AbortController();
  const running = trail.run(stop.signal).catch(() => undefined);
  /** An operation that begins and ends immediately. */
  const record = (time_ms: number, signal = NEVER): Promise<number | undefined> => {
    trail.begin();
    return trail.record(entry(time_ms), signal);
  };
  const note = (time_ms: number): void => {
    trail.begin();
    trail.note(entry(time_ms));
  };
  return { log, queue, trail, seen, record, note, stop: () => (stop.abort(), running) };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('events get consecutive indexes in the order of recording', async () => {
  const { record, log, stop } = setUp('strict', 64);
  const places = await Promise.all(Array.from({ length: 40 }, (_, at) => record(at)));
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

test('continue: if the log stalls, the oldest events are dropped and recorded as a gap', async () => {
  const { record, log, seen, stop } = setUp('continue', 4);
  log.isHeld = true;
  const first = record(0);
  await turn();
  const rest = Array.from({ length: 6 }, (_, at) => record(at + 1));
  // Two more than fit: after their wait they displace the two oldest.
  assert.deepEqual(await Promise.race([rest[0], rest[1]]), undefined);
  assert.equal(await rest[1], undefined);
  log.release();
  assert.equal(await first, 0);
  assert.deepEqual(await Promise.all(rest.slice(2)), [2, 3, 4, 5]);
  assert.deepEqual(log.entries[1], { op: 'gap', count: 2, from: 1, to: 2 });
  // [kms I-3]
  assert.equal(seen.dropped, 2);
  await stop();
});

test('continue: operations proceed without a slow append, and its entries are still written', async () => {
  const { record, log, stop } = setUp('continue', 4, 20);
  log.isHeld = true;
  assert.equal(await record(0), undefined);
  log.release();
  assert.equal(await record(1), 1);
  assert.equal(log.entries.length, 2);
  await stop();
});

test('a failing log: strict refuses, continue proceeds and records the gap later', async () => {
  for (const mode of ['strict', 'continue'] as const) {
    const { trail, record, log, seen, stop } = setUp(mode);
    log.failure = new RonError('storage_full', 'the disk is full');
    const recorded = record(5);
    if (mode === 'continue') assert.equal(await recorded, undefined);
    else await assert.rejects(recorded, /the disk is full/);
    assert.match(trail.problem ?? '', /full/);
    assert.deepEqual([seen.dropped, seen.problems], [1, 1]);
    log.failure = undefined;
    assert.equal(await record(6), 1);
    assert.deepEqual(log.entries[0], { op: 'gap', count: 1, from: 5, to: 5 });
    assert.equal(trail.problem, undefined);
    await stop();
  }
});

test('flushed occupies no slot in the queue and does not wait for later events', async () => {
  const { trail, log, seen, record, stop } = setUp('strict', 2);
  log.isHeld = true;
  const first = record(0);
  await turn();
  const before = [record(1), record(2)];
  let isFlushed = false;
  const flushed = trail.flushed(NEVER).then(() => (isFlushed = true));
  await turn();
  assert.equal(isFlushed, false);
  const leaving = new AbortController();
  const left = trail.flushed(leaving.signal);
  leaving.abort(new Error('left'));
  await assert.rejects(left, /left/);
  log.release();
  await flushed;
  assert.deepEqual(await Promise.all([first, ...before]), [0, 1, 2]);
  assert.equal(seen.dropped, 0);
  await stop();
});

test('an operation whose caller aborts while it waits for room is still recorded', async () => {
  for (const mode of ['strict', 'continue'] as const) {
    const { log, seen, record, stop } = setUp(mode, 1);
    log.isHeld = true;
    const first = record(0);
    await turn();
    const second = record(1);
    const leaving = new AbortController();
    const third = record(2, leaving.signal);
    leaving.abort(new Error('its time is over'));
    if (mode === 'strict') await assert.rejects(third, /its time is over/);
    else assert.equal(await second, undefined, 'it was dropped for the third');
    log.release();
    assert.equal(await first, 0);
    assert.equal(await (mode === 'strict' ? second : third), 2);
    assert.deepEqual(log.entries[1], {
      op: 'gap',
      count: 1,
      from: mode === 'strict' ? 2 : 1,
      to: mode === 'strict' ? 2 : 1,
    });
    assert.equal(seen.dropped, 1);
    await stop();
  }
});

test('strict: if the log stalls, new events are refused; completed operations without room are recorded as a gap', async () => {
  const { log, seen, record, note, stop } = setUp('strict', 1);
  log.isHeld = true;
  const first = record(0);
  await turn();
  const second = record(1);
  note(2);
  await assert.rejects(record(3), (error) => isRonError(error, 'degraded_audit'));
  log.release();
  assert.deepEqual(await Promise.all([first, second]), [0, 2]);
  assert.deepEqual(log.entries[1], { op: 'gap', count: 2, from: 2, to: 3 });
  assert.equal(seen.dropped, 2);
  await stop();
});

test('a gap is written once the log recovers, even if no event follows', async () => {
  const { trail, log, record, stop } = setUp('continue');
  log.failure = new RonError('storage_full', 'the disk is full');
  assert.equal(await record(5), undefined);
  log.failure = undefined;
  while (log.entries.length === 0) await turn();
  assert.deepEqual(log.entries, [{ op: 'gap', count: 1, from: 5, to: 5 }]);
  assert.equal(trail.problem, undefined);
  await stop();
});

test('a gap and summaries that were not written are written with those that follow', async () => {
  const { trail, log, record, stop } = setUp('continue');
  await stop();
  log.failure = new RonError('storage_full', 'the disk is full');
  trail.begin(3);
  trail.count({ ...event(3), op: 'verify' });
  trail.count({ ...event(4), op: 'verify' });
  trail.cancel();
  // The first append loses its event; the second fails with the gap in it.
  const running = [new AbortController(), new AbortController()];
  for (const [at, until] of running.entries()) {
    const appending = trail.run(until.signal).catch(() => undefined);
    assert.equal(await record(5 + at), undefined);
    until.abort();
    await appending;
  }
  log.failure = undefined;
  await trail.close();
  assert.deepEqual(log.entries[0], { op: 'gap', count: 2, from: 5, to: 6 });
  const { op, results } = log.entries[1] as { op: string; results?: unknown };
  assert.deepEqual([log.entries.length, op, results], [2, 'summary', { 'verify ok': 2 }]);
});

test('operations that are pending at close are recorded in the last gap and refused afterwards, in both modes', async () => {
  for (const mode of ['strict', 'continue'] as const) {
    const { trail, log, record, stop } = setUp(mode, 4);
    assert.equal(await record(1), 0);
    // One that completes, one whose result is not awaited, one that is cancelled.
    trail.begin(3);
    await stop();
    const closing = trail.close();
    trail.cancel();
    await closing;
    assert.deepEqual([log.entries.length, log.entries[1]?.op, log.entries[1]?.count], [2, 'gap', 2]);
    const isDraining = (error: unknown): boolean => isRonError(error, 'draining');
    await assert.rejects(trail.record(entry(9), NEVER), isDraining);
    trail.note(entry(9));
    assert.throws(() => trail.begin(), isDraining);
    assert.equal(log.entries.length, 2);
  }
});

test('close writes the waiting events and the last gap', async () => {
  const { trail, note, log, queue, stop } = setUp('continue', 2);
  await stop();
  for (let at = 0; at < 5; at++) note(at);
  assert.equal(queue.depth, 2);
  await trail.close();
  assert.deepEqual(
    log.entries.map(({ op, time_ms }) => time_ms ?? op),
    ['gap', 3, 4],
  );
  assert.throws(() => note(9), /closed/);
});
