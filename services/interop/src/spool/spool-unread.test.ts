/** Parts of the spool that the disk cannot read at a start: their deliveries are kept, and sent once it can. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { NEVER } from '@ron/kernel';
import { FaultyDisk } from '@ron/log/testing';
import { eventually, tempDirFor } from '@ron/testkit';
import { deliveryOf, drain, FakeMailbox, openSpool, takeAll, ulidOf } from './testing/make.ts';
import type { Spool } from './spool.ts';

/** Four deliveries of 500 bytes in a segment. */
const SMALL = { bytes_max: 512 * 1024, segment_bytes: 4096 };
const RECORD_BYTES = 832;
const FIRST = '00000001-';

interface Closed {
  readonly disk: FaultyDisk;
  readonly open: typeof openSpool;
  readonly files: () => Promise<string[]>;
}

interface Given {
  readonly bytes?: number;
  readonly segment_bytes?: number;
  /** So many of the first are settled. */
  readonly settled?: number;
}

/** A spool that was closed with these deliveries. */
async function closed(t: TestContext, deliveries: readonly number[], given: Given = {}): Promise<Closed> {
  const { bytes = 500, segment_bytes = SMALL.segment_bytes, settled = 0 } = given;
  const disk = new FaultyDisk();
  const dir = tempDirFor(t);
  const open = (some = {}) => openSpool({ dir, fs: disk, ...SMALL, ...some });
  const { spool } = await open({ segment_bytes });
  for (const n of deliveries) await spool.append(deliveryOf(n, 'p', bytes), NEVER);
  spool.settle(spool.take({ messages: settled, bytes: Infinity }, () => settled));
  await spool.close();
  return { disk, open, files: () => readdir(join(dir, 'segments')) };
}

const range = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, at) => from + at);
const idsOf = (from: number, to: number): string[] => range(from, to).map(ulidOf);

/** Tries the unread segments until the disk can read them. */
const readLate = async (spool: Spool): Promise<void> =>
  await eventually('they are read', async () => {
    await spool.maintain(NEVER);
    return spool.unread_segments === 0;
  });

test('[interop I-2] deliveries that a start could not read are kept while others are sent, and then sent too', async (t) => {
  const { disk, open, files } = await closed(t, range(1, 20));
  disk.badSector(FIRST, 0, Infinity);
  const { spool, events } = await open();
  assert.ok(spool.count > 0 && spool.count < 20);
  const problem = 'the disk cannot read a part of segment 1';
  assert.deepEqual(events, [{ kind: 'spool part unreadable', problem }]);
  assert.equal(spool.problem, `${problem} of the spool: its webhooks wait`);
  const { mailbox, stop } = drain(spool);
  const unread_bytes = spool.bytes - 16 * RECORD_BYTES;
  await eventually('the others are sent and removed', () => spool.bytes === unread_bytes);
  await spool.append(deliveryOf(30, 'p', 500), NEVER);
  await eventually('a newer one is sent too', () => spool.count === 0);
  assert.equal(mailbox.stored.at(-1), ulidOf(30));
  assert.ok((await files()).some((file) => file.startsWith(FIRST)));
  const early = mailbox.stored.length;
  disk.mend();
  await eventually('all are sent', () => mailbox.stored.length === 21);
  assert.deepEqual(mailbox.stored.slice(early), idsOf(1, 21 - early), 'in their order');
  await eventually('the segment is removed', () => spool.bytes === 0);
  assert.equal(spool.problem, undefined);
  assert.deepEqual(
    events.filter(({ kind }) => kind === 'spool part read' || kind === 'spool damaged'),
    [{ kind: 'spool part read', segment: 1, deliveries: 21 - early }],
  );
  await stop();
  await spool.close();
});

test('a start during which every read fails loses nothing, even if the disk recovers after the next start only', async (t) => {
  const { disk, open } = await closed(t, range(1, 20));
  disk.fail('.seg', 'EIO', 'read');
  const { spool } = await open();
  assert.equal(spool.count, 0);
  const { mailbox, stop } = drain(spool);
  for (let round = 0; round < 3; round += 1) await spool.removeSettled(NEVER);
  await stop();
  await spool.close();
  assert.deepEqual(mailbox.stored, []);
  disk.mend();
  const { spool: again } = await open();
  assert.deepEqual(
    (await takeAll(again)).map(({ id }) => id),
    idsOf(1, 20),
  );
  await again.close();
});

test('a bad sector in the newest segment holds back its own delivery only; newer ones are stored behind it', async (t) => {
  const segment_bytes = 128 * 1024;
  const { disk, open } = await closed(t, range(1, 20), { bytes: 5000, segment_bytes });
  disk.badSector(FIRST, 40_000, 40_001);
  const { spool, events } = await open({ segment_bytes });
  assert.deepEqual(
    events.map(({ kind }) => kind),
    ['spool part unreadable'],
  );
  const { mailbox, stop } = drain(spool);
  await spool.append(deliveryOf(21, 'p', 5000), NEVER);
  await eventually('the others are sent', () => spool.count === 0);
  const held = idsOf(1, 21).filter((id) => !mailbox.stored.includes(id));
  assert.ok(held.length >= 1 && held.length <= 2, held.join());
  assert.deepEqual(
    mailbox.stored,
    idsOf(1, 21).filter((id) => !held.includes(id)),
  );
  disk.mend();
  await eventually('all are sent', () => mailbox.stored.length === 21);
  assert.deepEqual(mailbox.stored.slice(-held.length), held, 'those that were sent are not sent again');
  await eventually('the segment is removed', () => spool.bytes === 0);
  await stop();
  await spool.close();
});

