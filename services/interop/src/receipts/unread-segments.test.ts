/** Parts of the receipt log that the disk cannot read at a start: their receipts are kept, and return once it can. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { checkReceipt } from '@ron/client/webhook-receipt';
import { NEVER } from '@ron/kernel';
import { FaultyDisk } from '@ron/log/testing';
import { eventually, tempDirFor } from '@ron/testkit';
import {
  appendAll,
  FakeKms,
  idNow,
  openTest,
  receiptOf,
  receiptsOf,
  running,
  signedOf,
  type OpenTest,
} from './testing/receipts.ts';
import type { Receipts, ReceiptsInit } from './receipts.ts';

const FIRST = '00000001-';
/** More than a segment of 256 KiB has. */
const COUNT = 1000;

/** A log that was closed with `COUNT` receipts, of which the first `signed` are signed. */
async function closed(t: TestContext, signed: number) {
  const disk = new FaultyDisk();
  const kms = new FakeKms();
  const dir = tempDirFor(t);
  const open = (some: Partial<ReceiptsInit> = {}): Promise<OpenTest> => openTest(disk, { dir, kms, ...some });
  const { receipts } = await open();
  await using _ = receipts;
  if (signed > 0) {
    await appendAll(receipts, receiptsOf(0, signed));
    await using task = running(receipts);
    await receipts.untilSigned(receiptOf(signed - 1).id, NEVER);
    assert.ok(task);
  }
  await appendAll(receipts, receiptsOf(signed, COUNT - signed));
  return { disk, kms, open, files: () => readdir(join(dir, 'segments')) };
}

const missing = (receipts: Receipts): string[] =>
  receiptsOf(0, COUNT).flatMap(({ id }) => (receipts.has(id) ? [] : [id]));

test('receipts that a start could not read return as they were, with their signatures, and exist once', async (t) => {
  const { disk, kms, open } = await closed(t, 200);
  disk.badSector(FIRST, 8192, 20_000);
  const { receipts, events } = await open();
  const lost = missing(receipts);
  assert.ok(lost.length > 10 && lost.length < 100, `${lost.length} are missing`);
  const problem = 'the disk cannot read a part of segment 1';
  assert.deepEqual(events, [{ kind: 'receipts part unreadable', problem }]);
  assert.equal(receipts.problem, `${problem} of the receipts: those in it are missing`);
  assert.equal(receipts.totals['damaged'], 0);
  assert.ok(!receipts.isRestorable(idNow()));
  {
    await using _ = receipts;
    await using task = running(receipts);
    await receipts.untilSigned(receiptOf(COUNT - 1).id, NEVER);
    disk.mend();
    await eventually('they are back', () => events.at(-1)?.kind === 'receipts part read');
    assert.deepEqual(missing(receipts), []);
    assert.deepEqual(events.at(-1), { kind: 'receipts part read', segment: 1, receipts: lost.length });
    await eventually('the gate opens', () => receipts.problem === undefined);
    assert.ok(receipts.isRestorable(idNow()));
    assert.ok(task);
  }
  const again = await open();
  await using _ = again.receipts;
  assert.deepEqual(again.events, []);
  for (const number of [0, 50, 199, 200, 600, COUNT - 1]) {
    const signed = await signedOf(again.receipts, receiptOf(number).id);
    assert.deepEqual(signed.receipt, receiptOf(number));
    assert.ok((await checkReceipt(signed, { keys: kms.keys })).ok);
  }
});

test('retention keeps a segment that could not be read, and removes others; their receipts are not restored later', async (t) => {
  const { disk, open, files } = await closed(t, 0);
  const before = idNow();
  disk.badSector(FIRST, 0, Infinity);
  {
    const { receipts } = await open();
    await using _ = receipts;
    const lost = missing(receipts);
    assert.ok(lost.includes(receiptOf(0).id) && lost.length < COUNT);
    await using task = running(receipts);
    let last = COUNT;
    for (; receipts.totals['removed'] === 0; last += 128) {
      await receipts.append(receiptsOf(last, 128), NEVER);
      await receipts.untilSigned(receiptOf(last).id, NEVER);
    }
    await eventually(
      'a removed segment is gone',
      async () => !(await files()).some((file) => file.startsWith('00000002-')),
    );
    assert.ok((await files()).some((file) => file.startsWith(FIRST)));
    assert.ok(task);
  }
  disk.mend();
  const { receipts } = await open();
  await using _ = receipts;
  assert.doesNotMatch(receipts.problem ?? '', /cannot read/);
  assert.ok(!receipts.isRestorable(before), 'it may have been in a removed segment');
});

test('an unsigned receipt that a start could not read is signed once it was read', async (t) => {
  const { disk, kms, open } = await closed(t, 0);
  disk.badSector(FIRST, 0, 20_000);
  const { receipts } = await open();
  await using _ = receipts;
  const [lost] = missing(receipts);
  await using task = running(receipts);
  await receipts.untilSigned(receiptOf(COUNT - 1).id, NEVER);
  disk.mend();
  await eventually('it is back', () => receipts.has(lost!));
  await receipts.untilSigned(lost!, NEVER);
  assert.ok((await checkReceipt(await signedOf(receipts, lost!), { keys: kms.keys })).ok);
  assert.ok(task);
});

for (const when of ['is bad at the start', 'becomes bad later'] as const)
  test(`a sector that ${when} keeps no other receipt unsigned, and its own are signed once it is readable`, async (t) => {
    const { disk, open } = await closed(t, 0);
    const bad = (): void => disk.badSector(FIRST, 8192, 100_000);
    if (when === 'is bad at the start') bad();
    const { receipts, events } = await open();
    if (when === 'becomes bad later') bad();
    await using _ = receipts;
    await using task = running(receipts);
    await receipts.append([receiptOf(COUNT)], NEVER);
    for (const number of [0, COUNT - 1, COUNT]) {
      await receipts.untilSigned(receiptOf(number).id, NEVER);
      await signedOf(receipts, receiptOf(number).id);
    }
    await eventually('it is reported', () =>
      events.some((event) => /cannot read/.test('problem' in event ? event.problem : '')),
    );
    assert.equal(receipts.totals['damaged'], 0);
    disk.mend();
    for (const { id } of receiptsOf(0, COUNT)) {
      await eventually(`${id} is back`, () => receipts.has(id));
      await receipts.untilSigned(id, NEVER);
    }
    assert.equal(receipts.totals['damaged'], 0);
    assert.ok(task);
  });

test('a late read removes no newer receipt, and reports no success while there is no room for it', async (t) => {
  const { disk, open } = await closed(t, COUNT);
  disk.badSector(FIRST, 0, Infinity);
  const { receipts, events } = await open();
  await using _ = receipts;
  const late = missing(receipts);
  await using task = running(receipts);
  let last = COUNT;
  for (; receipts.kept + 400 < receipts.kept_max && receipts.totals['removed'] === 0; last += 128) {
    await receipts.append(receiptsOf(last, 128), NEVER);
    await receipts.untilSigned(receiptOf(last + 127).id, NEVER);
  }
  const newer = receiptsOf(COUNT, last - COUNT).filter(({ id }) => receipts.has(id));
  disk.mend();
  await eventually('some are back', () => late.some((id) => receipts.has(id)));
  assert.ok(newer.every(({ id }) => receipts.has(id)));
  const isRead = events.some(({ kind }) => kind === 'receipts part read');
  assert.equal(isRead, missing(receipts).length === 0, 'it is read once all are back');
  assert.ok(task);
});
