/** The log of a mailbox: appended records are applied once, and a start restores exactly their state. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { MemoryDisk, realFileSystem, type FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { eventually } from '@ron/testkit';
import { Compactor } from './compaction/compactor.ts';
import type { ReplayProgress } from './mailbox-log.ts';
import { acked, dead, messageOf, openNaive, removed } from './testing/make.ts';
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
  const details = await again.log.reader.deadReader()(again.state.messages.get(c!)!.dead!.at, c!);
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

test('the entries of leases, returns and settlements count towards the bound of a batch', async () => {
  const { log } = await openNaive(new MemoryDisk(64 << 20), { segment_bytes: 32 << 20 });
  const groups = await Promise.all(
    Array.from({ length: 32 }, (_, group) =>
      log.appendMessages(
        Array.from({ length: 128 }, () => messageOf('a', group, 1)),
        NEVER,
      ),
    ),
  );
  const times = { not_before_ms: 0, delay_ms: 0, until_ms: 0, visibility_ms: 0 };
  const entryOf = (seq: number) => ({ seq, delivery: 1, attempts: 1, nonce: 1, error: undefined, ...times });
  const batchesOf = async (append: (seqs: readonly number[]) => Promise<void>): Promise<number> => {
    const before = log.segments.stats.batches_total;
    await Promise.all(groups.map(append));
    return log.segments.stats.batches_total - before;
  };
  // 4096 entries, at most 512 in a step of the event loop.
  assert.equal(await batchesOf((seqs) => log.appendLeased(seqs.map(entryOf), NEVER)), 8);
  assert.equal(await batchesOf((seqs) => log.appendReturned(seqs.map(entryOf), NEVER)), 8);
  const acks = (seqs: readonly number[]) => seqs.map((seq) => acked(seq, 'a'));
  assert.equal(await batchesOf((seqs) => log.appendSettled(acks(seqs), NEVER)), 8);
  await log.close();
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

test('a policy that is set before the first message of its topic is durable is kept', async () => {
  const disk = new CrashFileSystem();
  const { log, state } = await openNaive(disk);
  await Promise.all([
    log.appendTopic('a', { max_deliveries: 5 }, NEVER),
    log.appendMessages([messageOf('a', 1)], NEVER),
    log.appendMessages([messageOf('a', 2)], NEVER),
  ]);
  assert.deepEqual(state.policies.get('a'), { max_deliveries: 5 });
  await log.close();
  const after = await openNaive(disk);
  assert.deepEqual(after.state.policies.get('a'), { max_deliveries: 5 });
  await after.log.close();
});

test('of a batch that fills a segment, the appends before a failed rotation succeed and those after it fail', async () => {
  let isFailing = false;
  const disk = new CrashFileSystem(new Map(), {
    before: (operation) => {
      if (isFailing && operation === 'create') throw Object.assign(new Error('EIO'), { code: 'EIO' });
    },
  });
  const { log, state } = await openNaive(disk, { segment_bytes: 4096 });
  await log.appendMessages([messageOf('a', 1)], NEVER);
  isFailing = true;
  const sends = [2, 3, 4].map((key) => log.appendMessages([messageOf('a', key, 1500)], NEVER));
  const results = await Promise.allSettled(sends);
  assert.deepEqual(
    results.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'rejected'],
  );
  assert.equal(state.messages.size, 3);
  assert.equal(log.check(), undefined);
  await log.close();
  isFailing = false;
  const after = await openNaive(disk, { segment_bytes: 4096 });
  assert.deepEqual([...after.state.messages.keys()], [...state.messages.keys()]);
  assert.equal(after.log.problem, undefined);
  await after.log.close();
});

test('numbers that a failed sync lost are not missing, now and after a restart', async () => {
  let isFailing = false;
  const disk = new CrashFileSystem(new Map(), {
    before: (operation) => {
      if (isFailing && operation === 'sync') throw Object.assign(new Error('EIO'), { code: 'EIO' });
    },
  });
  const { log, state } = await openNaive(disk);
  await log.appendMessages([messageOf('a', 1)], NEVER);
  isFailing = true;
  await assert.rejects(log.appendMessages([messageOf('a', 2), messageOf('a', 3)], NEVER), { code: 'not_ready' });
  isFailing = false;
  // Appends are refused for a short while after a failure.
  await eventually('an append succeeds', () =>
    log.appendMessages([messageOf('a', 4)], NEVER).then(
      () => true,
      () => false,
    ),
  );
  assert.equal(state.messages.size, 2);
  await log.close();
  for (let start = 0; start < 2; start++) {
    const after = await openNaive(disk);
    assert.equal(after.log.problem, undefined);
    assert.deepEqual([...after.state.messages.keys()], [...state.messages.keys()]);
    await after.log.close();
  }
});

test('[mailbox I-10] a disk at its reserve refuses messages, and accepts leases, returns and settlements', async () => {
  const disk = new MemoryDisk(8 * 1024 * 1024);
  const { log, state } = await openNaive(disk, { segment_bytes: 4 * 1024 * 1024 });
  const sent: number[] = [];
  const fill = async (): Promise<void> => {
    for (;;) sent.push(...(await log.appendMessages([messageOf('a', 1, 100_000)], NEVER)));
  };
  await assert.rejects(fill(), { code: 'storage_full' });
  assert.ok(sent.length > 40 && log.disk.isFull);
  const lease = { seq: sent[0]!, delivery: 1, attempts: 1, nonce: 5, until_ms: 10, visibility_ms: 9 };
  await log.appendLeased([lease], NEVER);
  await log.appendReturned([{ seq: sent[0]!, delivery: 1, not_before_ms: 0, delay_ms: 0, error: undefined }], NEVER);
  await log.appendSettled(
    sent.map((seq) => acked(seq, 'a')),
    NEVER,
  );
  const compactor = new Compactor({ log, live: state, onEvent: () => undefined });
  await compactor.pass(NEVER);
  await log.reserve.measure();
  assert.ok(!log.disk.isFull, 'a queue that was emptied gives back its space');
  await log.appendMessages([messageOf('a', 1, 100_000)], NEVER);
  await log.close();
});

test('a second process cannot open the directory', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'mailbox-'));
  try {
    const { log } = await openNaive(realFileSystem, { dir });
    await assert.rejects(openNaive(realFileSystem, { dir }), { code: 'not_ready' });
    await log.close();
    await (await openNaive(realFileSystem, { dir })).log.close();
  } finally {
    await rm(dir, { recursive: true });
  }
});

test('a read-only directory can be opened and read; appends are refused with the reason', async () => {
  const disk = new CrashFileSystem();
  const { log } = await openNaive(disk);
  const [seq] = await log.appendMessages([messageOf('a', 1)], NEVER);
  await log.close();
  let isMounted = false;
  const refuse = (): never => {
    throw Object.assign(new Error('EROFS'), { code: 'EROFS' });
  };
  const readOnly: FileSystem = {
    create: async (path) => (isMounted ? await disk.create(path) : refuse()),
    open: async (path, access) => (access === 'write' && !isMounted ? refuse() : await disk.open(path, access)),
    list: (dir) => disk.list(dir),
    makeDir: async () => undefined,
    rename: async () => refuse(),
    remove: async () => refuse(),
    syncDir: async () => undefined,
    lock: () => {
      throw Object.assign(new Error('unable to open database file'), { errcode: 14 });
    },
  };
  const after = await openNaive(readOnly);
  assert.ok(await after.log.reader.read(after.state.messages.get(seq!)!.place));
  await assert.rejects(after.log.appendSettled([acked(seq!, 'a')], NEVER), /read-only/);
  assert.match(after.log.disk.failure!, /read-only/);
  assert.ok(after.state.messages.has(seq!));
  // The directory is not locked: another process may have opened it after the remount.
  isMounted = true;
  await assert.rejects(after.log.appendSettled([acked(seq!, 'a')], NEVER), /restart/);
  await after.log.probe(NEVER);
  assert.match(after.log.disk.problem!, /restart/);
  await after.log.close();
  const restarted = await openNaive(disk);
  assert.equal(restarted.log.seq_durable, after.log.seq_durable, 'nothing was written');
  await restarted.log.close();
});

test('a start reports its progress', async () => {
  const disk = new CrashFileSystem();
  const { log } = await openNaive(disk, { segment_bytes: 1024 * 1024 });
  const messages = Array.from({ length: 100 }, (_, key) => messageOf('a', key));
  for (let round = 0; round < 30; round++) await log.appendMessages(messages, NEVER);
  await log.close();
  const seen: ReplayProgress[] = [];
  const after = await openNaive(disk, { onProgress: (progress) => void seen.push(progress) });
  assert.ok(seen.length >= 2);
  assert.ok(
    seen.every(({ bytes, bytes_total }, index) => bytes <= bytes_total && bytes >= (seen[index - 1]?.bytes ?? 0)),
  );
  await after.log.close();
});