test('late deliveries go in front of those of their provider that wait; one that is being written stays behind', async (t) => {
  const { disk, open } = await closed(t, range(1, 10));
  disk.badSector(FIRST, 0, Infinity);
  const { spool } = await open();
  disk.mend();
  disk.hold('.seg', 'sync');
  const append = spool.append(deliveryOf(11, 'p', 500), NEVER);
  await eventually('it is being written', () => disk.waiting > 0);
  await readLate(spool);
  disk.mend();
  await append;
  assert.deepEqual(
    (await takeAll(spool)).map(({ id }) => id),
    idsOf(1, 11),
  );
  await spool.close();
});

test('a late delivery that was settled is not sent again', async (t) => {
  const { disk, open } = await closed(t, range(1, 10), { settled: 3 });
  disk.badSector(FIRST, 0, Infinity);
  const { spool } = await open();
  disk.mend();
  await readLate(spool);
  assert.deepEqual(
    (await takeAll(spool)).map(({ id }) => id),
    idsOf(4, 10),
  );
  await spool.close();
});

test('one delivery of a key is sent: the one that was accepted while the first could not be read, after a restart too', async (t) => {
  const { disk, open } = await closed(t, range(1, 10));
  disk.badSector(FIRST, 0, Infinity);
  const { spool } = await open();
  assert.deepEqual(await spool.append(deliveryOf(11, 'p', 500, 1), NEVER), { id: ulidOf(11), duplicate: false });
  disk.mend();
  disk.hold('.seg', 'sync');
  const pending = spool.append(deliveryOf(12, 'p', 500, 2), NEVER);
  await eventually('it is being written', () => disk.waiting > 0);
  await spool.maintain(NEVER);
  assert.equal(spool.unread_segments, 1, 'the append may fail: the first delivery is needed then');
  disk.mend();
  await pending;
  await readLate(spool);
  await spool.close();
  const { spool: again } = await open();
  const { mailbox, stop } = drain(again, new FakeMailbox());
  await eventually('all are sent', () => again.count === 0);
  assert.deepEqual(mailbox.stored, idsOf(3, 12));
  await stop();
  await again.close();
});

for (const restarts of [false, true])
  test(`deliveries that a start could not read come before those that it took, ${restarts ? 'after a restart too' : 'once it can'}`, async (t) => {
    const { disk, open } = await closed(t, range(1, 10));
    disk.fail('.seg', 'EIO', 'read');
    const opened = await open();
    let { spool } = opened;
    disk.mend();
    for (const n of range(11, 18)) await spool.append(deliveryOf(n, 'p', 500), NEVER);
    if (restarts) {
      await spool.close();
      ({ spool } = await open());
    } else await readLate(spool);
    assert.deepEqual(
      (await takeAll(spool)).map(({ id }) => id),
      idsOf(1, 18),
    );
    await spool.close();
  });

test('a delivery whose settled record could not be read leaves the spool once it can', async (t) => {
  const { disk, open, files } = await closed(t, range(1, 7), { settled: 2 });
  const newest = (await files()).toSorted().at(-1)!;
  disk.badSector(newest.slice(0, FIRST.length), 0, Infinity);
  const { spool } = await open();
  assert.ok(spool.count >= 4, 'the first two wait again');
  disk.mend();
  await readLate(spool);
  assert.deepEqual(
    (await takeAll(spool)).map(({ id }) => id),
    idsOf(3, 7),
  );
  await spool.close();
});

test('[interop I-9] a sector of the oldest segment that becomes bad does not fill the spool', async (t) => {
  const { disk, open } = await closed(t, []);
  const { spool, events } = await open({ segment_bytes: 32_768 });
  for (const n of range(1, 20)) await spool.append(deliveryOf(n, n === 1 ? 'stuck' : 'p', 1000), NEVER);
  // Of a delivery that is settled below.
  disk.badSector(FIRST, 9000, 9001);
  for (const n of range(21, 1000)) {
    spool.settle(spool.take({ messages: 128, bytes: Infinity }, (provider) => (provider === 'p' ? 128 : 0)));
    await spool.maintain(NEVER);
    const kept = await spool.append(deliveryOf(n, 'p', 1000), NEVER);
    assert.notEqual(kept, 'full', `delivery ${n}`);
  }
  assert.deepEqual(
    events.find(({ kind }) => kind === 'spool part unreadable'),
    {
      kind: 'spool part unreadable',
      problem: 'the disk cannot read a part of segment 1',
    },
  );
  disk.mend();
  await readLate(spool);
  const all = await takeAll(spool);
  assert.deepEqual(
    all.map(({ id }) => id),
    [ulidOf(1), ulidOf(1000)],
  );
  await spool.close();
});

test('a delivery that is settled in memory only does not return by a late read, even if the disk is full', async (t) => {
  const segment_bytes = 128 * 1024;
  const { disk, open } = await closed(t, range(1, 20), { bytes: 5000, segment_bytes });
  disk.badSector(FIRST, 40_000, 40_001);
  const { spool } = await open({ segment_bytes });
  assert.ok(spool.count >= 18);
  const unread = 20 - spool.count;
  spool.settle(spool.take({ messages: 128, bytes: Infinity }, () => 128));
  disk.mend();
  disk.fail('.seg', 'ENOSPC', 'write');
  await assert.rejects(spool.maintain(NEVER), { code: 'storage_full' });
  assert.equal(spool.count, 0);
  disk.mend();
  await eventually('the log is written again', () =>
    spool.maintain(NEVER).then(
      () => true,
      () => false,
    ),
  );
  await readLate(spool);
  assert.equal(spool.count, unread);
  await spool.close();
});
