/** Crashes at every operation of the disk, damage on it, and the starts after them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkReceipt } from '@ron/client/webhook-receipt';
import { isRonError, NEVER } from '@ron/kernel';
import { CrashFileSystem, FaultyDisk } from '@ron/log/testing';
import { eventually, tempDirFor } from '@ron/testkit';
import {
  FakeKms,
  idNow,
  openTest,
  receiptAt,
  receiptOf,
  receiptsOf,
  running,
  signedOf,
  type OpenTest,
} from './testing/receipts.ts';

/** Draws the same numbers in each run. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 16_807) % 2_147_483_647) / 2_147_483_647;
}

async function signAll({ receipts }: OpenTest, ids: readonly string[]): Promise<void> {
  await using _ = running(receipts);
  for (const id of ids) await receipts.untilSigned(id, NEVER);
}

const idsOf = (first: number, count: number): string[] => receiptsOf(first, count).map(({ id }) => id);
const segmentOf = (fs: CrashFileSystem): string => [...fs.files().keys()].find((path) => path.endsWith('.seg'))!;

test('[interop I-2] no crash loses an acknowledged receipt or its signature, or makes a second receipt of an id', async (t) => {
  const kms = new FakeKms();
  const fs = new CrashFileSystem();
  /** Operations of the disk when the calls were acknowledged. */
  const at = { first: 0, signed: 0, second: 0 };
  {
    const opened = await openTest(fs, { kms });
    await using receipts = opened.receipts;
    await receipts.append(receiptsOf(0, 3), NEVER);
    at.first = fs.operations;
    await signAll(opened, idsOf(0, 3));
    at.signed = fs.operations;
    await receipts.append(receiptsOf(3, 2), NEVER);
    at.second = fs.operations;
  }
  let images = 0;
  for (let operations = 0; operations <= fs.operations; operations += 1) {
    for (const image of fs.imagesAt(operations, 6, numbers(operations + 1))) {
      images += 1;
      const opened = await openTest(new CrashFileSystem(image), { kms });
      await using receipts = opened.receipts;
      const about = `after ${operations} operations`;
      for (const id of idsOf(0, 3)) assert.ok(operations < at.first || receipts.has(id), about);
      for (const id of idsOf(3, 2)) assert.ok(operations < at.second || receipts.has(id), about);
      const found = idsOf(0, 5).filter((id) => receipts.has(id)).length;
      for (const id of idsOf(0, 3)) if (operations >= at.signed) await signedOf(receipts, id);
      // The providers send again.
      await receipts.append(
        receiptsOf(0, 5).map((receipt) => ({ ...receipt, received_ms: 7 })),
        NEVER,
      );
      assert.equal(receipts.totals['stored'], 5 - found, about);
      await signAll(opened, idsOf(0, 5));
      for (const id of idsOf(0, 5)) {
        assert.ok((await checkReceipt(await signedOf(receipts, id), { keys: kms.keys })).ok, about);
      }
      assert.deepEqual(
        opened.events.filter(({ kind }) => kind === 'receipts problem'),
        [],
        'a torn tail does not count as damage',
      );
    }
  }
  t.diagnostic(`${images} starts`);
});

test('receipts that were unsigned at a stop are signed after the next start', async () => {
  const kms = new FakeKms();
  kms.isAway = true;
  const fs = new CrashFileSystem();
  {
    await using receipts = (await openTest(fs, { kms })).receipts;
    await receipts.append(receiptsOf(0, 4), NEVER);
  }
  kms.isAway = false;
  const opened = await openTest(fs, { kms });
  await using receipts = opened.receipts;
  assert.ok(receipts.sign_lag_ms < 60_000 && receipts.totals['stored'] === 0);
  await signAll(opened, idsOf(0, 4));
  assert.equal((await signedOf(receipts, receiptOf(2).id)).tree.index, 2);
});

