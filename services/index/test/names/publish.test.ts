import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError, RonError } from '@ron/kernel';
import type { NameDto } from '@ron/proto';
import { eventually, tempDir } from '@ron/testkit';
import { TRUST_MAX } from '../../src/publish/trust-list.ts';
import { hex } from '../../src/publish/rules.ts';
import { nameSigner } from '../../src/publish/testing.ts';
import { ALICE, openNode, signal } from './support.ts';

const alice = nameSigner();
const bob = nameSigner();

async function conflictOf(published: Promise<unknown>): Promise<NameDto> {
  const error: unknown = await published.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(isRonError(error, 'conflict'), String(error));
  return error.details?.['current'] as NameDto;
}

test('names are published in order, invalidated before the answer, and found after a restart', async () => {
  await using temp = await tempDir();
  const one = alice.record('docs/readme');
  const two = alice.record('docs/readme', { after: one });
  {
    await using node = await openNode(temp.path);
    const first = await node.publish(one);
    assert.equal(first.isNew, true);
    assert.deepEqual(node.invalidated, [`name:docs/readme@${alice.key}`, 'name:docs/readme']);
    assert.deepEqual(await node.publish(one), { ...first, isNew: false });
    assert.equal((await conflictOf(node.publish(alice.record('docs/readme')))).hash, hex(one.hash));
    assert.equal((await node.publish(two)).name.seq, 2);
    assert.equal(
      (await node.publish(bob.record('docs/readme'))).isNew,
      true,
      'the label of another key is another name',
    );
  }
  await using node = await openNode(temp.path);
  assert.equal((await node.store.name(alice.key, 'docs/readme'))?.seq, 2);
  assert.equal((await conflictOf(node.publish(one))).seq, 2, 'a replay is refused after a restart');
  assert.equal((await node.publish(two)).isNew, false);
  assert.equal(node.names.log?.checkpoint?.size, node.names.log?.size, 'the log was signed at the close');
  assert.deepEqual(node.warnings, []);
});

test('of two publishers at once one wins, the other gets the current record, and a repeat succeeds', async () => {
  await using node = await openNode(undefined);
  const records = Array.from({ length: 20 }, () => alice.record('a'));
  const results = await Promise.allSettled([...records, ...records].map((record) => node.publish(record)));
  const won = results.filter((each) => each.status === 'fulfilled').map(({ value }) => value);
  assert.deepEqual(
    won.map(({ isNew }) => isNew),
    [true, false],
    'the winner, and its repetition',
  );
  for (const each of results) {
    if (each.status === 'fulfilled') continue;
    assert.equal((await conflictOf(Promise.reject(each.reason as Error))).hash, hex(won[0]!.name.hash));
  }
  assert.equal(node.names.log?.size, 1, 'a refused record leaves no entry');
});

test('many changes that wait are one append', async () => {
  await using node = await openNode(undefined, { isRunning: false });
  const published = Array.from({ length: 50 }, (_, at) => node.publish(alice.record(`n${at}`)));
  const trusted = node.names.setTrust({ prefix: '', key: alice.key }, ALICE, signal);
  await eventually('all wait', () => node.jobs.depth === 51);
  await node.names[Symbol.asyncDispose]();
  await Promise.all([...published, trusted]);
  assert.deepEqual(node.store.applied.size, 51);
});

test('[index I-3] [index I-9] a full channel refuses at once with busy; a closed one with draining', async () => {
  const node = await openNode(undefined, { isRunning: false });
  const waiting = Array.from({ length: 512 }, () => node.names.recordAdmin('reindex', ALICE, signal));
  await assert.rejects(node.publish(alice.record('a')), { code: 'busy' });
  assert.equal(node.jobs.rejected_total, 1);
  await node[Symbol.asyncDispose]();
  await Promise.all(waiting);
  await assert.rejects(node.publish(alice.record('a')), { code: 'draining' });
});

