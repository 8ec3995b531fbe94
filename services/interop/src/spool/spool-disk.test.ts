/** The spool on a disk that is full, failing or read-only: a typed error, no loss, and it recovers. */
import assert from 'node:assert/strict';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError, NEVER } from '@ron/kernel';
import { CrashFileSystem, FaultyDisk } from '@ron/log/testing';
import { eventually, mountTmpfs, NO_MOUNT, tempDirFor } from '@ron/testkit';
import { deliveryOf, drain, openSpool, takeAll, ulidOf } from './testing/make.ts';
import type { Spool } from './spool.ts';

const MIB = 1024 * 1024;
const LIMITS = { bytes_max: 64 * 1024, segment_bytes: 4096 };

/** Appends until one is refused; returns the accepted ids. */
async function fill(spool: Spool, first: number, bytes: number, providers: readonly string[]): Promise<string[]> {
  const accepted: string[] = [];
  for (let n = first; ; n++) {
    const delivery = deliveryOf(n, providers[n % providers.length], bytes);
    try {
      if ((await spool.append(delivery, NEVER)) === 'full') return accepted;
    } catch (error) {
      assert.ok(isRonError(error, 'storage_full'), String(error));
      return accepted;
    }
    accepted.push(delivery.id);
  }
}

test('[interop I-3] [interop I-9] the log stays within its bytes, with the space for moves and settled records left free', async () => {
  const fs = new CrashFileSystem();
  const { spool } = await openSpool({ fs, ...LIMITS });
  const accepted = await fill(spool, 1, 500, ['a', 'b', 'c']);
  assert.ok(spool.bytes <= LIMITS.bytes_max - 2 * LIMITS.segment_bytes, `${spool.bytes} bytes`);
  assert.ok(spool.bytes > LIMITS.bytes_max - 3 * LIMITS.segment_bytes, `${spool.bytes} bytes`);
  assert.match(spool.problem!, /the spool is 9\d % full/);
  assert.equal((await takeAll(spool)).length, accepted.length);
  await spool.close();
});

test('one provider gets half of the bytes', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem(), ...LIMITS });
  await fill(spool, 1, 500, ['a']);
  const room = LIMITS.bytes_max - 2 * LIMITS.segment_bytes;
  assert.ok(spool.bytes <= room / 2 && spool.bytes > room / 2 - 2048, `${spool.bytes} bytes`);
  assert.match(spool.problem!, /part of a/);
  assert.notEqual(await spool.append(deliveryOf(1000, 'b', 500), NEVER), 'full');
  await spool.close();
});

for (const [code, expected] of [
  ['ENOSPC', 'storage_full'],
  ['EIO', 'not_ready'],
] as const)
  for (const failing of ['write', 'sync'] as const)
    test(`a ${failing} that fails with ${code} is ${expected}; nothing accepted is lost, and a retry is stored`, async (t) => {
      const disk = new FaultyDisk();
      const dir = tempDirFor(t);
      const { spool, events } = await openSpool({ dir, fs: disk });
      await spool.append(deliveryOf(1), NEVER);
      disk.fail('.seg', code, failing);
      await assert.rejects(spool.append(deliveryOf(2), NEVER), { code: expected });
      assert.ok(spool.problem !== undefined);
      assert.equal(spool.idOf(deliveryOf(2).idempotency_key), undefined);
      disk.mend();
      const { mailbox, stop } = drain(spool);
      // The log refuses appends for a while after a failure.
      await eventually('the disk is probed', () => spool.problem === undefined);
      assert.deepEqual(await spool.append(deliveryOf(2), NEVER), { id: ulidOf(2), duplicate: false });
      await eventually('both are sent', () => mailbox.stored.length === 2);
      await stop();
      await spool.close();
      assert.deepEqual(mailbox.stored, [ulidOf(1), ulidOf(2)]);
      const kinds = events.map(({ kind }) => kind);
      assert.ok(kinds.indexOf('spool problem') < kinds.indexOf('spool recovered'), kinds.join());
    });

test('deliveries are sent from a disk that fails every write, once each', async (t) => {
  const disk = new FaultyDisk();
  const { spool } = await openSpool({ dir: tempDirFor(t), fs: disk });
  for (const n of [1, 2, 3]) await spool.append(deliveryOf(n), NEVER);
  disk.fail('.seg', 'EROFS', 'create', 'write', 'sync', 'remove');
  const { mailbox, stop } = drain(spool);
  await eventually('all are sent', () => spool.count === 0);
  await stop();
  assert.deepEqual(mailbox.stored, [1, 2, 3].map(ulidOf));
  assert.equal(mailbox.calls.flat().length, 3);
  disk.mend();
  await spool.close();
});

test('a full file system refuses with storage_full; the accepted deliveries survive a restart, and drain', async (t) => {
  const dir = tempDirFor(t);
  using mount = mountTmpfs(dir, '6m');
  if (mount === undefined) return t.skip(NO_MOUNT);
  const init = { dir, bytes_max: 32 * MIB };
  const { spool, events } = await openSpool(init);
  const accepted = await fill(spool, 1, 100_000, ['a', 'b']);
  assert.ok(accepted.length > 40, `${accepted.length} deliveries`);
  assert.ok(events.some(({ kind }) => kind === 'spool problem'));
  await spool.close();
  const { spool: again } = await openSpool(init);
  const { mailbox, stop } = drain(again);
  await eventually('all are sent, and the space is free', () => again.count === 0 && again.bytes === 0);
  await stop();
  assert.deepEqual(mailbox.stored.toSorted(), accepted.toSorted());
  assert.equal((await fill(again, 5000, 100_000, ['a', 'b'])).length, accepted.length);
  await again.close();
});

test('a read-only file system: the deliveries in the spool are sent, new ones are refused', async (t) => {
  const dir = tempDirFor(t);
  using mount = mountTmpfs(dir, '6m');
  if (mount === undefined) return t.skip(NO_MOUNT);
  const { spool } = await openSpool({ dir });
  await spool.append(deliveryOf(1), NEVER);
  await spool.close();
  assert.ok(mount.remount('ro'));
  const { spool: again } = await openSpool({ dir });
  assert.match(again.problem!, /read-only/);
  await assert.rejects(again.append(deliveryOf(2), NEVER), { code: 'not_ready' });
  const { mailbox, stop } = drain(again);
  await eventually('it is sent', () => mailbox.stored.length === 1);
  await stop();
  await again.close();
  assert.ok(mount.remount('rw'));
  const { spool: last } = await openSpool({ dir });
  assert.equal(last.count, 1, 'it is sent again, as a duplicate');
  await last.close();
});

test('`bytes` is the size of the files', async (t) => {
  const dir = tempDirFor(t);
  const { spool } = await openSpool({ dir });
  for (let n = 1; n <= 20; n++) await spool.append(deliveryOf(n, 'p', n * 100), NEVER);
  const segments = join(dir, 'segments');
  let bytes = 0;
  for (const name of await readdir(segments)) bytes += (await stat(join(segments, name))).size;
  assert.equal(spool.bytes, bytes);
  await spool.close();
});