test('a damaged receipt is reported and refused, and the others are signed', async () => {
  const kms = new FakeKms();
  const fs = new CrashFileSystem();
  const { events, receipts } = await openTest(fs, { kms });
  await using _ = receipts;
  await receipts.append(receiptsOf(0, 4), NEVER);
  const text = Buffer.from(receiptOf(1).id);
  fs.damage(segmentOf(fs), (bytes) => {
    bytes[Buffer.from(bytes).indexOf(text)]! ^= 1;
    return bytes;
  });
  await using task = running(receipts);
  await receipts.untilSigned(receiptOf(3).id, NEVER);
  for (const number of [0, 2, 3]) await signedOf(receipts, receiptOf(number).id);
  await assert.rejects(receipts.get(receiptOf(1).id, NEVER), (error) => isRonError(error, 'integrity'));
  assert.equal(receipts.totals['damaged'], 1);
  assert.ok(events.some((event) => event.kind === 'receipts problem' && /cannot be signed/.test(event.problem)));
  assert.ok(task);
});

test('no receipt is lost while the disk cannot be read: all are late, and signed once it can', async (t) => {
  const kms = new FakeKms();
  const disk = new FaultyDisk();
  const { events, receipts } = await openTest(disk, { dir: tempDirFor(t), kms });
  await using _ = receipts;
  await receipts.append(receiptsOf(0, 4), NEVER);
  disk.fail('.seg', 'EIO', 'read');
  await using task = running(receipts);
  const problem = 'cannot sign receipts: the disk failed (EIO)';
  await eventually('the failure is reported', () => events.length > 0);
  assert.deepEqual(events, [{ kind: 'receipts problem', problem }]);
  await eventually('the lag of the gate grows', () => receipts.sign_lag_ms > 500);
  disk.mend();
  for (const number of [0, 1, 2, 3]) {
    await receipts.untilSigned(receiptOf(number).id, NEVER);
    await signedOf(receipts, receiptOf(number).id);
  }
  assert.equal(receipts.totals['damaged'], 0);
  assert.ok(task);
});

test('a damaged batch is reported at the start, and its receipts are signed again', async () => {
  const kms = new FakeKms();
  const fs = new CrashFileSystem();
  {
    const opened = await openTest(fs, { kms });
    await using receipts = opened.receipts;
    await receipts.append(receiptsOf(0, 2), NEVER);
    await signAll(opened, idsOf(0, 2));
    await receipts.append(receiptsOf(2, 1), NEVER);
  }
  fs.damage(segmentOf(fs), (bytes) => {
    bytes[Buffer.from(bytes).indexOf('signature_b64')]! ^= 1;
    return bytes;
  });
  const opened = await openTest(fs, { kms });
  await using receipts = opened.receipts;
  assert.ok(opened.events.some((event) => event.kind === 'receipts problem' && /is damaged: gap/.test(event.problem)));
  assert.equal((await receipts.get(receiptOf(0).id, NEVER))?.signed, undefined);
  await signAll(opened, idsOf(0, 3));
  for (const id of idsOf(0, 3)) {
    assert.ok((await checkReceipt(await signedOf(receipts, id), { keys: kms.keys })).ok);
  }
});

test('retention removes old segments whole, with their files, and never one with unsigned receipts', async () => {
  const kms = new FakeKms();
  const fs = new CrashFileSystem();
  const { receipts } = await openTest(fs, { kms, max_age_ms: 1 });
  await using _ = receipts;
  await receipts.append(receiptsOf(0, 2), NEVER);
  const first = segmentOf(fs);
  {
    await using task = running(receipts);
    await receipts.untilSigned(receiptOf(1).id, NEVER);
    // The newest segment stays until another one begins.
    for (let number = 2; receipts.has(receiptOf(0).id); number += 1) {
      await receipts.append([receiptOf(number)], NEVER);
      await receipts.untilSigned(receiptOf(number).id, NEVER);
    }
    await eventually('the file is removed', () => !fs.files().has(first));
    assert.ok(task);
  }
  kms.isAway = true;
  await receipts.append([receiptOf(5000)], NEVER);
  const { removed = 0 } = receipts.totals;
  await using task = running(receipts);
  // The segment of the unsigned receipt ends, because it is too old, and another one begins.
  const segments = (): number => [...fs.files().keys()].filter((path) => path.endsWith('.seg')).length;
  let number = 5001;
  await eventually('two segments', async () => {
    await receipts.append([receiptOf(number++)], NEVER);
    return segments() >= 2;
  });
  await eventually('retention ran again', () => receipts.sign_lag_ms > 1500);
  assert.ok(receipts.has(receiptOf(5000).id));
  assert.equal(await receipts.get(receiptOf(0).id, NEVER), undefined);
  assert.ok(removed > 0 && task);
});

