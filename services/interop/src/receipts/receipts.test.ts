import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkReceipt } from '@ron/client/webhook-receipt';
import { isRonError, NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { eventually } from '@ron/testkit';
import { appendAll, FakeKms, MIB, openTest, receiptOf, receiptsOf, running, signedOf } from './testing/receipts.ts';

test('a receipt is unsigned at first, then signed, and its proof holds offline for the key of kms only', async () => {
  const kms = new FakeKms();
  await using receipts = (await openTest(new CrashFileSystem(), { kms })).receipts;
  const all = receiptsOf(0, 5);
  await receipts.append(all, NEVER);
  assert.deepEqual(await receipts.get(all[3]!.id, NEVER), { receipt: all[3] });
  assert.equal(await receipts.get(receiptOf(99).id, NEVER), undefined);
  assert.equal(await receipts.get('../x', NEVER), undefined);
  await using _ = running(receipts);
  await receipts.untilSigned(all[0]!.id, NEVER);
  for (const [index, receipt] of all.entries()) {
    const signed = await signedOf(receipts, receipt.id);
    assert.deepEqual(signed.receipt, receipt);
    assert.deepEqual([signed.tree.index, signed.tree.size, signed.log_index], [index, 8, 0]);
    const check = await checkReceipt(JSON.parse(JSON.stringify(signed)), { keys: kms.keys });
    assert.ok(check.ok, JSON.stringify(check));
    assert.ok(!(await checkReceipt(signed, { keys: new FakeKms().keys })).ok);
  }
  assert.deepEqual(receipts.totals, { stored: 5, signed: 5, removed: 0, damaged: 0 });
  assert.deepEqual([receipts.sign_lag_ms, receipts.problem], [0, undefined]);
});

test('128 receipts are signed at once, and never more than 128 by one root', async () => {
  const kms = new FakeKms();
  await using receipts = (await openTest(new CrashFileSystem(), { kms })).receipts;
  const all = receiptsOf(0, 300);
  await appendAll(receipts, all);
  await using _ = running(receipts);
  for (const { id } of all) await receipts.untilSigned(id, NEVER);
  assert.equal(kms.roots.length, 3);
  const sizes = [0, 127, 128, 299].map(async (at) => (await signedOf(receipts, all[at]!.id)).tree);
  assert.deepEqual(
    (await Promise.all(sizes)).map(({ size, index }) => [size, index]),
    [
      [128, 0],
      [128, 127],
      [128, 0],
      [64, 43],
    ],
  );
});

test('an id has one receipt: a second append of it, also a concurrent one, writes nothing', async () => {
  const fs = new CrashFileSystem();
  await using receipts = (await openTest(fs)).receipts;
  const first = receiptOf(1);
  const second = receiptOf(1, { received_ms: 5 });
  await Promise.all([
    receipts.append([first, receiptOf(2)], NEVER),
    receipts.append([second, receiptOf(3)], NEVER),
    receipts.append([second, second], NEVER),
  ]);
  await receipts.append([second], NEVER);
  assert.equal(receipts.totals['stored'], 3);
  assert.deepEqual((await receipts.get(first.id, NEVER))?.receipt, first);
  assert.ok(receipts.has(receiptOf(3).id));
});

test('[interop I-5] a waiting client gets the receipt when it is signed, and is released by its signal', async () => {
  const kms = new FakeKms();
  await using receipts = (await openTest(new CrashFileSystem(), { kms })).receipts;
  await receipts.append([receiptOf(1)], NEVER);
  const client = new AbortController();
  const waited = receipts.untilSigned(receiptOf(1).id, client.signal);
  client.abort();
  await waited;
  assert.equal((await receipts.get(receiptOf(1).id, NEVER))?.signed, undefined);
  const next = receipts.untilSigned(receiptOf(1).id, NEVER);
  await using _ = running(receipts);
  await next;
  await signedOf(receipts, receiptOf(1).id);
  await receipts.untilSigned(receiptOf(9).id, NEVER);
});

test('a kms that is away delays signatures only; the same tree is signed when it returns', async () => {
  const kms = new FakeKms();
  kms.isAway = true;
  const { events, receipts } = await openTest(new CrashFileSystem(), { kms });
  await using _ = receipts;
  await receipts.append([receiptOf(1)], NEVER);
  await using task = running(receipts);
  await eventually('the failure is reported', () => events.length > 0);
  assert.deepEqual(events, [{ kind: 'receipts problem', problem: 'cannot sign receipts: kms is away' }]);
  await receipts.append([receiptOf(2)], NEVER);
  assert.equal((await receipts.get(receiptOf(2).id, NEVER))?.signed, undefined);
  kms.isAway = false;
  await receipts.untilSigned(receiptOf(2).id, NEVER);
  assert.equal((await signedOf(receipts, receiptOf(1).id)).tree.size, 1, 'the first tree was tried again as it was');
  assert.equal(kms.roots.length, 2);
  await eventually('the failure is over', () => receipts.problem === undefined);
  assert.ok(task);
});

test('the proof of the log is in the answer once a checkpoint covers the entry, and kms may be away', async () => {
  const kms = new FakeKms();
  await using receipts = (await openTest(new CrashFileSystem(), { kms })).receipts;
  await receipts.append([receiptOf(1)], NEVER);
  await using _ = running(receipts);
  await receipts.untilSigned(receiptOf(1).id, NEVER);
  assert.equal((await signedOf(receipts, receiptOf(1).id)).log_proof, undefined);
  kms.covered = 1;
  assert.equal((await signedOf(receipts, receiptOf(1).id)).log_proof !== undefined, true);
  kms.isAway = true;
  assert.equal((await signedOf(receipts, receiptOf(1).id)).log_proof, undefined);
});

test('without kms receipts stay unsigned, the gate says so, and retention does not wait for signatures', async () => {
  await using receipts = (await openTest(new CrashFileSystem(), { kms: undefined })).receipts;
  assert.match(receipts.problem!, /kms is not configured/);
  await using _ = running(receipts);
  await appendAll(receipts, receiptsOf(0, 4000));
  assert.equal(receipts.isFull, false);
  assert.ok(!receipts.has(receiptOf(0).id), 'the oldest went');
  assert.ok(receipts.has(receiptOf(3999).id));
});

test('[interop I-9] unsigned receipts that fill the index stop webhooks; signatures make room, oldest first', async () => {
  const kms = new FakeKms();
  const { events, receipts } = await openTest(new CrashFileSystem(), { kms });
  await using _ = receipts;
  let stored = 0;
  for (; !receipts.isFull; stored += 128) await receipts.append(receiptsOf(stored, 128), NEVER);
  assert.ok(stored > 1000 && stored < 2100, `${stored} receipts in 1 % of 8 MiB`);
  assert.match(receipts.problem!, /fill the index/);
  // The sender may still have a batch under way.
  await receipts.append(receiptsOf(stored, 128), NEVER);
  stored += 128;
  await assert.rejects(receipts.append(receiptsOf(90_000, 129), NEVER), (error) => isRonError(error, 'backpressure'));
  assert.equal(receipts.totals['removed'], 0);
  await using task = running(receipts);
  await receipts.untilSigned(receiptOf(stored - 1).id, NEVER);
  assert.equal(receipts.isFull, false);
  await receipts.append(receiptsOf(90_000, 128), NEVER);
  const { removed = 0 } = receipts.totals;
  assert.ok(removed > 0 && !receipts.has(receiptOf(0).id) && !receipts.has(receiptOf(removed - 1).id));
  assert.ok(receipts.has(receiptOf(removed).id), 'only whole segments, oldest first');
  assert.ok(events.some((event) => event.kind === 'receipts removed' && event.count === removed));
  assert.ok(task);
});

test('in amnesia receipts are signed in memory, within its bytes', async () => {
  const kms = new FakeKms();
  const { receipts } = await openTest(new CrashFileSystem(), { dir: undefined, kms, bytes_max: 8 * MIB });
  await using _ = receipts;
  await using task = running(receipts);
  for (let first = 0; first < 20_000; first += 128) {
    await receipts.append(receiptsOf(first, 128), NEVER);
    await receipts.untilSigned(receiptOf(first).id, NEVER);
  }
  assert.ok(receipts.totals['removed']! > 15_000);
  await signedOf(receipts, receiptOf(19_900).id);
  assert.ok(task);
});
