/** Compaction gives back space, and loses no message, key or count. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { Compactor, type CompactorEvent } from './compactor.ts';
import { writeAcceptance } from '../ledger/accept.ts';
import type { MailboxLog } from '../mailbox-log.ts';
import { acked, dead, messageOf, openNaive, removed } from '../testing/make.ts';
import type { NaiveState } from '../testing/naive-state.ts';

const SEGMENT_BYTES = 8 * 1024;

async function open(
  fs: FileSystem,
): Promise<{ log: MailboxLog; state: NaiveState; compactor: Compactor; events: CompactorEvent[] }> {
  const { log, state } = await openNaive(fs, { segment_bytes: SEGMENT_BYTES });
  const events: CompactorEvent[] = [];
  const compactor = new Compactor({ log, live: state, onEvent: (event) => void events.push(event) });
  return { log, state, compactor, events };
}

const send = (log: MailboxLog, count: number, bytes: number, key = 1): Promise<readonly number[]> =>
  log.appendMessages(
    Array.from({ length: count }, (_, index) => messageOf('a', key + index, bytes)),
    NEVER,
  );

/** Messages with their state, without their places. */
const described = ({ messages }: NaiveState): unknown =>
  [...messages.values()]
    .map((message) => ({ ...message, place: undefined, dead: message.dead && { ...message.dead, at: undefined } }))
    .toSorted((a, b) => a.seq - b.seq);

test('a segment without live messages is removed, and the totals stay', async () => {
  const disk = new CrashFileSystem();
  const { log, compactor, events } = await open(disk);
  for (let round = 0; round < 10; round++) {
    const seqs = await send(log, 4, 900);
    await log.appendSettled(
      seqs.map((seq) => acked(seq, 'a')),
      NEVER,
    );
  }
  assert.ok(log.segments.files.totals().segments >= 4);
  await compactor.pass(NEVER);
  assert.equal(log.segments.files.totals().segments, 1);
  assert.ok(events.every(({ kind }) => kind === 'segment removed'));
  await log.close();
  const after = await open(disk);
  assert.equal(after.log.problem, undefined);
  assert.deepEqual(after.state.totals.get('a'), { sent: 40, acked: 40, dead: 0, gone: 0 });
  await after.log.close();
});

test('live messages, dead letters, leases, delays and keys survive any number of compactions', async () => {
  const disk = new CrashFileSystem();
  const { log, state, compactor } = await open(disk);
  const [leased, delayed, died, ready] = await send(log, 4, 500, 10);
  const [keyed] = await log.appendMessages([messageOf('a', 20, 10, { idempotency_key: 'k1' })], NEVER);
  const lease = { seq: leased!, delivery: 3, attempts: 2, nonce: 99, until_ms: 123_456, visibility_ms: 30_000 };
  state.onLeased([lease]);
  await log.appendLeased([lease], NEVER);
  const returned = { seq: delayed!, delivery: 0, not_before_ms: 777, delay_ms: 9, error: 'later' };
  state.onReturned([returned]);
  await log.appendReturned([returned], NEVER);
  await log.appendSettled([dead(died!, 'a', 'the last error'), acked(keyed!, 'a')], NEVER);
  const before = described(state);
  for (let round = 0; round < 5; round++) {
    await send(log, 3, 2000).then((seqs) =>
      log.appendSettled(
        seqs.map((seq) => acked(seq, 'a')),
        NEVER,
      ),
    );
    while (log.segments.files.totals().segments > 1) await compactor.compactOldest(NEVER);
    await compactor.compactOldest(NEVER);
    assert.deepEqual(described(state), before);
  }
  assert.equal(log.check(), undefined);
  await log.close();

  const after = await open(disk);
  assert.equal(after.log.problem, undefined);
  assert.deepEqual(described(after.state), before);
  assert.deepEqual(
    [...after.state.seen.values()].map(({ seq }) => seq),
    [keyed],
  );
  const details = await after.log.reader.deadReader()(after.state.messages.get(died!)!.dead!.at, died!);
  assert.deepEqual([details!.reason, details!.error, details!.attempts], ['max_deliveries', 'the last error', 12]);
  const stored = await after.log.reader.read(after.state.messages.get(ready!)!.place);
  assert.deepEqual(Buffer.from(stored!.payload), Buffer.alloc(500, 13));
  await after.log.appendSettled([removed(died!, 'a')], NEVER);
  assert.equal(after.log.check(), undefined);
  await after.log.close();
});

test('a message that is settling is not moved; the segment waits for it', async () => {
  const disk = new CrashFileSystem();
  const { log, state, compactor } = await open(disk);
  const [first] = await send(log, 1, 100);
  state.settling.add(first!);
  let isDone = false;
  const compaction = compactor.compactOldest(NEVER).then(() => (isDone = true));
  // The compaction has read the segment and waits.
  while (log.segments.files.numbers().length < 2) await new Promise((resolve) => setImmediate(resolve));
  for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isDone, false);
  await log.appendSettled([acked(first!, 'a')], NEVER);
  await compaction;
  await log.close();
  const after = await open(disk);
  assert.equal(after.state.messages.size, 0);
  assert.equal(after.log.problem, undefined);
  await after.log.close();
});