test('a caller that leaves before its batch changes nothing', async () => {
  const node = await openNode(undefined, { isRunning: false });
  const leaving = new AbortController();
  const { record, signature } = alice.record('a');
  const published = node.names.publish(record, signature, ALICE, leaving.signal);
  await eventually('it waits', () => node.jobs.depth === 1);
  leaving.abort(new RonError('canceled', 'gone'));
  await assert.rejects(published, { code: 'canceled' });
  await node.names[Symbol.asyncDispose]();
  assert.equal(node.store.applied.size, 0);
  await node[Symbol.asyncDispose]();
});

test('malformed records, wrong signatures and times are refused', async () => {
  await using node = await openNode(undefined);
  const { record, signature } = alice.record('a');
  const publish = (...[bytes, signed]: [Uint8Array, Uint8Array]): Promise<unknown> =>
    node.names.publish(bytes, signed, ALICE, signal);
  await assert.rejects(publish(record, bob.record('a').signature), { code: 'validation', message: /signature/ });
  await assert.rejects(publish(record, signature.subarray(1)), { code: 'validation', message: /signature/ });
  await assert.rejects(publish(record.subarray(1), signature), { code: 'validation' });
  await assert.rejects(publish(new Uint8Array(2000), signature), { code: 'validation', message: /1024/ });
  await assert.rejects(node.publish(alice.record('a', { not_after: 1000 })), { code: 'validation', message: /past/ });
  await assert.rejects(node.publish(alice.record('a', { not_after: 2 ** 40 })), {
    code: 'validation',
    message: /2 years/,
  });
  assert.equal(await conflictOf(node.publish(alice.record('a', { after: alice.record('a') }))), null);
  assert.equal(node.names.log?.size, 0);
});

test('quotas limit the names of a key and the changes of a subject', async () => {
  await using node = await openNode(undefined, { quotas: () => ({ names_per_key: 2, publish_per_min: 5 }) });
  const [a, b] = [alice.record('a'), alice.record('b')];
  const results = await Promise.allSettled([a, b, alice.record('c')].map((each) => node.publish(each)));
  assert.deepEqual(
    results.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'rejected'],
  );
  await assert.rejects(node.publish(alice.record('c')), { code: 'storage_full', reason: 'quota' });
  assert.equal((await node.publish(alice.record('a', { after: a }))).name.seq, 2, 'a new record of a known name');
  const limited: unknown = await node.publish(b).catch((error: unknown) => error);
  assert.ok(isRonError(limited, 'rate_limited') && limited.retry_after_ms! > 0);
  assert.equal((await node.publish(b, { subject: 'bob', capability_id: 'cap-b' })).isNew, false);
});

test('moved_to is the last record of a name', async () => {
  await using node = await openNode(undefined);
  const one = alice.record('a');
  const moved = alice.record('a', { after: one, value: undefined, moved_to: bob.key });
  await node.publish(one);
  await node.publish(moved);
  const current = await conflictOf(node.publish(alice.record('a', { after: moved })));
  assert.deepEqual([current.moved_to, current.address], [bob.key, null]);
});

test('the longest trusted prefix of whole segments names the key, also after a restart', async () => {
  await using temp = await tempDir();
  const check = ({ names }: Awaited<ReturnType<typeof openNode>>): void => {
    const keys = ['docs', 'docs/old/x', 'docs/older', 'x'].map((label) => names.keyFor(label));
    assert.deepEqual(keys, [bob.key, alice.key, bob.key, alice.key]);
    assert.ok(names.isTrusted(alice.key) && names.isTrusted(bob.key) && !names.isTrusted('00'));
    assert.deepEqual([...names.pins], ['name:docs']);
  };
  {
    await using node = await openNode(temp.path);
    assert.equal(node.names.keyFor('docs'), undefined);
    for (const [prefix, { key }] of [
      ['', alice],
      ['docs', bob],
      ['docs/old', alice],
      ['tmp', bob],
    ] as const) {
      await node.names.setTrust({ prefix, key }, ALICE, signal);
    }
    await node.names.setTrust({ prefix: '', key: alice.key }, ALICE, signal);
    assert.deepEqual(node.invalidated, ['*', '*', '*', '*'], 'a repetition changes nothing');
    await node.names.removeTrust('tmp', ALICE, signal);
    await assert.rejects(node.names.removeTrust('tmp', ALICE, signal), { code: 'not_found' });
    await node.names.setPin('name:docs', true, ALICE, signal);
    await node.names.setPin('name:tmp', true, ALICE, signal);
    await node.names.setPin('name:tmp', false, ALICE, signal);
    check(node);
  }
  await using node = await openNode(temp.path);
  check(node);
  assert.deepEqual(
    node.names.trusted.map(({ prefix }) => prefix),
    ['', 'docs', 'docs/old'],
  );
});

