import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, Mpsc, NEVER, RonError, sched, sleep, Watch } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { Checkpointer } from './checkpointer.ts';

const INTERVAL_MS = 1000;
const DEADLINE_MS = 1000;

/** A checkpointer whose log takes `takes_ms` per checkpoint, or fails. */
function setUp() {
  const log = { size: 0 };
  const state = { takes_ms: 10, failure: undefined as RonError | undefined, tried: 0, missed: 0, isDeaf: false };
  const covered = new Watch('checkpoint', 0);
  const checkpointer = new Checkpointer({
    log: {
      get size() {
        return log.size;
      },
      writeCheckpoint: async (signal) => {
        state.tried += 1;
        const { size } = log;
        await sleep(state.takes_ms, state.isDeaf ? NEVER : signal);
        if (state.failure !== undefined) throw state.failure;
        return { size, origin: 'log', root: new Uint8Array(32), text: '' };
      },
    },
    flushed: async () => undefined,
    due: new Mpsc('due', 1),
    covered,
    deadline: () => Deadline.after('checkpoint', DEADLINE_MS),
    interval_ms: () => INTERVAL_MS,
    every_ops: () => 100,
    recorder: { beforePublish: async () => undefined },
    onMissed: () => (state.missed += 1),
  });
  const stop = new AbortController();
  const start = (): Promise<void> => checkpointer.run(stop.signal).catch(() => undefined);
  return { log, state, covered, checkpointer, start, stop };
}

test('under load no checkpoint is late if each meets its deadline, and an entry waits at most an interval and a deadline', async () => {
  await new VirtualSched().during(async () => {
    const clock = sched as VirtualSched;
    const { log, state, covered, checkpointer, start, stop } = setUp();
    state.takes_ms = DEADLINE_MS - 100;
    const running = start();
    const appended_ms: number[] = [];
    for (let step = 0; step < 200; step++) {
      appended_ms.push(clock.now_ms());
      log.size += 1;
      checkpointer.appended();
      await clock.advance(50);
      assert.equal(checkpointer.problem, undefined, `at ${clock.now_ms()}`);
      const oldest_ms = appended_ms[covered.value] ?? clock.now_ms();
      assert.ok(clock.now_ms() - oldest_ms <= INTERVAL_MS + DEADLINE_MS, 'an entry waits too long');
    }
    stop.abort();
    await clock.advance(DEADLINE_MS);
    await running;
    assert.equal(state.missed, 0);
  });
});

test('a missed checkpoint is reported and retried soon, but not on every append; the next success restores readiness', async () => {
  await new VirtualSched().during(async () => {
    const clock = sched as VirtualSched;
    const { log, state, checkpointer, start, stop } = setUp();
    state.failure = new RonError('storage_full', 'the disk is full');
    const running = start();
    for (let step = 0; step < 100; step++) {
      log.size += 1000;
      checkpointer.appended();
      await clock.advance(20);
    }
    assert.match(checkpointer.problem ?? '', /the disk is full/);
    assert.ok(state.tried > 4 && state.tried < 15, `${state.tried} tries in 2 s`);
    state.failure = undefined;
    await clock.advance(INTERVAL_MS + DEADLINE_MS);
    assert.equal(checkpointer.problem, undefined);
    stop.abort();
    await clock.advance(DEADLINE_MS);
    await running;
  });
});

test('on a disk that is too slow each checkpoint is reported as missed but still takes effect', async () => {
  await new VirtualSched().during(async () => {
    const clock = sched as VirtualSched;
    const { log, state, covered, checkpointer } = setUp();
    // Like a file operation that has begun: it runs to its end.
    state.isDeaf = true;
    state.takes_ms = DEADLINE_MS + 200;
    for (let step = 1; step <= 3; step++) {
      log.size += 10;
      checkpointer.appended();
      const inTime = checkpointer.write();
      await clock.advance(DEADLINE_MS);
      assert.equal(await inTime, false);
      assert.deepEqual([state.missed, covered.value], [step, log.size - 10]);
      assert.match(checkpointer.problem ?? '', /the last checkpoint failed/);
      await clock.advance(200);
      assert.equal(covered.value, log.size, 'a completed checkpoint takes effect');
      assert.equal(checkpointer.problem, undefined);
    }
  });
});
