/** The task of the compactor on a disk that fails or is full: it reports, waits, and goes on. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { MemoryDisk } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { Compactor, type CompactorEvent } from './compactor.ts';
import { acked, messageOf, openNaive } from '../testing/make.ts';

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
  const oldest = log.segments.files.numbers()[0]!;
  const settled = sent.filter((seq) => state.messages.get(seq)!.place.segment !== oldest);
  for (const seq of settled) await log.appendSettled([acked(seq, 'a')], NEVER);
  // Another program uses the reserve.
  const other = await disk.create('/other');
  await other.write([Buffer.alloc(5 * MIB)], 0);
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

// [mailbox I-8]
for (const failing of ['create', 'write', 'sync'] as const) {
  test(`the last segment with a base stays when the next one cannot be made: ${failing} fails`, async () => {
    let isFailing = false;
    const disk = new CrashFileSystem(new Map(), {
      before: (operation) => {
        if (isFailing && operation === failing) throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
      },
    });
    const clock = new VirtualSched();
    await clock.during(async () => {
      const { log, state } = await openNaive(disk, { segment_bytes: 4096 });
      const [seq] = await log.appendMessages([messageOf('a', 1, 3000)], NEVER);
      await log.appendTopic('a', { max_messages: 5 }, NEVER);
      await log.appendSettled([acked(seq!, 'a')], NEVER);
      const last = log.seq_durable;
      isFailing = true;
      await assert.rejects(log.appendMessages([messageOf('a', 2, 3000)], NEVER), { code: 'storage_full' });
      isFailing = false;
      const compactor = new Compactor({ log, live: state, onEvent: () => undefined });
      // Within the time in which the log refuses appends after a failure, and after it.
      await compactor.pass(NEVER).catch(() => undefined);
      await compactor.compactOldest(NEVER).catch(() => undefined);
      const killed = await openNaive(new CrashFileSystem(disk.files()), { segment_bytes: 4096 });
      assert.deepEqual(killed.state.policies.get('a'), { max_messages: 5 });
      assert.deepEqual(killed.state.totals.get('a'), { sent: 1, acked: 1, dead: 0, gone: 0 });
      const [next] = await killed.log.appendMessages([messageOf('a', 3)], NEVER);
      assert.ok(next! > last);
      await killed.log.close();
      await clock.advance(10_000);
      assert.ok(await compactor.compactOldest(NEVER), 'the base is written first');
      assert.equal(log.check(), undefined);
      await log.close();
    });
  });
}
