/** The spool keeps deliveries in order, once for each key, within its limits. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { deliveryOf, DIR, keyOf, openSpool, takeAll, ulidOf } from './testing/make.ts';

const MANY = { messages: 128, bytes: 1024 * 1024 };
const all = (): number => Infinity;

test('a delivery comes back as it was appended, with its receipt, after a restart too', async () => {
  const fs = new CrashFileSystem();
  const { spool } = await openSpool({ fs });
  const delivery = { ...deliveryOf(7, 'github', 300), headers: { 'ron-event': 'push', 'x-ü': 'ä' } };
  const receipt = { ...delivery.receipt, delivery_id: 'unsigned-1' };
  assert.deepEqual(await spool.append({ ...delivery, receipt }, NEVER), { id: ulidOf(7), duplicate: false });
  assert.ok(spool.holds('github') && !spool.holds('other'));
  assert.equal(spool.oldest_ms, 1007);
  await spool.close();
  const { spool: again } = await openSpool({ fs });
  assert.equal(again.idOf(keyOf(7)), ulidOf(7));
  const [taken] = await takeAll(again);
  assert.deepEqual({ ...taken, payload: Buffer.from(taken!.payload) }, { ...delivery, receipt });
  await again.close();
});

test('a replay takes no room and gets the first id, while the first one is being synced too', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem() });
  const results = await Promise.all([1, 2, 3].map((n) => spool.append(deliveryOf(n, 'p', 100, 9), NEVER)));
  const { bytes } = spool;
  assert.deepEqual(results, [
    { id: ulidOf(1), duplicate: false },
    { id: ulidOf(1), duplicate: true },
    { id: ulidOf(1), duplicate: true },
  ]);
  assert.deepEqual(await spool.append(deliveryOf(4, 'p', 5000, 9), NEVER), { id: ulidOf(1), duplicate: true });
  assert.equal(spool.bytes, bytes);
  assert.equal(spool.count, 1);
  await spool.close();
});

test('[interop I-5] an append that is cancelled leaves nothing; the one that waited for it is stored', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem() });
  const cancel = new AbortController();
  const first = spool.append(deliveryOf(1, 'p', 10, 9), cancel.signal);
  const second = spool.append(deliveryOf(2, 'p', 10, 9), NEVER);
  cancel.abort(new Error('too late'));
  await assert.rejects(first, /too late/);
  assert.deepEqual(await second, { id: ulidOf(2), duplicate: false });
  assert.deepEqual(
    (await takeAll(spool)).map(({ id }) => id),
    [ulidOf(2)],
  );
  await spool.close();
});

test('newer deliveries of a provider go behind older ones, from the begin of the append', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem() });
  const append = spool.append(deliveryOf(1), NEVER);
  assert.ok(spool.holds('p'));
  assert.deepEqual(spool.take(MANY, all), [], 'it is not durable yet');
  await append;
  const tickets = spool.take(MANY, all);
  assert.ok(spool.holds('p'), 'while it is in flight');
  spool.settle(tickets);
  assert.ok(!spool.holds('p'));
  await spool.close();
});

test('a delivery that a late call stored is not taken, even if its record is still being written', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem() });
  const append = spool.append(deliveryOf(1), NEVER);
  spool.delivered(ulidOf(1));
  assert.deepEqual(await append, { id: ulidOf(1), duplicate: false });
  await spool.append(deliveryOf(2), NEVER);
  spool.delivered(ulidOf(2));
  spool.delivered(ulidOf(3));
  assert.equal(spool.count, 0);
  assert.ok(!spool.holds('p'));
  await spool.close();
});

test('batches are fair: providers take turns, each in order, and the one that did not fit comes first', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem() });
  for (const n of [1, 2, 3]) await spool.append(deliveryOf(n, 'a', 400), NEVER);
  await spool.append(deliveryOf(4, 'b', 3000), NEVER);
  await spool.append(deliveryOf(5, 'c', 400), NEVER);
  const ids = (limits: { messages: number; bytes: number }): string[] => {
    const tickets = spool.take(limits, (provider) => (provider === 'c' ? 0 : Infinity));
    spool.settle(tickets);
    return tickets.map(({ provider, payload_bytes }) => `${provider}${payload_bytes}`);
  };
  assert.deepEqual(ids({ messages: 128, bytes: 1500 }), ['a400', 'a400'], 'b does not fit');
  assert.deepEqual(ids({ messages: 128, bytes: 1500 }), ['b3000'], 'the first one always fits');
  assert.deepEqual(ids({ messages: 1, bytes: 1500 }), ['a400']);
  assert.deepEqual(ids({ messages: 1, bytes: 1500 }), [], 'c may not be sent');
  await spool.close();
});

test('[interop I-3] [interop I-9] a provider gets half of the deliveries, and all together the limit', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem(), deliveries_max: 4 });
  const append = async (n: number, provider: string): Promise<boolean> =>
    (await spool.append(deliveryOf(n, provider), NEVER)) !== 'full';
  assert.deepEqual([await append(1, 'a'), await append(2, 'a'), await append(3, 'a')], [true, true, false]);
  assert.match(spool.problem!, /part of a in the spool is 100 % full/);
  assert.deepEqual([await append(4, 'b'), await append(5, 'c'), await append(6, 'd')], [true, true, false]);
  assert.match(spool.problem!, /spool is 100 % full/);
  spool.delivered(ulidOf(1));
  assert.ok(await append(7, 'd'));
  await spool.close();
});

test('in amnesia nothing is spooled', async () => {
  const { spool } = await openSpool({ dir: undefined });
  assert.equal(await spool.append(deliveryOf(1), NEVER), 'full');
  await spool.maintain(NEVER);
  assert.deepEqual([spool.count, spool.bytes, spool.problem, spool.oldest_ms], [0, 0, undefined, undefined]);
  await spool.close();
});

test('a start reports a damaged record, and sends the others', async () => {
  const fs = new CrashFileSystem();
  const { spool } = await openSpool({ fs });
  for (const n of [1, 2, 3]) await spool.append(deliveryOf(n, 'p', 100), NEVER);
  await spool.close();
  const [path] = [...fs.files().keys()].filter((each) => each.startsWith(DIR));
  const second = fs.files().get(path!)!.length / 3;
  fs.damage(path!, (bytes) => bytes.with(second + 70, 0xff));
  const { spool: again, events } = await openSpool({ fs });
  assert.deepEqual(
    (await takeAll(again)).map(({ id }) => id),
    [ulidOf(1), ulidOf(3)],
  );
  assert.deepEqual(
    events.map(({ kind }) => kind),
    ['spool damaged', 'spool emptied'],
  );
  assert.equal(again.damaged_total, 1);
  await again.close();
});

test('settled deliveries leave the disk once nothing waits', async () => {
  const fs = new CrashFileSystem();
  const { spool } = await openSpool({ fs });
  for (const n of [1, 2, 3]) await spool.append(deliveryOf(n, 'p', 1000), NEVER);
  await takeAll(spool);
  await spool.maintain(NEVER);
  assert.ok(spool.bytes > 3000);
  await spool.removeSettled(NEVER);
  assert.equal(spool.bytes, 0);
  await spool.append(deliveryOf(4), NEVER);
  await spool.close();
  const { spool: again } = await openSpool({ fs });
  assert.deepEqual(
    (await takeAll(again)).map(({ id }) => id),
    [ulidOf(4)],
  );
  await again.close();
});

test('a delivery that a late call stores while its record moves is not sent after a restart', async () => {
  let onWrite: () => void = () => undefined;
  const fs = new CrashFileSystem(new Map(), { before: (operation) => operation === 'write' && onWrite() });
  const limits = { fs, bytes_max: 64 * 1024, segment_bytes: 4096 };
  const { spool } = await openSpool(limits);
  for (let n = 1; n <= 12; n++) await spool.append(deliveryOf(n, n % 2 === 0 ? 'a' : 'b', 3000), NEVER);
  for (let n = 3; n <= 12; n++) spool.delivered(ulidOf(n));
  let writes = 0;
  // The second write is that of the copy.
  onWrite = () => void (++writes === 2 && spool.delivered(ulidOf(1)));
  await spool.maintain(NEVER);
  assert.ok(writes >= 2 && spool.count === 1, `${writes} writes, ${spool.count} deliveries`);
  await spool.close();
  const { spool: again } = await openSpool(limits);
  assert.deepEqual(
    (await takeAll(again)).map(({ id }) => id),
    [ulidOf(2)],
  );
  await again.close();
});
