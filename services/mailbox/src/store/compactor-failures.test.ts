/** The task of the compactor on a disk that fails or is full: it reports, waits, and goes on. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VirtualSched } from '@ron/kernel/testing';
import { MemoryDisk } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { Compactor, type CompactorEvent } from './compactor.ts';
import { acked, messageOf, NEVER, openNaive } from './testing/make.ts';

const MIB = 1024 * 1024;

/** Turns of the event loop in which the virtual clock stands still. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 60; turn++) await new Promise((resolve) => setImmediate(resolve));
}

test('a failing disk is retried after a growing backoff, never in a hot loop', async () => {
  let isFailing = false;
  let attempts = 0;
  const disk = new CrashFileSystem(new Map(), {
    before: (operation) => {
      if (!isFailing || operation !== 'remove') return;
      attempts += 1;
      throw Object.assign(new Error('EIO'), { code: 'EIO' });
    },
  });
  const { log, state } = await openNaive(disk, { segment_bytes: 4096 });
  const sent = await log.appendMessages([messageOf('a', 1, 3000)], NEVER);
  await log.appendMessages([messageOf('a', 2, 3000)], NEVER);
  await log.appendSettled([acked(sent[0]!, 'a')], NEVER);
  isFailing = true;
  const clock = new VirtualSched();
  await clock.during(async () => {
    const events: CompactorEvent[] = [];
    const stop = new AbortController();
    const compactor = new Compactor({ log, live: state, onEvent: (event) => void events.push(event) });
    const task = compactor.run(stop.signal);
    await turns();
    assert.equal(attempts, 1);
    await clock.advance(700);
    await turns();
    assert.equal(attempts, 1, 'not before a backoff of about a second');
    for (let minute = 0; minute < 10; minute++) {
      await clock.advance(60_000);
      await turns();
    }
    assert.ok(attempts <= 20, `${attempts} attempts in ten minutes`);
    assert.ok(events.every(({ kind }) => kind === 'compaction failed'));
    isFailing = false;
    await clock.advance(90_000);
    await turns();
    assert.equal(events.at(-1)?.kind, 'segment removed');
    stop.abort(new Error('stop'));
    await assert.rejects(task, /stop/);
  });
  assert.deepEqual([...state.messages.keys()].length, 1);
  assert.equal(log.check(), undefined);
  await log.close();
});

test('on a full disk, a segment with many live messages is not moved into the reserve', async () => {
  const disk = new MemoryDisk(64 * MIB);
  const { log, state } = await openNaive(disk, { segment_bytes: 16 * MIB });
  const sent: number[] = [];
  const fill = async (): Promise<void> => {
    for (;;) sent.push(...(await log.appendMessages([messageOf('a', 1, 500_000)], NEVER)));
  };
  await assert.rejects(fill(), { code: 'storage_full' });
  const events: CompactorEvent[] = [];
  const compactor = new Compactor({ log, live: state, onEvent: (event) => void events.push(event) });
  // More than half is settled, but the oldest segment is all live.
  const oldest = log.log.files.numbers()[0]!;
  const settled = sent.filter((seq) => state.messages.get(seq)!.place.segment !== oldest);
  for (const seq of settled) await log.appendSettled([acked(seq, 'a')], NEVER);
  await log.reserve.measure();
  await assert.rejects(compactor.pass(NEVER), { code: 'storage_full' });
  // Acks go on, and then the space comes back.
  for (const seq of sent.filter((each) => state.messages.has(each)).slice(2))
    await log.appendSettled([acked(seq, 'a')], NEVER);
  await compactor.pass(NEVER);
  await log.reserve.measure();
  assert.ok(log.reserve.free_bytes > 48 * MIB);
  assert.equal(state.messages.size, 2);
  await log.appendMessages([messageOf('a', 1, 500_000)], NEVER);
  await log.close();
});