test('a full disk refuses receipts, and none is acknowledged without being durable', async () => {
  const fs = new CrashFileSystem(new Map(), {
    before(operation) {
      if (operation === 'sync' && isFull) throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
    },
  });
  let isFull = false;
  const { receipts } = await openTest(fs, { kms: new FakeKms() });
  await using _ = receipts;
  await receipts.append([receiptOf(1)], NEVER);
  isFull = true;
  await assert.rejects(receipts.append([receiptOf(2)], NEVER), (error) => isRonError(error, 'storage_full'));
  assert.ok(!receipts.has(receiptOf(2).id));
  assert.match(receipts.problem!, /cannot be written/);
  isFull = false;
  await eventually('the disk is tried again', async () => {
    await receipts.append([receiptOf(2)], NEVER).catch(() => undefined);
    return receipts.has(receiptOf(2).id);
  });
});

test('only an id that was never in the log is restorable: not one that retention may have removed, after restarts too', async () => {
  const kms = new FakeKms();
  const fs = new CrashFileSystem();
  const early = receiptAt(Date.now() - 10_000);
  const before = idNow();
  {
    const { receipts } = await openTest(fs, { kms });
    await using _ = receipts;
    assert.ok(receipts.isRestorable(early.id), 'nothing was ever removed');
    await receipts.append([early], NEVER);
  }
  {
    const { receipts } = await openTest(fs, { kms });
    await using _ = receipts;
    await using task = running(receipts);
    assert.ok(receipts.isRestorable(before), 'nothing was removed yet');
    let last = early.id;
    for (let first = 0; receipts.has(early.id); first += 128) {
      await receipts.append(receiptsOf(first, 128), NEVER);
      last = receiptOf(first).id;
      await receipts.untilSigned(last, NEVER);
    }
    assert.ok(!receipts.isRestorable(early.id) && !receipts.isRestorable(before));
    await eventually('one that came after the removed ones is', () => receipts.isRestorable(idNow()));
    assert.ok(!receipts.isRestorable(receiptAt(Date.now() + 60_000).id), 'one that did not come yet');
    await eventually('the file is removed', () => [...fs.files().keys()].every((path) => !path.includes('/00000001-')));
    assert.ok(task);
  }
  const { receipts } = await openTest(fs, { kms });
  await using _ = receipts;
  assert.ok(!receipts.isRestorable(early.id) && !receipts.isRestorable(before));
  await eventually('a later one is', () => receipts.isRestorable(idNow()));
});

test('no older id is restorable after the operator has accepted the loss of an earlier log', async () => {
  const fs = new CrashFileSystem();
  const older = idNow();
  {
    const { receipts } = await openTest(fs, { isReplaced: true });
    await receipts[Symbol.asyncDispose]();
  }
  for (let start = 0; start < 2; start += 1) {
    const { receipts } = await openTest(fs);
    await using _ = receipts;
    assert.ok(!receipts.isRestorable(older));
    await eventually('a later one is', () => receipts.isRestorable(idNow()));
  }
});

test('no older id is restorable if the directory was replaced, or a part of the log is damaged', async () => {
  const fs = new CrashFileSystem();
  const receipt = receiptAt(Date.now());
  {
    const { receipts } = await openTest(fs, { isReplaced: true });
    await using _ = receipts;
    assert.ok(!receipts.isRestorable(idNow()));
    await eventually('a later one is', () => receipts.isRestorable(idNow()));
    await receipts.append([receipt, receiptOf(2)], NEVER);
  }
  fs.damage(segmentOf(fs), (bytes) => {
    bytes[Buffer.from(bytes).indexOf(receipt.id)]! ^= 1;
    return bytes;
  });
  const { receipts } = await openTest(fs);
  await using _ = receipts;
  assert.ok(!receipts.has(receipt.id) && !receipts.isRestorable(receipt.id));
});