test('the trust list is bounded', async () => {
  await using node = await openNode(undefined);
  const all = Array.from({ length: TRUST_MAX }, (_, at) => ({ prefix: `p${at}`, key: alice.key }));
  for (let at = 0; at < all.length; at += 512) {
    await Promise.all(all.slice(at, at + 512).map((each) => node.names.setTrust(each, ALICE, signal)));
  }
  await assert.rejects(node.names.setTrust({ prefix: 'more', key: alice.key }, ALICE, signal), {
    code: 'storage_full',
  });
});

test('in a network a publish first reads the records of other nodes', async () => {
  const one = alice.record('a');
  const two = alice.record('a', { after: one });
  const values = [Buffer.concat([two.signature, two.record])];
  await using node = await openNode(undefined, { readQuorum: async () => values });
  assert.equal((await conflictOf(node.publish(one))).hash, hex(two.hash));
  assert.equal((await node.publish(alice.record('a', { after: two }))).name.seq, 3);
  const unreachable = async (): Promise<never> => {
    throw new RonError('no_route', 'no peers');
  };
  await using alone = await openNode(undefined, { readQuorum: unreachable });
  assert.equal((await alone.publish(one)).isNew, true, 'without peers the own knowledge decides');
});

test('a publish whose commit failed outdates cached answers and is announced, even if only its repetition succeeds', async () => {
  await using temp = await tempDir();
  const announced: number[] = [];
  await using node = await openNode(temp.path, { onPublished: ({ seq }) => announced.push(seq) });
  const one = alice.record('a');
  const two = alice.record('a', { after: one });
  const three = alice.record('a', { after: two });
  await node.publish(one);
  const apply = node.store.apply.bind(node.store);
  node.store.apply = () => Promise.reject(new RonError('timeout', 'hung'));
  await assert.rejects(node.publish(two), { code: 'timeout' });
  assert.deepEqual(announced, [1, 2], 'the log has it');
  node.store.apply = apply;
  assert.equal((await node.store.name(alice.key, 'a'))?.seq, 1, 'lookups may cache the first record now');
  node.invalidated.length = 0;
  assert.equal((await node.publish(two)).isNew, false);
  assert.ok(node.invalidated.includes('*'), 'the catch-up outdates all answers');
  // The commit takes effect after the call has failed.
  node.store.apply = async (...given) => {
    await apply(...given);
    throw new RonError('timeout', 'late');
  };
  await node.publish(three).catch(() => undefined);
  node.store.apply = apply;
  node.invalidated.length = 0;
  assert.equal((await node.publish(three)).isNew, false);
  assert.ok(node.invalidated.includes(`name:a@${alice.key}`));
  assert.deepEqual(announced, [1, 2, 3], 'once each');
});

test('a record is announced in the DHT even if its caller left', async () => {
  const announced: number[] = [];
  const leaves = new AbortController();
  await using node = await openNode(undefined, { onPublished: ({ seq }) => announced.push(seq) });
  const apply = node.store.apply.bind(node.store);
  node.store.apply = (...given) => {
    leaves.abort(new RonError('timeout', 'the caller left'));
    return apply(...given);
  };
  const { record, signature } = alice.record('a');
  await assert.rejects(node.names.publish(record, signature, ALICE, leaves.signal));
  await eventually('the change stays', async () => (await node.store.name(alice.key, 'a')) !== undefined);
  assert.deepEqual(announced, [1]);
});