test('a live message with a damaged body becomes a dead letter that survives further compactions', async () => {
  const disk = new CrashFileSystem();
  const { log, state, compactor } = await open(disk);
  const [first, second] = await send(log, 2, 700);
  const path = log.segments.files.path(state.messages.get(first!)!.place.segment);
  const { offset } = state.messages.get(first!)!.place;
  disk.damage(path, (bytes) => bytes.with(offset + 64 + 10, 0xff));
  await compactor.compactOldest(NEVER);
  await compactor.compactOldest(NEVER);
  assert.equal(state.messages.get(first!)!.dead!.reason, 'damaged');
  assert.equal(state.messages.get(second!)!.dead, undefined);
  await log.close();
  const after = await open(disk);
  assert.equal(after.log.problem, undefined);
  assert.deepEqual(described(after.state), described(state));
  await after.log.close();
});

test('a segment whose live message cannot be found is kept, and reported', async () => {
  const disk = new CrashFileSystem();
  const { log, state, compactor } = await open(disk);
  const [first] = await send(log, 2, 700);
  const { segment, offset } = state.messages.get(first!)!.place;
  disk.damage(log.segments.files.path(segment), (bytes) => bytes.with(offset + 12, 0xff));
  await assert.rejects(compactor.compactOldest(NEVER), /cannot be read/);
  assert.ok(log.segments.files.has(segment));
  await log.close();
  const after = await open(disk);
  assert.match(after.log.problem!.text, /record 3 is missing/);
  await after.log.close();
});

/** Three segments; the base of the second one is damaged at `at`. All messages of the first one are acked. */
async function damagedBase(disk: CrashFileSystem, at: number): Promise<Awaited<ReturnType<typeof open>>> {
  const opened = await open(disk);
  const { log } = opened;
  const old = await send(log, 2, 100, 1);
  await log.rotate(NEVER);
  await send(log, 3, 100, 10);
  const second = log.segments.files.path(log.segments.files.numbers()[1]!);
  await log.rotate(NEVER);
  await send(log, 1, 100, 20);
  disk.damage(second, (bytes) => bytes.with(at, bytes[at]! ^ 0xff));
  await log.appendSettled(
    old.map((seq) => acked(seq, 'a')),
    NEVER,
  );
  return opened;
}

for (const [part, at] of [
  ['header', 12],
  ['body', 66],
] as const) {
  test(`[mailbox I-8] the messages of a segment with a damaged ${part} of its base survive the compaction before it`, async () => {
    const disk = new CrashFileSystem();
    const { log, state, compactor, events } = await damagedBase(disk, at);
    assert.ok(await compactor.compactOldest(NEVER));
    assert.deepEqual(
      events.map(({ kind }) => kind),
      ['log damaged', 'segment removed', 'segment removed'],
    );
    await log.close();
    const after = await open(disk);
    assert.equal(after.log.problem, undefined);
    assert.equal(after.state.messages.size, 4);
    assert.deepEqual(described(after.state), described(state));
    await after.log.close();
  });
}

/** Opens a log whose problem is accepted, if it has one. */
async function openAccepted(disk: CrashFileSystem): Promise<Awaited<ReturnType<typeof open>> & { isBroken: boolean }> {
  const first = await open(disk);
  const { problem } = first.log;
  if (problem === undefined) return { ...first, isBroken: false };
  await first.log.close();
  await writeAcceptance('/mailbox', { problem_sha256: problem.sha256, reason: 'a damaged base' }, disk);
  const opened = await open(disk);
  assert.equal(opened.log.problem, undefined);
  return { ...opened, isBroken: true };
}

test('a crash during that compaction loses no message, even if the ledger must be accepted', async () => {
  const running = new CrashFileSystem();
  await (await damagedBase(running, 12)).log.close();
  const disk = new CrashFileSystem(running.files());
  const { log, compactor } = await openAccepted(disk);
  const before = disk.operations;
  await compactor.compactOldest(NEVER);
  await log.close();
  let [images, broken] = [0, 0];
  for (let point = before; point <= disk.operations; point++) {
    for (const image of disk.imagesAt(point, 20, Math.random)) {
      const crashed = new CrashFileSystem(image);
      const after = await openAccepted(crashed);
      images += 1;
      broken += Number(after.isBroken);
      const seqs = [...after.state.messages.values()].filter(({ dead: letter }) => letter === undefined);
      assert.deepEqual(
        seqs.map(({ id }) => Number.parseInt(id.slice(0, 2), 16)).toSorted((a, b) => a - b),
        [10, 11, 12, 20],
      );
      await after.log.close();
    }
  }
  assert.ok(images > 10 && broken > 0, `${images} disks, ${broken} with a broken ledger`);
});
