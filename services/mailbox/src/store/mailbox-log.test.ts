/** The log of a mailbox: appended records are applied once, and a start restores exactly their state. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CrashFileSystem } from '@ron/log/testing';
import { acked, dead, messageOf, NEVER, openNaive, removed } from './testing/make.ts';
import type { NaiveState } from './testing/naive-state.ts';

const stateOf = ({ messages, policies, seen }: NaiveState): unknown => ({ messages, policies, seen });

test('a start restores messages, leases, returns, settlements, topics and totals', async () => {
  const disk = new CrashFileSystem();
  const { log, state } = await openNaive(disk);
  const [a, b, c] = await log.appendMessages(
    [messageOf('a', 1), messageOf('b', 2, 5000, { key: 'k', headers: { x: 'ü' } }), messageOf('a', 3)],
    NEVER,
  );
  await log.appendTopic('a', { max_deliveries: 3, max_bytes: 2 ** 40 }, NEVER);
  await log.appendTopic('empty', {}, NEVER);
  const lease = { seq: b!, delivery: 1, attempts: 1, nonce: 2 ** 52 + 1, until_ms: 10, visibility_ms: 9 };
  state.onLeased([lease]);
  await log.appendLeased([lease], NEVER);
  const entry = { seq: b!, delivery: 1, not_before_ms: 77, delay_ms: 9, error: 'no' };
  state.onReturned([entry]);
  await log.appendReturned([entry], NEVER);
  await log.appendSettled([acked(a!, 'a'), dead(c!, 'a', 'last error')], NEVER);
  const totals = { sent: 2, acked: 1, dead: 1, gone: 0 };
  assert.deepEqual([...state.messages.keys()], [b, c]);
  await log.close();

  const again = await openNaive(disk);
  assert.deepEqual(stateOf(again.state), stateOf(state));
  const { sent, acked: acks, dead: died, gone } = again.log.totalsOf('a')!;
  assert.deepEqual({ sent, acked: acks, dead: died, gone }, totals);
  assert.deepEqual(again.state.totals.get('a'), totals);
  assert.equal(again.log.problem, undefined);
  const stored = await again.log.reader.read(again.state.messages.get(b!)!.place);
  assert.equal(stored!.payload.length, 5000);
  assert.deepEqual([stored!.meta.key, stored!.meta.headers, stored!.meta.topic], ['k', { x: 'ü' }, 'b']);
  const details = await again.log.reader.readDead(again.state.messages.get(c!)!.dead!.at, c!);
  assert.deepEqual([details!.reason, details!.attempts, details!.error], ['max_deliveries', 12, 'last error']);
  await again.log.close();
});

test('a replayed dead letter is removed by the record of its new message', async () => {
  const disk = new CrashFileSystem();
  const { log, state } = await openNaive(disk);
  const [first] = await log.appendMessages([messageOf('a', 1)], NEVER);
  await log.appendSettled([dead(first!, 'a')], NEVER);
  const [again] = await log.appendReplayed([messageOf('a', 2)], [removed(first!, 'a')], NEVER);
  assert.deepEqual([...state.messages.keys()], [again]);
  assert.equal(log.check(), undefined);
  await log.close();
  const after = await openNaive(disk);
  assert.deepEqual([...after.state.messages.keys()], [again]);
  assert.deepEqual(after.state.totals.get('a'), { sent: 2, acked: 0, dead: 0, gone: 1 });
  assert.equal(after.log.problem, undefined);
  await after.log.close();
});

test('topics that several sends create at once have one number each', async () => {
  const disk = new CrashFileSystem();
  const { log } = await openNaive(disk);
  const sends = Array.from({ length: 20 }, (_, key) => log.appendMessages([messageOf(`t${key % 4}`, key)], NEVER));
  const policy = log.appendTopic('t3', { max_deliveries: 5 }, NEVER);
  await Promise.all([...sends, policy]);
  await log.close();
  const { state, log: after } = await openNaive(disk);
  assert.deepEqual([...state.policies.keys()].toSorted(), ['t0', 't1', 't2', 't3']);
  assert.deepEqual(state.policies.get('t3'), { max_deliveries: 5 });
  assert.deepEqual(
    [...state.counts()].map(({ topic, waiting }) => [topic, waiting]),
    [0, 1, 2, 3].map((topic) => [`t${topic}`, 5]),
  );
  assert.equal(after.problem, undefined);
  await after.close();
});
