/** Records of names from the network: replays are refused, forks are kept with both records. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { installSched, sched } from '@ron/kernel';
import { nameDto } from '../../src/publish/name-dto.ts';
import { hex } from '../../src/publish/rules.ts';
import { nameSigner, valueOf } from '../../src/publish/testing.ts';
import type { StoredName, StoredRecord } from '../../src/store/index-store.ts';
import { supersedes } from '../../src/store/record-order.ts';
import { ALICE, openNode, signal, type NamesNode } from './support.ts';

const alice = nameSigner();
const stranger = nameSigner();
const NOW_S = Math.floor(sched.wall_ms() / 1000);

const adopt = (node: NamesNode, label: string, ...records: StoredRecord[]): Promise<StoredName | undefined> =>
  node.names.adopt(records[0]!.key, label, records.map(valueOf), signal);
const accepts = (node: NamesNode, record: StoredRecord): Promise<StoredRecord | undefined> =>
  node.names.accepts(record.key, record.label, valueOf(record));

function inOrder(left: StoredRecord, right: StoredRecord): [winner: StoredRecord, loser: StoredRecord] {
  return supersedes(left, right) ? [left, right] : [right, left];
}

test('a lower seq is refused by adopt and by the validator; a higher one is taken', async () => {
  await using node = await openNode(undefined);
  const one = stranger.record('a');
  const two = stranger.record('a', { after: one });
  const three = stranger.record('a', { after: two });
  assert.equal((await adopt(node, 'a', one))?.seq, 1);
  assert.equal((await adopt(node, 'a', three, one))?.seq, 3, 'a gap is not a fork');
  for (const old of [one, two]) {
    assert.equal((await adopt(node, 'a', old))?.seq, 3);
    assert.equal(await accepts(node, old), undefined);
  }
  assert.equal((await accepts(node, three))?.seq, 3);
  assert.equal((await accepts(node, stranger.record('a', { after: three })))?.seq, 4);
  assert.equal((await node.store.name(stranger.key, 'a'))?.seq, 4, 'the validator remembers it');
  assert.equal((await node.store.name(stranger.key, 'a'))?.rival, undefined);
  assert.equal(node.names.log?.size, 0, 'names of other nodes are not in the log');
});

test('invalid, expired, foreign and oversized values are ignored', async () => {
  await using node = await openNode(undefined);
  const good = stranger.record('a');
  const forged = { ...good, signature: stranger.record('b').signature };
  const values = [
    valueOf(forged),
    valueOf(stranger.record('b')),
    valueOf(alice.record('a')),
    valueOf(stranger.record('a', { not_after: NOW_S - 1 })),
    valueOf(stranger.record('a', { not_after: NOW_S + 800 * 86_400 })),
    new Uint8Array(0),
    new Uint8Array(64),
    new Uint8Array(5000),
    Buffer.concat([valueOf(good), Buffer.alloc(1)]),
  ];
  assert.equal(await node.names.adopt(stranger.key, 'a', values, signal), undefined);
  for (const value of values) assert.equal(await node.names.accepts(stranger.key, 'a', value), undefined);
  assert.equal((await node.names.adopt(stranger.key, 'a', [...values, valueOf(good)], signal))?.seq, 1);
});

test('a fork of a trusted name is logged with both records, once, and ends with the next clean record', async () => {
  await using node = await openNode(undefined);
  await node.names.setTrust({ prefix: '', key: alice.key }, ALICE, signal);
  const one = alice.record('a');
  await node.publish(one);
  const other = alice.record('a');
  const [winner, loser] = inOrder(one, other);
  const size = node.names.log!.size;
  node.invalidated.length = 0;
  for (let round = 0; round < 3; round += 1) {
    const found = await adopt(node, 'a', other, one);
    assert.deepEqual([found?.hash, found?.rival?.hash], [winner.hash, loser.hash]);
  }
  assert.deepEqual([node.names.log!.size, node.forks], [size + 1, ['a']], 'recorded once');
  assert.deepEqual(node.invalidated, [`name:a@${alice.key}`, 'name:a']);
  assert.equal((await accepts(node, loser))?.seq, 1, 'both stay in the network');
  const entry = JSON.parse(Buffer.from(await node.names.log!.entry(size)).toString()) as Record<string, unknown>;
  assert.deepEqual([entry['kind'], entry['by']], ['fork', ['index', 'index']]);

  const clean = alice.record('a', { after: winner });
  assert.equal((await node.publish(clean)).name.rival, undefined);
  assert.equal((await adopt(node, 'a', loser))?.rival, undefined, 'the old fork does not begin anew');
  const { log } = node.names;
  assert.equal(log!.size, size + 2);
  const stored = await node.store.history(alice.key, 'a', 10);
  assert.deepEqual(new Set(stored.map(({ hash }) => hex(hash))), new Set([hex(winner.hash), hex(loser.hash)]));
});

test('a previous that contradicts the known record is a fork; of an untrusted key it is kept, not logged', async () => {
  await using node = await openNode(undefined);
  const one = stranger.record('a');
  const branch = stranger.record('a', { after: stranger.record('a') });
  await adopt(node, 'a', one);
  const found = await adopt(node, 'a', branch);
  assert.deepEqual([found?.hash, found?.rival?.hash], [branch.hash, one.hash]);
  const stored = await node.store.name(stranger.key, 'a');
  assert.deepEqual([stored?.hash, stored?.rival?.hash], [branch.hash, one.hash]);
  assert.deepEqual([node.names.log!.size, node.forks], [0, ['a']]);
});

test('a fork is reported on both publishers, though one branch is three records ahead', async () => {
  await using a = await openNode(undefined);
  await using b = await openNode(undefined);
  const one = alice.record('a');
  const mine = alice.record('a', { after: one });
  const theirs = [alice.record('a', { after: one })];
  for (let seq = 3; seq <= 4; seq += 1) theirs.push(alice.record('a', { after: theirs.at(-1) }));
  for (const record of [one, mine]) await a.publish(record);
  for (const record of [one, ...theirs]) await b.publish(record);
  const last = theirs.at(-1)!;
  const atA = await adopt(a, 'a', last);
  assert.deepEqual([atA?.hash, atA?.rival?.hash], [last.hash, mine.hash], 'the own record is not given up in silence');
  const dto = nameDto(atA!, await a.store.history(alice.key, 'a', 10));
  assert.equal(dto.history?.length, 1, 'the rival is not listed a second time');
  assert.equal(await accepts(b, mine), undefined, 'an older record is not stored for the network');
  const atB = await b.store.name(alice.key, 'a');
  assert.deepEqual([atB?.hash, atB?.rival?.hash], [last.hash, mine.hash]);
  assert.deepEqual([a.forks, b.forks], [['a'], ['a']]);
  const clean = alice.record('a', { after: last });
  assert.equal((await a.publish(clean)).name.rival, undefined);
  for (const node of [a, b]) {
    assert.equal((await adopt(node, 'a', clean))?.rival, undefined);
    assert.equal((await adopt(node, 'a', mine, last))?.rival, undefined, 'the old fork does not begin anew');
  }
});

test('a stolen key does not take back a name that was moved: the move stays, and the contradiction is reported', async () => {
  for (const isTrusted of [true, false]) {
    await using node = await openNode(undefined);
    if (isTrusted) await node.names.setTrust({ prefix: '', key: alice.key }, ALICE, signal);
    const one = alice.record('a');
    const move = alice.record('a', { after: one, value: undefined, moved_to: stranger.key });
    if (isTrusted) for (const record of [one, move]) await node.publish(record);
    else await adopt(node, 'a', one, move);
    const stolen = [alice.record('a', { after: one })];
    for (let seq = 3; seq <= 5; seq += 1) stolen.push(alice.record('a', { after: stolen.at(-1) }));
    for (const record of stolen.toReversed()) {
      const found = await adopt(node, 'a', record);
      assert.deepEqual([found?.hash, found?.rival?.hash], [move.hash, stolen.at(-1)!.hash]);
    }
    const stored = await node.store.name(alice.key, 'a');
    assert.deepEqual([stored?.hash, stored?.rival?.hash], [move.hash, stolen.at(-1)!.hash]);
    assert.deepEqual(node.forks, ['a']);
    assert.deepEqual((await accepts(node, move))?.hash, move.hash, 'it is offered to the network');
  }
});

test('a move wins over a higher seq even if it arrives later', async () => {
  await using node = await openNode(undefined);
  const one = alice.record('a');
  const move = alice.record('a', { after: one, value: undefined, moved_to: stranger.key });
  const stolen = alice.record('a', { after: alice.record('a', { after: alice.record('a', { after: one }) }) });
  await adopt(node, 'a', one, stolen);
  assert.deepEqual((await accepts(node, move))?.hash, move.hash);
  const found = await node.store.name(alice.key, 'a');
  assert.deepEqual([found?.hash, found?.rival?.hash], [move.hash, stolen.hash]);
});

test('a key that signs any number of contradictions fills neither log nor memory', async () => {
  await using node = await openNode(undefined);
  await node.names.setTrust({ prefix: '', key: alice.key }, ALICE, signal);
  // Each has a smaller hash than the one before, so each changes the current record.
  const records = Array.from({ length: 100 }, () => alice.record('a')).toSorted((a, b) => (supersedes(a, b) ? 1 : -1));
  for (const record of records) assert.deepEqual((await adopt(node, 'a', record))?.hash, record.hash);
  assert.ok(node.names.log!.size <= 62, `${node.names.log!.size} entries`);
  assert.notEqual((await adopt(node, 'a', records.at(-1)!))?.rival, undefined, 'the conflict is reported anyway');
});

test('the highest seq of a key that is trusted later is not forgotten', async () => {
  const quotas = () => ({ providers_max: 10, providers_per_subject: 10, names_seen: 2 });
  await using node = await openNode(undefined, { storeInit: { quotas } });
  const one = alice.record('a');
  await adopt(node, 'a', one, alice.record('a', { after: one }));
  await node.names.setTrust({ prefix: 'x', key: alice.key }, ALICE, signal);
  for (let other = 0; other < 20; other += 1) await adopt(node, `n${other}`, stranger.record(`n${other}`));
  assert.equal(await node.store.name(stranger.key, 'n0'), undefined, 'others are');
  assert.equal(await accepts(node, one), undefined);
});

test('a publish and an adoption at once never lower the seq', async () => {
  await using node = await openNode(undefined);
  let last = alice.record('a');
  await node.publish(last);
  for (let round = 0; round < 30; round += 1) {
    const [mine, theirs] = [alice.record('a', { after: last }), alice.record('a', { after: last })];
    const adoptLater = async (): Promise<unknown> => {
      for (let turn = 0; turn < round; turn += 1) await sched.pause('later');
      return await adopt(node, 'a', theirs);
    };
    const [published] = await Promise.allSettled([node.publish(mine), adoptLater()]);
    const stored = await node.store.name(alice.key, 'a');
    const [winner, loser] = inOrder(mine, theirs);
    if (published.status === 'fulfilled') {
      assert.deepEqual([stored?.hash, stored?.rival?.hash], [winner.hash, loser.hash], 'both are kept');
    } else assert.deepEqual(stored?.hash, theirs.hash);
    last = stored!;
  }
});

test('the wall clock decides about not_after, even if it jumps', async () => {
  await using node = await openNode(undefined);
  const real = sched;
  const at = async (shift_s: number, run: () => Promise<void>): Promise<void> => {
    installSched({ ...real, wall_ms: () => real.wall_ms() + shift_s * 1000 });
    await run().finally(() => installSched(real));
  };
  const one = alice.record('a', { not_after: NOW_S + 3600 });
  await at(7200, async () => {
    await assert.rejects(node.publish(one), { code: 'validation', message: /past/ });
    assert.equal(await adopt(node, 'a', one), undefined);
  });
  await at(-800 * 86_400, () => assert.rejects(node.publish(one), { code: 'validation', message: /2 years/ }));
  assert.equal((await node.publish(one)).isNew, true);
  await at(7200, async () => {
    assert.equal((await node.publish(one)).isNew, false, 'a repetition is not a new record');
    assert.equal(await accepts(node, one), undefined);
    assert.equal((await node.publish(alice.record('a', { after: one }))).name.seq, 2, 'the chain goes on after expiry');
  });
});

test('a replay stays refused though the log could not take the fork that raised the seq', async () => {
  await using node = await openNode(undefined);
  await node.names.setTrust({ prefix: '', key: alice.key }, ALICE, signal);
  const one = alice.record('a');
  await node.publish(one);
  // Each of them wins over the one before: more forks than the log takes at once.
  const forks = Array.from({ length: 70 }, () => alice.record('b')).toSorted((left, right) =>
    Buffer.compare(right.hash, left.hash),
  );
  for (const fork of forks) await adopt(node, 'b', fork);
  const branch = alice.record('a', { after: alice.record('a') });
  assert.equal((await adopt(node, 'a', branch))?.seq, 2);
  const after = await adopt(node, 'a', one);
  assert.deepEqual([after?.seq, after?.rival?.seq], [2, 1]);
});
